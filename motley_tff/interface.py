"""The public interface: what the trainers do, from Python; see `motley_tff`.

    task = motley.create_task("school", use_synthetic_data=True)
    result = motley.run(task, motley.algorithms.Ditto(regularization=1.0), rounds=100, seed=0)
    result.clients.groupby("split").is_hurt.mean()

Tasks come from installed packages; algorithms are values; a run gives pandas frames.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import inspect
import logging
import os
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from motley_tff.algorithms import FedAvg, FineTuning, KnnPer
from motley_tff.algorithms.personal_training import SiloAlgorithm
from motley_tff.commandline import progress as progress_bars
from motley_tff.core import errors, options as options_lib, plugins
from motley_tff.core.errors import UserError
from motley_tff.experiment import defaults, progress, run_directory, summaries
from motley_tff.experiment.config import (
    BackendConfig,
    EvaluationConfig,
    LoopConfig,
    RunConfig,
    plain,
)
from motley_tff.tables import client_tables, columns, reading

if TYPE_CHECKING:
    import pandas as pd

    from motley_tff.core.task import Task

# TensorFlow reports as errors that it finds no graphics card.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Where the data lie, not what they are: these may differ when a run goes on.
_PLACES = ("data_dir", "data_file")
# Settings that runs of before do not have, of which what is not given is left out.
_NEWER = (
    "train_steps", "client_schedule", "server_schedule", "decay_factor", "decay_rounds",
    "warmup_rounds", "stop_after", "min_improvement",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run left, as pandas frames; their columns are in `motley_tff/tables/README.md`.

    Attributes:
      clients: Clients of the last evaluation, or with `stop_after` of the best, a row each.
      history: Clients of all evaluations.
      summary: Means over clients, a row per evaluation and split.
      rounds: A row per training round.
      candidates: Each client's score of each candidate.
      learning_rates: Rates of training that nobody gave and that were tried, see
        `experiment.rate_probe`: columns `optimizer`, `learning_rate`, `loss`, `is_chosen`.
      others: `{table: frame}` of what only some settings leave, such as `sizes`.
      directory: Where the files are; None if none were asked for.
      files: `{name: content}` of the tables and `run.json`, where there is no directory.
    """

    clients: pd.DataFrame
    history: pd.DataFrame
    summary: pd.DataFrame
    rounds: pd.DataFrame
    candidates: pd.DataFrame
    learning_rates: pd.DataFrame
    others: Mapping[str, pd.DataFrame]
    directory: pathlib.Path | None
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict, repr=False)

    def plot_clients(self, split: str = "test", ax: Any = None) -> Any:
        """Draws what each client of a split gained with its own model in the last evaluation, those
        that lose most first, into Matplotlib's axes `ax` or new ones; returns them. UserError if no
        client has a value.
        """
        from motley_tff.tables import client_plots

        return client_plots.draw(self.clients, split, ax)

    def report(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Draws the run into a folder, as `motley_report` does, and returns its page for a browser.

        UserError if the folder cannot be written.
        """
        build = _installed("html", "report")
        with contextlib.ExitStack() as stack:
            folder = self.directory
            if folder is None:
                run_id = str(self.history["run_id"].iloc[0])
                root = stack.enter_context(tempfile.TemporaryDirectory())
                folder = pathlib.Path(root) / run_id
                folder.mkdir()
                for name, content in self.files.items():
                    (folder / name).write_bytes(content)
            built = build([str(folder)], pathlib.Path(path).expanduser(), "svg")
        for warning in built.warnings:
            warnings.warn(warning, stacklevel=2)
        return built.page


def create_task(name: str, **options: Any) -> Task:
    """Returns a task of an installed package, such as those of this project.

    Args:
      name: Its name; each is an entry point `motley_tff.datasets`, a function
        `(name, **options) -> Task`.
      **options: What the package offers; for this project's tasks the fields of
        `datasets.DataOptions`, such as `data_dir`, `use_synthetic_data`, `base_random_seed`. A
        "table" or "text" takes `data`, such as a DataFrame, with `client` and `label`, the names of
        columns.

    Raises:
      UserError: If no package has it, or its data are missing or broken.
    """
    ours, others = plugins.ours(plugins.DATASETS), plugins.installed(plugins.DATASETS)
    plugins.check_not_ours(others.get(name), ours)
    tasks = {**others, **ours}
    if name not in tasks:
        near = difflib.get_close_matches(str(name).lower(), sorted(tasks), n=1)
        known = ", ".join(sorted(tasks))
        expected = f"one of {known}" if known else "the project installed, as launch/run does"
        raise UserError("task", repr(name), expected, f"did you mean {near[0]!r}?" if near else "")
    from motley_tff.core.task import Task  # TensorFlow takes 3 s.
    from motley_tff.experiment import runner

    runner.limit_threads(BackendConfig.threads_per_client)  # Loading starts TensorFlow.
    create = tasks[name].load()
    if name in others:
        try:
            inspect.signature(create).bind(name, **options)
        except TypeError as error:
            raise others[name].error(f"no way to call it so ({error})") from error
    task = create(name, **options)
    if not isinstance(task, Task):
        raise tasks[name].error(f"{type(task).__name__} returned", "a Task")
    arguments = {option: value for option, value in options.items() if option != "data"}
    facts = {**task.facts, "arguments": plain(arguments)}
    if name in others:
        facts["package"] = others[name].origin
    return dataclasses.replace(task, facts=facts)


def run(
    task: Task,
    algorithm: FedAvg,
    personalization: FineTuning | KnnPer | None = None,
    *,
    rounds: int = 100,
    seed: int = 0,
    clients_per_round: int | None = None,
    rounds_per_evaluation: int | None = None,
    stop_after: int | None = None,
    min_improvement: float = LoopConfig.min_improvement,
    evaluation: EvaluationConfig | None = None,
    backend: BackendConfig | None = None,
    root_output_dir: str | None = None,
    experiment_name: str = "run",
    reporter: progress.Progress | None = None,
) -> Result:
    """Trains, personalizes and evaluates every validation and test client.

    Args:
      algorithm: What trains, such as `algorithms.Ditto(regularization=1.0)`.
      personalization: How clients personalize a global model; fine-tuning by default. Algorithms
        that train each client's model, and clusters, take none. Per-FedAvg takes fine-tuning, its
        default on devices, in place of its own adaptation.
      seed: Of every random choice but those of the data.
      clients_per_round: Cohort size; by default ten or all if there are fewer, on silos all.
      rounds_per_evaluation: Evaluate every so many rounds; by default after the last.
      stop_after: End after so many evaluations in a row without a better validation mean; the
        result is of the best round. Devices are then evaluated by one sample.
      min_improvement: What counts as better: more than this.
      evaluation: What evaluations look at; what it leaves at None is as without it.
      backend: What runs the clients' work.
      root_output_dir: Keep a trainer's files, in `<root_output_dir>/<experiment_name>`; a run that
        was cut goes on there, and one of fewer rounds, if nothing else differs. None keeps none.
      experiment_name: The folder's name, and the tables' `run_id`.
      reporter: Told what happens; by default bars in a notebook, and nothing elsewhere.

    Raises:
      UserError: If the settings do not fit the task, or the folder holds another experiment.
    """
    config = RunConfig(
        algorithm=algorithm,
        personalization=personalization,
        loop=LoopConfig(
            total_rounds=rounds,
            rounds_per_evaluation=rounds_per_evaluation or rounds or 1,
            clients_per_train_round=clients_per_round,
            base_random_seed=seed,
            stop_after=stop_after,
            min_improvement=min_improvement,
            evaluation=evaluation or EvaluationConfig(),
        ),
        backend=backend or BackendConfig(),
    )
    return run_whole(
        task, config, root_output_dir, experiment_name, reporter, not rounds_per_evaluation
    )


def run_whole(
    task: Task,
    config: RunConfig,
    root_output_dir: str | None = None,
    experiment_name: str = "run",
    reporter: progress.Progress | None = None,
    is_after_the_last: bool = True,
) -> Result:
    """Does what `run` does, of a whole configuration.

    Args:
      is_after_the_last: Whether the evaluation is after the last round, however many there are.
    """
    check_task(task)
    config, algorithm = options_lib.checked(config), config.algorithm
    if algorithm.card.trainers == ("mtl_trainer",) and task.setting == "cross_device":
        expected = f"silos, as {algorithm.card.title} keeps a state at each client"
        advice = "choose another algorithm or task"
        raise UserError(f"task {task.dataset}", "devices", expected, advice)
    whole = defaults.resolve(config, task.setting, len(task.train), task.is_own_data)
    whole.check()
    with contextlib.ExitStack() as stack:
        root = root_output_dir or stack.enter_context(tempfile.TemporaryDirectory())
        settings = _settings(config, whole, task)
        # Runs of before did not say these.
        before = {"data": settings["data"], "algorithm.keep_optimizer_state": False}
        of_all = [*algorithm.schedules_of_all_rounds]
        of_all += ["stop_after"] if config.loop.stop_after else []
        of_all += [] if config.backend.dp_epsilon is None else ["dp_epsilon"]
        raisable = {"loop.total_rounds": tuple(of_all)}
        followers = functools.partial(_followers, whole, is_after_the_last)
        directory = run_directory.RunDirectory(
            root, experiment_name, settings, before, raisable, "motley_tff.run", followers
        )
        stack.callback(directory.close)
        run_config(task, config, directory, reporter or progress_bars.of_notebook())
        result = _result(directory, is_kept=root_output_dir is not None)
    return result  # noqa: RET504 - the stack may swallow, says its type


def check_task(task: Any) -> None:
    """Raises a UserError unless this is a task."""
    from motley_tff.core.task import Task  # TensorFlow takes 3 s.

    if not isinstance(task, Task):
        raise UserError(errors.name("task"), task, "what create_task returns")


def compare(task: Task, algorithms: Sequence[str] | None = None, **options: Any) -> Any:
    """Trains methods of personalization on a task and says which one helps, as `motley_compare`.

    Args:
      algorithms: Names of methods, such as "finetuning", "ditto"; by default all that the command's
        list has for the task's setting.
      **options: Those of `launch.compare.from_python.compare`: `rounds`, `seeds`,
        `clients_per_round`, `root_output_dir`, `experiment_name`, `reporter`.

    Returns:
      A `launch.compare.from_python.ComparisonResult`: pandas frames, and the answer in a sentence.

    Raises:
      UserError: If a name is unknown, the setting does not allow it, or the folder holds another
        comparison.
    """
    check_task(task)
    return _installed("compare", "compare")(task, algorithms, **options)


def _installed(name: str, argument: str) -> Any:
    """Returns a function of the part of this project that stands above this package."""
    try:
        return plugins.ours(plugins.REPORTS)[name].load()
    except KeyError:
        expected = "the project installed, as launch/run does"
        raise UserError(argument, "nothing that does it", expected) from None


def _followers(whole: RunConfig, is_after_the_last: bool, rounds: int) -> dict[str, Any]:
    """Returns the settings that would be others with so many rounds, and change none of them: the
    name, which without rounds is that of local training, and when a run by default evaluates.
    """
    loop = dataclasses.replace(whole.loop, total_rounds=rounds)
    name = {"algorithm": dataclasses.replace(whole, loop=loop).algorithm_name}
    return name | ({"loop.rounds_per_evaluation": rounds or 1} if is_after_the_last else {})


def run_config(
    task: Task | Callable[[], Task],
    config: RunConfig,
    directory: run_directory.RunDirectory,
    reporter: progress.Progress | None = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Runs a whole configuration in a run's directory, as trainers do.

    Args:
      task: The task, or what loads it once TensorFlow's threads are set.
      config: What was given; `defaults.resolve` fills in the rest.
      directory: The run's; held by this process.
      reporter: Told what happens.
      warn: Given lines that a user should see; by default Python's warnings.

    Raises:
      UserError: As `run`.
    """
    from motley_tff.experiment import runner  # TensorFlow takes 3 s.

    logger = logging.getLogger("tensorflow")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)  # It tells of loops it unrolls as of warnings.
    if not runner.limit_threads(config.backend.threads_per_client):
        (warn or warnings.warn)(
            f"threads_per_client={config.backend.threads_per_client} comes too late: TensorFlow "
            "runs with other threads in this process; begin a new one"
        )
    loaded = task() if callable(task) else task
    whole = defaults.resolve(config, loaded.setting, len(loaded.train), loaded.is_own_data)
    if directory.is_finished:
        runner.check_data(runner.prepared(loaded, whole), directory)
        return
    runner.run(loaded, whole, directory, reporter or progress.Silent(), warn or warnings.warn)


def _settings(config: RunConfig, whole: RunConfig, task: Task) -> dict[str, Any]:
    """Returns what decides the numbers, as `run.json` has it: `{dotted name: value}`."""
    settings = whole.settings()
    # With the rate that was given, which may be none: of runs of before, and where some are tried.
    as_given = ["personal_optimizer"] * isinstance(config.algorithm, SiloAlgorithm)
    as_given += config.algorithm.tried_optimizers if task.is_own_data else ()
    for field in as_given:
        optimizer = dataclasses.asdict(getattr(config.algorithm, field))
        settings[f"algorithm.{field}"] = plain(optimizer)
    for name in ("backend.tff_workers", "loop.num_generated"):  # These decide no number.
        del settings[name]
    for part in ("algorithm", "loop"):
        for option in options_lib.options(type(getattr(whole, part))):
            if option.field in _NEWER and settings[f"{part}.{option.field}"] == option.default:
                del settings[f"{part}.{option.field}"]
    evaluation = dict(settings["loop.evaluation"])
    for name in ("metrics", "tuning_metric"):  # Runs of before do not have these.
        if not evaluation[name]:
            del evaluation[name]
    settings["loop.evaluation"] = evaluation
    options = task.facts.get("arguments", {})
    return settings | {
        "algorithm": whole.algorithm_name,
        "base_random_seed": whole.loop.base_random_seed,
        "data": {name: value for name, value in options.items() if name not in _PLACES},
        "dataset_name": task.dataset,
        "use_synthetic_data": task.facts.get("source") == "synthetic",
    }


def _result(directory: run_directory.RunDirectory, is_kept: bool) -> Result:
    path = directory.path
    for name in ("summary", "rounds", "candidates"):
        if not (path / f"{name}.csv").exists():
            advice = "move the folder away, or choose another experiment_name"
            raise UserError(str(path), None, f"{name}.csv, which a finished run leaves", advice)
    history = client_tables.read(path / "clients.csv")
    paths = {name: path / f"{name}.csv" for name in columns.TABLES if name != "clients"}
    frames = {n: reading.read(reading.open_file(p), n) for n, p in paths.items() if p.exists()}
    last: Any = "last"
    if directory.record["configuration"].get("loop.stop_after"):
        last = int(summaries.selected(directory)[0]["round"])
    return Result(
        clients=client_tables.choose(history, last, None).reset_index(drop=True),
        history=history,
        summary=frames.pop("summary"),
        rounds=frames.pop("rounds"),
        candidates=frames.pop("candidates"),
        learning_rates=_learning_rates(directory.record.get(run_directory.RATES, {})),
        others=frames,
        directory=path if is_kept else None,
        files={} if is_kept else {p.name: p.read_bytes() for p in _files(path)},
    )


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns what a report reads of a run's directory."""
    return [*sorted(path.glob("*.csv")), path / "run.json"]


def _learning_rates(chosen: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd  # It takes 0.4 s.

    rows = [
        (field.removesuffix("_optimizer"), rate, loss, rate == tried["chosen"])
        for field, tried in chosen.items()
        for rate, loss in tried["tried"]
    ]
    return pd.DataFrame(rows, columns=["optimizer", "learning_rate", "loss", "is_chosen"])
