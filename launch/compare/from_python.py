"""`motley.compare`: the methods of `motley_compare` on a task in memory, in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launch.compare import collecting, methods, tables
from launch.compare.methods import Method
from launch.sweeps import plans, processes, results
from launch.sweeps.plans import Plan, SweepTask
from launch.sweeps.train_group import GroupTraining
from motley_tff import algorithms as algorithms_lib, interface
from motley_tff.algorithms import FedAvg
from motley_tff.backends import choice
from motley_tff.commandline import progress as progress_bars
from motley_tff.core import options as options_lib
from motley_tff.core.errors import UserError
from motley_tff.experiment import config as configs, progress, run_directory
from motley_tff.experiment.config import RunConfig, plain
from motley_tff.tables import reading
from trainers import algorithm_flags, option_flags

if TYPE_CHECKING:
    import pandas as pd

    from motley_tff.core.task import Task

_COHORT = options_lib.name_of(configs.LoopConfig, "clients_per_train_round").flag
_FOLDERS = ("tasks", "runs", "scratch")


@dataclasses.dataclass(frozen=True)
class ComparisonResult:
    """What `motley.compare` returns; the frames' columns are in `motley_tff/tables/README.md`.

    Attributes:
      methods: A row per method: its mean, spreads, who is hurt, and the setting that was chosen.
      differences: Tests of the methods against FedAvg + fine-tuning and local training.
      costs: Each method's runs and seconds.
      clients: Each test client's value under each method and seed: columns `method`,
        `base_random_seed`, `client_id`, `value`.
      sentence: The answer.
      text: The closing table of the command, and what its numbers mean.
      directory: Where the files are; None if none were asked for.
    """

    methods: pd.DataFrame
    differences: pd.DataFrame
    costs: pd.DataFrame
    clients: pd.DataFrame
    sentence: str
    text: str
    directory: pathlib.Path | None

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class _Runs(Plan):
    """A plan whose runs are trained together only if the task's model is small."""

    is_small: bool = True

    @functools.cached_property
    def tasks(self) -> list[SweepTask]:
        """All tasks; see `Plan`."""
        every = super().tasks
        if self.is_small:
            return every
        runs = sorted(run for task in every for run in task.runs)
        return [SweepTask(number, (run,), None) for number, run in enumerate(runs)]


def compare(
    task: Task,
    algorithms: Sequence[str] | None = None,
    *,
    rounds: int | None = None,
    seeds: int = 3,
    clients_per_round: int | None = None,
    root_output_dir: str | None = None,
    experiment_name: str = "compare",
    reporter: progress.Progress | None = None,
) -> ComparisonResult:
    """Trains methods on a task under several seeds, each with its grid of rates, and compares them.

    Args:
      algorithms: Names of methods; by default all of `methods.METHODS` that the setting allows.
      rounds: Of every method; by default the published ones, else 100.
      seeds: How many: 100, 1100, 2100, ...; the data stay the task's.
      clients_per_round: By default the published ones, else ten devices, all silos.
      root_output_dir: Keep the command's files; a comparison that was cut goes on there.
      experiment_name: The folder's name.
      reporter: Told what happens; by default a bar in a notebook.

    Raises:
      UserError: If a name is unknown, the setting does not allow it, or the folder holds another
        comparison.
    """
    for name, value in (("rounds", rounds), ("seeds", seeds)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UserError(name, repr(value), "a whole number of at least 1")
    if isinstance(algorithms, str) or (algorithms is not None and not algorithms):
        raise UserError("algorithms", algorithms, "a list of names, such as ['finetuning']")
    is_deep = not all(task.model.is_last_layer)
    compared = methods.chosen(algorithms, task.setting, is_deep)
    rounds = rounds or methods.published_rounds(task.dataset) or 100
    cohort = clients_per_round or methods.published_cohort(task.dataset)
    with contextlib.ExitStack() as stack:
        root = root_output_dir or stack.enter_context(tempfile.TemporaryDirectory())
        identity = {
            "algorithms": [method.name for method in compared], "dataset_name": task.dataset,
            "total_rounds": rounds, "seeds": seeds, "clients_per_round": cohort,
            "data": plain(task.facts.get("arguments", {})),
        }  # fmt: skip
        directory = run_directory.RunDirectory(
            root, experiment_name, identity, maker="motley_tff.compare"
        )
        stack.callback(directory.close)
        directory.write_record(status="running", **_data(task, directory))
        works = collecting.works(
            compared, lambda m: _plan(m, task, rounds, cohort, seeds), directory.path
        )
        _train(task, works, reporter or progress_bars.of_notebook() or progress.Silent())
        comparison, costs = tables.of_works(directory.path, works)
        tables.write(directory.path, comparison, costs)
        text = tables.closing_text(
            comparison, f"each method has {rounds} rounds", tables.seconds_of(costs)
        )
        directory.write_record(status="finished")
        kept = directory.path if root_output_dir is not None else None
        frames = {
            name: reading.read(reading.open_file(directory.path / f"{name}.csv"), name)
            for name in ("compare", "comparisons", "costs")
        }
    return ComparisonResult(
        frames["compare"], frames["comparisons"], frames["costs"], _clients(comparison),
        tables.sentence(comparison) if comparison.aligned.num_clients else text, text, kept,
    )  # fmt: skip


def _data(task: Task, directory: run_directory.RunDirectory) -> dict[str, Any]:
    from motley_tff.experiment import runner  # TensorFlow takes 3 s.

    return runner.check_data(task, directory)


def _plan(method: Method, task: Task, rounds: int, cohort: int | None, seeds: int) -> Plan:
    fixed = {} if cohort is None else {_COHORT: str(cohort)}
    grid = methods.grid_of(method, task.dataset, rounds, methods.fixed_of(method, fixed))
    is_small = task.model.vectorizes and task.model.num_weights <= choice.MOST_STACKED_WEIGHTS
    return _Runs(grid, seeds, is_small=is_small)


def _train(task: Task, works: Sequence[collecting.Work], reporter: progress.Progress) -> None:
    """Trains what is not finished; a run that fails is a row that says why."""
    own = [work for work in works if not work.is_baseline]
    for work, folder in ((work, folder) for work in own for folder in _FOLDERS):
        (work.path / folder).mkdir(parents=True, exist_ok=True)
    left = [(w, t) for w in own for t in w.plan.tasks if not results.is_finished(w.path, t)]
    total = sum(work.plan.num_runs for work in own)
    reporter.start("runs", total, total - sum(len(t.runs) for _, t in left))
    for work, part in left:
        _train_part(task, work, part)
        reporter.advance(len(part.runs))
    reporter.finish()


def _train_part(task: Task, work: collecting.Work, part: SweepTask) -> None:
    start, path, plan = time.monotonic(), results.path_of(work.path, part), work.plan
    run = part.runs[0]
    try:
        config = _config(plan, run)
        if part.group is not None:
            GroupTraining(work.path, plan, part, config, lambda seed: task).run()
            content = results.load(path) or {}
        else:
            root = str(work.path / "runs")
            interface.run_whole(task, config, root, run.run_id, progress.Silent())
            content = processes.from_directory(work.path / "runs" / run.run_id, plan, run)
    except UserError as error:
        content = processes.failure(part, str(error))
    results.save(path, {**content, "seconds": round(time.monotonic() - start, 3)})


def _config(plan: Plan, run: plans.SweepRun) -> RunConfig:
    """Returns a run's configuration, as its trainer would make it of the plan's flags."""
    grid, point = plan.grid, plan.grid.points[run.point]
    texts = {**grid.fixed_of(point), **{f: ",".join(v) for f, v in grid.inside.items()}, **point}
    values = {flag: grid.parsed(flag, text) for flag, text in texts.items()}

    def value(kind: Any, **more: Any) -> Any:
        return option_flags.value_of(kind, values, grid.trainer, **more)

    name = values.get("algorithm", algorithms_lib.DEFAULTS[grid.trainer])
    kind: type[FedAvg] = algorithms_lib.TRAINING[name]
    on_top = algorithms_lib.personalizations_of(grid.trainer)
    chosen = on_top[values.get("personalization", next(iter(on_top)))] if on_top else None
    more: dict[str, Any] = {}
    if configs.WarmStartConfig in algorithm_flags.beside(grid.trainer):
        more["warm_start"] = value(configs.WarmStartConfig)
    evaluation = value(configs.EvaluationConfig)
    loop = value(configs.LoopConfig, evaluation=evaluation, base_random_seed=run.seed)
    personalization = value(chosen) if chosen else None
    whole = value(
        RunConfig, algorithm=value(kind), personalization=personalization, loop=loop, **more
    )
    return options_lib.checked(whole)


def _clients(comparison: tables.ComparedMethods) -> pd.DataFrame:
    import pandas as pd  # It takes 0.4 s.

    rows = [
        (outcome.method.name, seed, client, value)
        for outcome in comparison.outcomes
        for (seed, client), value in outcome.values.items()
    ]
    return pd.DataFrame(rows, columns=["method", "base_random_seed", "client_id", "value"])
