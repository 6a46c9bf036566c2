r"""motley_compare: trains methods of personalization on your data, and says which one helps.

Local training, FedAvg, FedAvg + fine-tuning, HypCluster, kNN-Per and, on silos, Ditto, each with a
small grid of rates under several seeds, chosen on validation clients. All have the same rounds. It
ends with a table, tests of the differences, and one sentence; the same command given again goes on
with what is missing.

    motley_compare --dataset_name=table --data_file=my.csv --client_column=who --label_column=y \
        --experiment_name=compare

In <root_output_dir>/<experiment_name> are compare.csv (a row per method), comparisons.csv (tests of
the differences), costs.csv, report/report.html for a browser, and each method's sweep. The exit
status is 0 if all methods have a value, 1 if one has none, 2 if the command cannot be run.
"""

import contextlib
import dataclasses
import functools
import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

import datasets
from datasets.options import DataOptions, Setting
from launch.compare import budget, collecting, methods, tables
from launch.compare.budget import Training
from launch.compare.collecting import Work
from launch.compare.methods import Method
from launch.compare.tables import ComparedMethods
from launch.sweeps import data_check, grids, running, slurm
from launch.sweeps.plans import Plan
from launch.sweeps.processes import PlannedTask
from launch.sweeps.running import OpenSweep, SweepOptions
from motley_tff import commandline
from motley_tff.commandline import progress
from motley_tff.core import errors, options as options_lib
from motley_tff.core.errors import UserError
from motley_tff.core.options import option
from motley_tff.experiment import run_directory
from motley_tff.experiment.config import DEVICES_A_ROUND, LoopConfig
from trainers import algorithm_flags, config, option_flags

FLAGS = flags.FLAGS
_NAME = "motley_compare"
# What a plan tells a trainer itself, apart from `fixed`.
_OF_PLANS = ("data_dir", "data_file", "use_synthetic_data")
_ROUNDS = options_lib.name_of(LoopConfig, "total_rounds")
_COHORT = options_lib.name_of(LoopConfig, "clients_per_train_round")
_SEED = errors.name("base_random_seed")


@dataclasses.dataclass(frozen=True)
class CompareOptions(SweepOptions):
    """What motley_compare can be told beside the data, each a flag."""

    seeds: int = option(3, "Seeds 100, 1100, 2100, ...", lower=1, upper=1000)
    root_output_dir: str = option("results", "Directory that gets the comparison's directory")
    experiment_name: str | None = option(
        None, "Name of the comparison and its directory", parse=run_directory.check_name
    )
    algorithms: tuple[str, ...] | None = option(
        None, "What to compare (default: all of the module's list that the setting allows)"
    )
    total_rounds: int | None = option(
        None, "Rounds of every method (default: the published ones, else 100)", lower=1
    )
    clients_per_train_round: int | None = option(
        None, "Clients in a round of every method (default: the published ones, else 10 devices, "
        "all silos)", lower=1,
    )  # fmt: skip
    budget: str | None = option(
        None, "Time that all may take, such as 10m: first runs are timed, and rounds and grids "
        "planned by them", parse=budget.parse,
    )  # fmt: skip
    report: bool = option(True, "Draw a page for the browser")


algorithm_flags.define_data()
for _flag in option_flags.make("", [CompareOptions]).values():
    flags.DEFINE_flag(_flag.flag)
flags.DEFINE_multi_string(
    "fixed", [], "FLAG=VALUE for every method whose trainer has the flag, such as "
    "train_batch_size=32. May be given several times.",
)  # fmt: skip
flags.mark_flags_as_required(["dataset_name", "experiment_name"])


@dataclasses.dataclass(frozen=True)
class Request:
    """What a command line asks for.

    Attributes:
      options: Its own options.
      data: Which data; what can be either has its setting.
      compared: The methods.
      fixed: The flags that every method gets whose trainer and algorithm have them.
    """

    options: CompareOptions
    data: DataOptions
    compared: Sequence[Method]
    fixed: Mapping[str, str]

    @property
    def setting(self) -> Setting:
        """What clients are."""
        return methods.setting_of(self.data.dataset_name, self.data.setting)

    @property
    def most_rounds(self) -> int:
        """The rounds that are asked for, or the published ones."""
        rounds = self.options.total_rounds or methods.published_rounds(self.data.dataset_name)
        return rounds or 100

    def check_flags(self) -> None:
        """Raises a UserError for a flag that no method has."""
        having = (methods.fixed_of(method, self.fixed) for method in self.compared)
        unused = {*self.fixed}.difference(*having)
        for flag in sorted(unused):
            self.grid(self.compared[0], Training(1)).parsed(flag, self.fixed[flag])
            where, finding = f"--fixed={flag}={self.fixed[flag]}", "a flag of no compared method"
            raise UserError(where, finding, advice="leave it out")

    def grid(self, method: Method, training: Training) -> grids.Grid:
        """Returns what is tried of a method; UserError if its trainer refuses a flag."""
        own, (rounds, level) = methods.fixed_of(method, self.fixed), training
        return methods.grid_of(method, self.data.dataset_name, rounds, own, level)

    def plan(self, method: Method, training: Training) -> Plan:
        """Returns the sweep of a method."""
        grid, data = self.grid(method, training), self.data
        data_dir, data_file = map(running.absolute, (data.data_dir, data.data_file))
        return Plan(
            grid, self.options.seeds, data_dir, data.use_synthetic_data, data_file,
            running.model_dir(grid),
        )  # fmt: skip

    def works(self, training: Training, directory: pathlib.Path) -> list[Work]:
        """Returns each method beside its sweep, see `collecting.works`."""
        return collecting.works(self.compared, lambda m: self.plan(m, training), directory)

    @property
    def trained(self) -> list[Method]:
        """The methods with runs of their own."""
        return [m for m in self.compared if not collecting.owner(m, self.compared)]

    @property
    def identity(self) -> dict[str, Any]:
        """What has to be the same for a comparison to go on."""
        return {
            "algorithms": [method.name for method in self.compared],
            "dataset_name": self.data.dataset_name,
            "use_synthetic_data": self.data.use_synthetic_data,
            "seeds": self.options.seeds,
            "total_rounds": self.most_rounds,
            "budget": self.options.budget,
            **{f"fixed.{flag}": text for flag, text in self.fixed.items()},
        }

    def in_words(self, training: Training) -> str:
        """Returns what each method is trained for."""
        grid = self.grid(self.trained[-1], training)
        cohort = grid.fixed.get(_COHORT.flag)
        clients = f"{cohort or DEVICES_A_ROUND} devices" if self.setting == "cross_device" else (
            f"{cohort} silos" if cohort else "all silos"
        )  # fmt: skip
        none = [m.title for m in self.compared if not m.has_rounds]
        without = f" ({', '.join(none)}: none)" if none else ""
        return (
            f"each method has {training.total_rounds} rounds of {clients}{without}; settings are "
            "chosen on validation data"
        )


def request(options: CompareOptions, data: DataOptions, data_flags: Mapping[str, Any]) -> Request:
    """Returns what is asked for; UserError if it does not fit together.

    Args:
      data_flags: The flags of data that are given, by name.
    """
    setting = methods.setting_of(data.dataset_name, data.setting)
    if _SEED.flag in data_flags:
        expected = f"no seed of its own: {errors.name('seeds')} says how many there are"
        raise UserError(_SEED, data_flags[_SEED.flag], expected, "leave it out")
    fixed = {name: _text(v) for name, v in data_flags.items() if name not in _OF_PLANS}
    if data.dataset_name in datasets.EITHER_SETTING:
        data, fixed["setting"] = dataclasses.replace(data, setting=setting), setting
    datasets.check_options(data)
    cohort = options.clients_per_train_round or methods.published_cohort(data.dataset_name)
    if cohort is not None:
        fixed[_COHORT.flag] = str(cohort)
    own = {option.name.flag for option in options_lib.options(DataOptions)} | {*fixed}
    for flag, text in grids.fixed_flags(options.fixed).items():
        if flag in own or flag in methods.OWN_FLAGS:
            is_ours = flag in own or flag == _ROUNDS.flag
            advice = f"give --{flag} itself, or leave it out" if is_ours else "leave it out"
            where = f"--fixed={flag}={text}"
            raise UserError(where, "what motley_compare decides", advice=advice)
        fixed[flag] = text
    is_deep = methods.is_deep(data.dataset_name, data.model)
    compared = methods.chosen(options.algorithms, setting, is_deep)
    whole = Request(options, data, compared, fixed)
    whole.check_flags()
    return whole


def _text(value: Any) -> str:
    """Returns a flag's value as a command line has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def main() -> int:
    """Runs the comparison; returns the exit status."""
    of_data = [option.name.flag for option in options_lib.options(DataOptions)]
    asked = request(
        option_flags.read(CompareOptions, fixed=FLAGS.fixed), config.data_options(),
        {name: FLAGS[name].value for name in of_data if FLAGS[name].present},
    )  # fmt: skip
    options, most = asked.options, Training(asked.most_rounds)
    plan_of = {method.name: asked.plan(method, most) for method in asked.trained}
    running.check_size(plan_of, may_be_large=options.yes or options.dry_run)
    place = (options.root_output_dir, str(options.experiment_name))
    if options.dry_run:
        _print_commands(asked, most, pathlib.Path(*place))
        return 0
    if options.scheduler == "slurm":
        slurm.check()
    directory = run_directory.RunDirectory(*place, asked.identity, maker=_NAME)
    with contextlib.closing(directory):
        directory.record["trainer"] = _NAME
        training = most
        if options.budget is not None:
            training = _planned(directory, asked)
        works = asked.works(training, directory.path)
        own = [work for work in works if not work.is_baseline]
        with contextlib.ExitStack() as stack:
            sweeps = [
                stack.enter_context(running.opened(str(directory.path), work.path.name, work.plan))
                for work in own
            ]
            status = _run(directory, asked, training, works, sweeps)
    return status


def _planned(directory: run_directory.RunDirectory, request: Request) -> Training:
    """Returns the plan for a budget: the one that is there, or a new one."""
    planned = budget.load(directory.path, request.identity)
    if planned is None:
        _check_data(request.plan(request.trained[0], Training(1)), directory.path)
        directory.write_record(status="running")
        seconds = budget.parse(str(request.options.budget))
        planned = budget.make(
            directory.path, request.identity, request.trained, request.plan, request.most_rounds,
            seconds, request.options,
        )  # fmt: skip
    return planned


def _print_commands(request: Request, training: Training, directory: pathlib.Path) -> None:
    works = [work for work in request.works(training, directory) if not work.is_baseline]
    for work in works:
        for task in work.plan.tasks:
            print(f"# {work.method.name}, task {task.name}: {len(task.runs)} runs")
            print(shlex.join(work.plan.command(task, work.path)))
    runs, tasks = (sum(work.plan.num_runs for work in works), sum(len(w.plan.tasks) for w in works))
    print(f"# {request.in_words(training)}")
    if request.options.budget is not None:
        print(f"# at most: --budget={request.options.budget} plans rounds and grids by timings")
    print(f"# {runs} runs in {tasks} tasks; nothing was run")


def _run(
    directory: run_directory.RunDirectory,
    request: Request,
    training: Training,
    works: Sequence[Work],
    sweeps: Sequence[OpenSweep],
) -> int:
    """Trains, writes the tables and prints what came out; returns the exit status."""
    waiting = next((sweep for sweep in sweeps if sweep.waiting), None)
    if waiting is not None:
        _check_data(waiting.plan, waiting.path)
    directory.write_record(status="running")
    for sweep in sweeps:
        sweep.write_record("running")
    runs = sum(sweep.plan.num_runs for sweep in sweeps)
    print(f"{_NAME}: {len(works)} methods, {runs} runs; {request.in_words(training)}",
          file=sys.stderr, flush=True)  # fmt: skip
    running.run_tasks(sweeps, request.options, _refused)
    data = request.data
    is_drawn = data.use_synthetic_data or data.partition != "natural"
    drawn = is_drawn and data.data_seed is None
    comparison, costs = tables.of_works(directory.path, works, drawn)
    for sweep in sweeps:
        sweep.write_record("finished")
    paths = tables.write(directory.path, comparison, costs)
    seconds = tables.seconds_of(costs)
    print(tables.closing_text(comparison, request.in_words(training), seconds))
    if request.options.report and comparison.aligned.num_clients:
        paths += _drawn(directory.path, comparison, seconds, [s.path for s in sweeps])
    print("", *paths, sep="\n", flush=True)
    directory.write_record(status="finished")
    return int(any(outcome.reason for outcome in comparison.outcomes))


def _check_data(plan: Plan, directory: pathlib.Path) -> None:
    """Refuses data that cannot be loaded before anything is trained; all sweeps have the same."""
    arguments = plan.arguments(plan.tasks[0].runs[0], directory)
    complaint = data_check.complaint(plan.grid.trainer, arguments, plan.environment)
    if complaint is not None:
        raise UserError(complaint, advice="nothing was run")


def _refused(planned: PlannedTask, reason: str) -> None:
    """Says that a method cannot run; the others go on."""
    progress.warn(f"{planned.plan.grid.algorithm} is left out: {reason}")


def _drawn(
    directory: pathlib.Path,
    comparison: ComparedMethods,
    seconds: Mapping[str, float],
    sweeps: Sequence[pathlib.Path],
) -> list[pathlib.Path]:
    """Draws the page of the methods that have values; returns where it is."""
    from launch.compare import report  # Matplotlib takes 0.8 s.

    names = {outcome.method.name for outcome in comparison.compared}
    try:
        with_values = [path for path in sweeps if path.name in names]
        return [report.draw(directory, comparison, seconds, with_values)]
    except UserError as error:  # The tables are there.
        progress.warn(f"no page: {error.line(with_flags=True)}")
        return []


run = functools.partial(commandline.run_main, main, can_resume=True)

if __name__ == "__main__":
    run()
