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
import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from datasets.options import DataOptions
from launch.sweeps import grids, results, running, slurm
from launch.sweeps.plans import Plan
from launch.sweeps.running import SweepOptions
from motley_tff import commandline
from motley_tff.core import options as options_lib
from motley_tff.core.errors import UserError
from motley_tff.experiment import run_directory
from motley_tff.files import text_tables
from trainers import option_flags

FLAGS = flags.FLAGS
# What the closing table calls statistics of test clients.
_NAMES = {
    "baseline_mean": "baseline: mean over clients",
    "baseline_std": "baseline: std over clients",
    "personalized_mean": "personalized: mean over clients",
    "personalized_std": "personalized: std over clients",
    "pct_clients_hurt": "% hurt",
    "largest_cluster_pct": "% in the largest cluster",
}


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
    data_dir, data_file = running.absolute(FLAGS.data_dir), running.absolute(FLAGS.data_file)
    plan_of = {
        name: Plan(grid, options.seeds, data_dir, is_synthetic, data_file, running.model_dir(grid))
        for name, grid in _grids(grid_files, grids.fixed_flags(options.fixed)).items()
    }
    running.check_size(plan_of, may_be_large=options.yes or options.dry_run)
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
        sweeps = [stack.enter_context(running.opened(root, *item)) for item in plan_of.items()]
        running.check_data(sweeps)
        for sweep in sweeps:
            if len(sweeps) > 1:
                print(f"{sweep.path.name}:", file=sys.stderr, flush=True)
            if statuses:
                print()
            statuses.append(_run(sweep, options))
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


def _run(sweep: running.OpenSweep, options: SweepOptions) -> int:
    """Runs a sweep; returns the exit status."""
    directory, plan = sweep.path, sweep.plan
    sweep.write_record("running")
    running.run_tasks([sweep], options)
    rows = results.write(directory, plan)
    best = results.best_rows(plan, rows, results.best_point(plan, rows))
    sweep.write_record("finished")
    print(_closing_text(plan, rows, best))
    names = ("sweep", "best", "clients", "tasks")
    tables = [directory / f"{name}.csv" for name in names]
    print("", *(table for table in tables if table.exists()), sep="\n", flush=True)
    return int(any(row["status"] == "failed" for row in rows))


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
