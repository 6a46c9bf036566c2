"""Runs sweeps, several of them at once if need be: their directories, what is not finished in them,
and one bar over all runs.
"""

import collections
import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from datasets.models import users_model
from launch.sweeps import data_check, grids, plans, processes, results, slurm
from launch.sweeps.plans import Plan
from launch.sweeps.processes import PlannedTask
from motley_tff.commandline.progress import TerminalProgress
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.core.options import option
from motley_tff.experiment import run_directory

# More runs than this want to be asked for; more than that do not fit in any plan.
MANY_RUNS, _TOO_MANY_RUNS = 20_000, 10_000_000
_OTHER_ROOT = f"choose another {errors.name('root_output_dir')}"
# What a directory is said to hold of where two values would tell a reader nothing.
_STORED = {"grid": "another grid", "form": "another version of motley_sweep"}


@dataclasses.dataclass(frozen=True)
class SweepOptions(slurm.Resources):
    """What motley_sweep can be told, each a flag, and --fixed, which can be repeated."""

    seeds: int = option(
        5, "Seeds 100, 1100, 2100, ...; may grow where each is trained by itself", lower=1,
        upper=1000,
    )  # fmt: skip
    scheduler: Literal["local", "slurm"] = option("local", "What runs the tasks")
    root_output_dir: str = option("results", "Directory that gets the sweep's directory")
    dry_run: bool = option(False, "Print the tasks' commands and run nothing")
    yes: bool = option(False, f"Run more than {MANY_RUNS} runs, too")
    fixed: Sequence[str] = ()


class OpenSweep(NamedTuple):
    """A plan and the directory that it is run in, which this process holds."""

    directory: run_directory.RunDirectory
    plan: Plan

    @property
    def path(self) -> pathlib.Path:
        """Where it is."""
        return self.directory.path

    def write_record(self, status: str) -> None:
        """Writes `run.json`, from which tasks' processes read the plan, and makes its folders."""
        for folder in ("tasks", "logs", "runs", "scratch"):
            (self.path / folder).mkdir(exist_ok=True)
        plan = self.plan
        self.directory.write_record(
            plan=plan.identity(), data_dir=plan.data_dir, data_file=plan.data_file,
            setting=plan.setting, model_dir=plan.model_dir, status=status,
        )  # fmt: skip

    @property
    def waiting(self) -> list[PlannedTask]:
        """The tasks that are not finished."""
        tasks = (PlannedTask(self.plan, self.path, task) for task in self.plan.tasks)
        return [task for task in tasks if not results.is_finished(self.path, task.task)]


@contextlib.contextmanager
def opened(root: str, name: str, plan: Plan) -> Iterator[OpenSweep]:
    """Holds a sweep's directory; UserError if it is in use, foreign or not writable."""
    try:
        directory = run_directory.RunDirectory(root, name, {})
    except UserError as error:
        raise UserError(error.where, error.finding, error.expected, _OTHER_ROOT) from error
    with contextlib.closing(directory):
        _check_same(directory, plan)
        yield OpenSweep(directory, plan)


def absolute(path: str | None) -> str | None:
    """Returns a path that processes with other working directories find."""
    return os.path.abspath(os.path.expanduser(path)) if path else None


def model_dir(grid: grids.Grid) -> str | None:
    """Returns where a grid's model of the user's own is; UserError if it is not there."""
    models = {grid.fixed.get("model", ""), *grid.tried.get("model", ())}
    named = [model for model in models if users_model.is_named(model)]
    for model in named:
        users_model.find(model)
    return os.getcwd() if named else None


def check_size(plan_of: Mapping[str, Plan], may_be_large: bool) -> None:
    """Asks, by a UserError, before sweeps that would take very long."""
    most = _TOO_MANY_RUNS if may_be_large else MANY_RUNS
    if sum(plan.num_runs for plan in plan_of.values()) > most:
        work = "; ".join(
            f"{name}: {p.grid.num_points} settings x {p.num_seeds} seeds are {p.num_runs} runs"
            for name, p in plan_of.items()
        )
        advice = "try fewer values" + ("" if may_be_large else ", or give --yes")
        raise UserError("", work, f"at most {most} runs", advice)


def _check_same(directory: run_directory.RunDirectory, plan: Plan) -> None:
    """Refuses a directory with results of another version, grid or number of seeds."""
    then, now = directory.record.get("plan"), plan.identity()
    if then is None and directory.record:
        raise UserError(str(directory.path), "an experiment", "a sweep", _OTHER_ROOT)
    if then is None:
        return
    for name in now:
        before = then.get(name, 1 if name == "results_version" else None)
        # Results under more or fewer seeds go together unless a call trains several.
        may_differ = name == "seeds" and not plans.joins_seeds(plan.grid)
        if before != now[name] and not may_differ:
            stored = f"results of {_STORED.get(name, f'{name} {before}')}"
            expected = "" if name in _STORED else str(now[name])
            advice = f"{_OTHER_ROOT}, or move them away"
            raise UserError(str(directory.path), stored, expected, advice)


def check_data(sweeps: Sequence[OpenSweep]) -> None:
    """Refuses sweeps whose data cannot be loaded; a first task that is alone will say so itself."""
    for number, sweep in enumerate(sweeps):
        waiting = sweep.waiting
        if len(waiting) > (number == 0):
            plan = sweep.plan
            arguments = plan.arguments(waiting[0].task.runs[0], sweep.path)
            complaint = data_check.complaint(plan.grid.trainer, arguments, plan.environment)
            if complaint is not None:
                raise UserError(f"{sweep.path.name}: {complaint}", advice="nothing was run")


def refuse(planned: PlannedTask, reason: str) -> None:
    """Raises a UserError for a task that failed before its training: others will fail alike."""
    where = f"{planned.task.runs[0].run_id} failed before its training: {reason}"
    raise UserError(where, advice="correct that, then give the same command to continue")


def run_tasks(
    sweeps: Sequence[OpenSweep],
    options: SweepOptions,
    on_refused: Callable[[PlannedTask, str], None] = refuse,
    stage: str = "runs",
    most: int | None = None,
) -> None:
    """Runs what is not finished, in processes here or as Slurm's jobs.

    Args:
      on_refused: Called with a task that failed before its training, and why; the sweep's others
        are then left out.
      stage: What the bar is called.
      most: How many tasks of each sweep at most.
    """
    left = [planned for sweep in sweeps for planned in sweep.waiting]
    waiting = collections.deque(planned for sweep in sweeps for planned in sweep.waiting[:most])
    if not waiting:
        return
    for planned in waiting:  # What failed is tried again.
        results.path_of(planned.directory, planned.task).unlink(missing_ok=True)
    progress, failed = TerminalProgress(), [0]
    done = sum(sweep.plan.num_runs for sweep in sweeps) - sum(len(p.task.runs) for p in left)
    progress.start(stage, done + sum(len(p.task.runs) for p in waiting), done)

    def count(planned: PlannedTask, content: Mapping[str, Any]) -> None:
        runs = len(planned.task.runs)
        failed[0] += sum(row["status"] == "failed" for row in content["runs"])
        if not content.get("has_begun", True):
            on_refused(planned, content["reason"])
            for other in [p for p in waiting if p.directory == planned.directory]:
                waiting.remove(other)
                runs += len(other.task.runs)
        progress.advance(runs, failed=failed[0])

    if options.scheduler == "local":
        at_once = options.max_parallel or processes.share_of_cores(options.cpus_per_task)
        processes.run(waiting, at_once, count)
    else:
        tasks = [waiting.popleft() for _ in range(len(waiting))]
        slurm.run(tasks, count, options)
    progress.finish()
