"""motley_sweep: tries every setting of a grid under several seeds, and chooses on validation data.

Grids are small YAML files; launch/grids has the paper's (Appendix F), one for each algorithm and
data set. What the vectorized backend can train together is trained together, everything else by a
trainer's process for each run. Results are in <root_output_dir>/<name of the grid>: sweep.csv (a
row per run), best.csv (the setting of best validation mean, as the paper's Tables 6 and 7),
clients.csv (its clients), tasks.csv (time and memory). The same command given again goes on with
what is missing and tries what failed once more. Several grids run one after the other.

    motley_sweep launch/grids/ditto.school.yaml --data_dir=DATA

The exit status is 0 if all runs finished, 1 if some failed, 2 if the command cannot be run.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from absl import flags

from datasets.models import users_model
from datasets.options import DataOptions
from launch.sweeps import data_check, grids, plans, processes, results, slurm
from launch.sweeps.plans import Plan, SweepTask
from motley_tff import commandline
from motley_tff.commandline.progress import TerminalProgress
from motley_tff.core import errors, options as options_lib
from motley_tff.core.errors import UserError
from motley_tff.core.options import option
from motley_tff.experiment import run_directory
from motley_tff.files import text_tables
from trainers import option_flags

FLAGS = flags.FLAGS
# More runs than this want to be asked for; more than that do not fit in any plan.
_MANY_RUNS, _TOO_MANY_RUNS = 20_000, 10_000_000
_OTHER_ROOT = f"choose another {errors.name('root_output_dir')}"
# What a directory is said to hold of where two values would tell a reader nothing.
_STORED = {"grid": "another grid", "form": "another version of motley_sweep"}
# What the closing table calls statistics of test clients.
_NAMES = {
    "baseline_mean": "baseline: mean over clients",
    "baseline_std": "baseline: std over clients",
    "personalized_mean": "personalized: mean over clients",
    "personalized_std": "personalized: std over clients",
    "pct_clients_hurt": "% hurt",
    "largest_cluster_pct": "% in the largest cluster",
}


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
    yes: bool = option(False, f"Run more than {_MANY_RUNS} runs, too")
    fixed: Sequence[str] = ()


for _flag in option_flags.make("", [SweepOptions]).values():
    flags.DEFINE_flag(_flag.flag)
for _option in options_lib.options(DataOptions):
    if _option.name.flag in ("data_dir", "data_file", "use_synthetic_data"):
        _option = dataclasses.replace(_option, everyday="")
        flags.DEFINE_flag(option_flags.flag_of(_option, f"{_option.meaning}.", "").flag)
flags.DEFINE_multi_string(
    "fixed", [], "FLAG=VALUE for every run, in place of what the grid says, such as "
    "partition=dirichlet:0.9; results are in a directory of their own. May be given several times.",
)  # fmt: skip


def main(*grid_files: str) -> int:
    """Runs the sweeps of grids' files, one after the other; returns the exit status."""
    options = option_flags.read(SweepOptions, fixed=FLAGS.fixed)
    root, is_synthetic = options.root_output_dir, FLAGS.use_synthetic_data
    # Processes have other working directories.
    data_dir, data_file = _absolute(FLAGS.data_dir), _absolute(FLAGS.data_file)
    plan_of = {
        name: Plan(grid, options.seeds, data_dir, is_synthetic, data_file, _model_dir(grid))
        for name, grid in _grids(grid_files, grids.fixed_flags(options.fixed)).items()
    }
    _check_size(plan_of, may_be_large=options.yes or options.dry_run)
    if options.dry_run:
        for name, plan in plan_of.items():
            for task in plan.tasks:
                print(f"# task {task.name}: {len(task.runs)} runs")
                print(shlex.join(plan.command(task, pathlib.Path(root) / name)))
            print(f"# {plan.num_runs} runs in {len(plan.tasks)} tasks; nothing was run")
        return 0
    if options.scheduler == "slurm":
        slurm.check()
    statuses: list[int] = []
    with contextlib.ExitStack() as stack:
        # All before the first runs, which may take hours.
        opened = {n: stack.enter_context(_opened(root, n, plan)) for n, plan in plan_of.items()}
        _check_data({opened[name].path: plan for name, plan in plan_of.items()})
        for name, plan in plan_of.items():
            if len(plan_of) > 1:
                print(f"{name}:", file=sys.stderr, flush=True)
            if statuses:
                print()
            statuses.append(_run(opened[name], plan, options))
    return max(statuses)


def _grids(grid_files: Sequence[str], fixed: Mapping[str, str]) -> dict[str, grids.Grid]:
    """Returns {name of its directory: a grid}; UserError if one cannot be read, or two would have
    one directory.
    """
    read: dict[str, grids.Grid] = {}
    for path in map(pathlib.Path, grid_files):
        grid, name = grids.read(path, fixed), grids.directory_name(path, fixed)
        try:
            run_directory.check_name(name)
        except UserError as error:
            raise UserError(str(path), name, error.expected, "rename the file") from error
        if name in read:
            raise UserError(str(path), f"a second grid called {name}", advice="give each once")
        read[name] = grid
    return read


def _run(sweep: run_directory.RunDirectory, plan: Plan, options: SweepOptions) -> int:
    """Runs a sweep; returns the exit status."""
    directory = sweep.path
    for folder in ("tasks", "logs", "runs", "scratch"):
        (directory / folder).mkdir(exist_ok=True)
    facts = {
        "plan": plan.identity(), "data_dir": plan.data_dir, "data_file": plan.data_file,
        "setting": plan.setting, "model_dir": plan.model_dir,
    }  # fmt: skip
    sweep.write_record(**facts, status="running")
    _run_tasks(plan, directory, options)
    rows = results.write(directory, plan)
    best = results.best_rows(plan, rows, results.best_point(plan, rows))
    sweep.write_record(**facts, status="finished")
    print(_closing_text(plan, rows, best))
    names = ("sweep", "best", "clients", "tasks")
    tables = [directory / f"{name}.csv" for name in names]
    print("", *(table for table in tables if table.exists()), sep="\n", flush=True)
    return int(any(row["status"] == "failed" for row in rows))


def _absolute(path: str | None) -> str | None:
    return os.path.abspath(os.path.expanduser(path)) if path else None


def _model_dir(grid: grids.Grid) -> str | None:
    """Returns where a grid's model of the user's own is; UserError if it is not there."""
    models = {grid.fixed.get("model", ""), *grid.tried.get("model", ())}
    named = [model for model in models if users_model.is_named(model)]
    for model in named:
        users_model.find(model)
    return os.getcwd() if named else None


def _check_size(plan_of: Mapping[str, Plan], may_be_large: bool) -> None:
    """Asks before sweeps that would take very long."""
    most = _TOO_MANY_RUNS if may_be_large else _MANY_RUNS
    if sum(plan.num_runs for plan in plan_of.values()) > most:
        work = "; ".join(
            f"{name}: {p.grid.num_points} settings x {p.num_seeds} seeds are {p.num_runs} runs"
            for name, p in plan_of.items()
        )
        advice = "try fewer values" + ("" if may_be_large else ", or give --yes")
        raise UserError("", work, f"at most {most} runs", advice)


@contextlib.contextmanager
def _opened(root: str, name: str, plan: Plan) -> Iterator[run_directory.RunDirectory]:
    """Holds a sweep's directory; UserError if it is in use, foreign or not writable."""
    try:
        directory = run_directory.RunDirectory(root, name, {})
    except UserError as error:
        raise UserError(error.where, error.finding, error.expected, _OTHER_ROOT) from error
    with contextlib.closing(directory):
        _check_same(directory, plan)
        yield directory


def _check_data(plan_of: Mapping[pathlib.Path, Plan]) -> None:
    """Refuses sweeps, by their directory, whose data cannot be loaded; a first task that is alone
    will say so itself.
    """
    for number, (directory, plan) in enumerate(plan_of.items()):
        waiting = [task for task in plan.tasks if not results.is_finished(directory, task)]
        if len(waiting) > (number == 0):
            arguments = plan.arguments(waiting[0].runs[0], directory)
            complaint = data_check.complaint(plan.grid.trainer, arguments, plan.environment)
            if complaint is not None:
                raise UserError(f"{directory.name}: {complaint}", advice="nothing was run")


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


def _run_tasks(plan: Plan, directory: pathlib.Path, options: SweepOptions) -> None:
    """Runs what is not finished, in processes here or as Slurm's jobs."""
    waiting = [task for task in plan.tasks if not results.is_finished(directory, task)]
    if not waiting:
        return
    for task in waiting:  # What failed is tried again.
        results.path_of(directory, task).unlink(missing_ok=True)
    progress, failed = TerminalProgress(), [0]
    num_waiting = sum(len(task.runs) for task in waiting)
    progress.start("runs", plan.num_runs, plan.num_runs - num_waiting)

    def count(task: SweepTask, content: dict[str, Any]) -> None:
        if not content.get("has_begun", True):
            where = f"{task.runs[0].run_id} failed before its training: {content['reason']}"
            raise UserError(where, advice="correct that, then give the same command to continue")
        failed[0] += sum(row["status"] == "failed" for row in content["runs"])
        progress.advance(len(task.runs), failed=failed[0])

    if options.scheduler == "local":
        at_once = options.max_parallel or processes.share_of_cores(options.cpus_per_task)
        processes.run(plan, directory, waiting, at_once, count)
    else:
        slurm.run(directory, waiting, count, options)
    progress.finish()


def _closing_text(
    plan: Plan, rows: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]]
) -> str:
    """Returns what came out, by the rows of `sweep.csv` and `best.csv`, and the paper's values."""
    failed = [row for row in rows if row["status"] == "failed"]
    title = (
        f"{plan.grid.algorithm} on {plan.grid.dataset}: {plan.grid.num_points} settings x "
        f"{plan.num_seeds} seeds; {len(failed)} of {len(rows)} runs failed"
    )
    lines = [title, *([f"the first because: {failed[0]['reason']}"] if failed else [])]
    if plan.grid.choose_by == grids.NOTHING:
        return "\n".join([*lines, "no setting is chosen, as the grid says"])
    if not best:
        return "\n".join([*lines, "no setting finished under all seeds"])
    setting = " ".join(f"{name}={best[0][name]}" for name in plan.grid.tried if name in best[0])
    lines.append(f"chosen on validation clients: {setting or 'the only setting'}")
    if plan.grid.paper.get("best"):
        setting = " ".join(f"{name}={value}" for name, value in plan.grid.paper["best"].items())
        lines.append(f"the paper's:                  {setting}")
    cells = [(f"{best[0]['metric']} of test clients", "here", best[0]["paper_source"] or "")]
    for row in best:
        here = _mean_and_std(row["mean"], row["std_over_seeds"])
        paper = _mean_and_std(row["paper_mean"], row["paper_std_over_seeds"])
        cells.append((_NAMES[row["statistic"]], here, paper))
    table = (f"  {line}" for line in text_tables.aligned(cells, gap="   "))
    return "\n".join([*lines, "", *table, "", "mean ± std over seeds"])


def _mean_and_std(mean: float | None, std: float | None) -> str:
    if mean is None:
        return ""
    return f"{mean:.4g}" + ("" if std is None else f" ± {std:.2g}")


run = functools.partial(commandline.run_main, main, ("GRID...",), can_resume=True)

if __name__ == "__main__":
    run()
