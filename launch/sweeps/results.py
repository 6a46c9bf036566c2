"""What a sweep leaves: `sweep.csv`, `best.csv`, `clients.csv`, `tasks.csv`.

All of it is a function of the grid and of `tasks/*.json`, so a sweep that was cut and resumed, or
run by another scheduler, writes the same bytes; seconds, memory and hosts are in `tasks.csv` alone.
"""

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from launch.sweeps import grids
from launch.sweeps.plans import Plan, SweepRun, SweepTask
from motley_tff.core import candidates, errors
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files
from motley_tff.tables import columns as columns_lib

SPLITS = ("valid", "test")
_NUMBERS = tuple(f"{split}_{name}" for split in SPLITS for name in columns_lib.STATISTICS)
_OF_RUN = ("round", "candidate", "metric", "higher_is_better", "num_clients")
# Of runs that choose by another metric than the reported one.
_MODELS_TUNING = tuple(f"{model}_tuning_mean" for model in columns_lib.MODELS)
_TUNING_NUMBERS = tuple(f"{split}_{name}" for split in SPLITS for name in _MODELS_TUNING)
_TUNING = ("tuning_metric", "tuning_higher_is_better", *_TUNING_NUMBERS)
_TASK_COLUMNS = (
    "task", "runs", "status", "reason", "seconds", "cpu_seconds", "peak_memory_mb", "host",
)  # fmt: skip
_BEST_COLUMNS = (
    "algorithm", "dataset", "metric", "statistic", "mean", "std_over_seeds", "paper_mean",
    "paper_std_over_seeds", "num_seeds", "chosen_by", "paper_source",
)  # fmt: skip
# Settings this near to the best one of a group may be the sweep's best.
NEAR = 1e-6
DIVERGED = "diverged: a loss or a client's score is not finite; lower the rates"


def of_run(
    run: SweepRun,
    rows: Sequence[Mapping[str, str]],
    metric: str,
    higher_is_better: bool,
    tuning: tuple[bool, str | None] | None = None,
) -> dict[str, Any]:
    """Returns what `tasks/*.json` keeps of a run: of the rows of one round of `summary.csv`.

    Args:
      tuning: Of a run that chooses by another metric whether higher is better, and its name.
    """
    by_split = {row["split"]: row for row in rows}
    statistics = {
        f"{split}_{name}": by_split[split].get(name, "")
        for split in SPLITS for name in columns_lib.STATISTICS
    }  # fmt: skip
    models = ("baseline", "personalized")
    counts = ("num_diverged", "baseline_num_diverged")
    has_diverged = any(int(row.get(n) or 0) for row in by_split.values() for n in counts)
    means = (statistics[f"{split}_{model}_mean"] for split in SPLITS for model in models)
    if has_diverged or "" in means:
        return failed_run(run, DIVERGED)
    test = by_split["test"]
    about = {name: test[name] for name in ("round", "candidate", "num_clients")}
    about |= {"metric": metric, "higher_is_better": str(int(higher_is_better))}
    if tuning is not None:
        higher, name = tuning
        about |= {"tuning_metric": str(name), "tuning_higher_is_better": str(int(higher))}
        statistics |= {
            f"{split}_{model}_tuning_mean": by_split[split][f"{model}_{name}_mean"]
            for split in SPLITS for model in models
        }  # fmt: skip
    return {"run_id": run.run_id, "status": "finished", "reason": "", **about, **statistics}


def failed_run(run: SweepRun, reason: str) -> dict[str, Any]:
    """Returns what `tasks/*.json` keeps of a run that failed."""
    return {"run_id": run.run_id, "status": "failed", "reason": reason}


def path_of(directory: pathlib.Path, task: SweepTask) -> pathlib.Path:
    """Returns the path of a task's results."""
    return directory / "tasks" / f"{task.name}.json"


def begun_path(directory: pathlib.Path, task: SweepTask) -> pathlib.Path:
    """Returns the path of what is there once a task's training begins."""
    if task.group is None:
        return directory / "runs" / task.runs[0].run_id / "run.json"
    return directory / "scratch" / f"{task.name}.begun"


def clients_path(directory: pathlib.Path, task: SweepTask, run: SweepRun) -> pathlib.Path:
    """Returns the table that has a run's clients; of a group only near its best setting."""
    if task.group is None:
        return directory / "runs" / run.run_id / "clients.csv"
    return directory / "tasks" / f"{task.name}.clients.csv"


def save(path: pathlib.Path, content: Mapping[str, Any]) -> None:
    """Writes a task's results, whole or not at all."""
    with csv_files.replacing(path) as file:
        json.dump(content, file, indent=1, sort_keys=True, allow_nan=False)
        file.write("\n")


def load(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns a task's results, None if there are none yet; UserError if the file was changed."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        _check(content)
    except FileNotFoundError:
        return None
    except (OSError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        kind, expected = f"a file that cannot be read ({error})", "what motley_sweep writes"
        raise UserError(str(path), kind, expected, "remove it to run its task again") from error
    return content


def _check(content: Any) -> None:
    """Raises ValueError, or what Python itself does, unless it is of the form that `save` gets."""
    if not isinstance(content["status"], str) or not isinstance(content["runs"], list):
        raise ValueError("expected a status and a list of runs")
    if any(isinstance(content.get(name), (dict, list)) for name in _TASK_COLUMNS[2:]):
        raise ValueError(f"expected numbers or text for {', '.join(_TASK_COLUMNS[2:])}")
    float(content.get("seconds", 0.0))
    for row in content["runs"]:
        always = {"run_id", "status", "reason"}
        needed = {*always, *_OF_RUN, *_NUMBERS} if row["status"] == "finished" else always
        if row["status"] == "finished" and "tuning_metric" in row:
            needed |= {*_TUNING}
        if not needed <= row.keys() <= {*always, *_OF_RUN, *_NUMBERS, *_TUNING}:
            raise ValueError(f"a run has {', '.join(row)}, expected {', '.join(sorted(needed))}")
        if not all(isinstance(cell, str) for cell in row.values()):
            raise ValueError("expected text in runs")
        for name in needed.intersection((*_NUMBERS, *_TUNING_NUMBERS)):
            float(row[name] or "nan")


def is_finished(directory: pathlib.Path, task: SweepTask) -> bool:
    """Returns whether a task need not be run (again)."""
    content = load(path_of(directory, task))
    return content is not None and content["status"] == "finished"


def write(directory: pathlib.Path, plan: Plan) -> list[dict[str, Any]]:
    """Writes the tables and returns the rows of `sweep.csv`, in its order."""
    contents = {task.number: load(path_of(directory, task)) or {} for task in plan.tasks}
    check_data_files(directory, contents.values())
    rows = _sweep_rows(plan, contents)
    point = best_point(plan, rows)
    numbers, tried = (*_OF_RUN, *_NUMBERS), tuple(plan.grid.tried)
    if any("tuning_metric" in row for row in rows):
        numbers = (*numbers, *_TUNING)
    about = ("run_id", "algorithm", "dataset", *tried, "base_random_seed", "status", "reason")
    tasks = []
    for task in plan.tasks:
        kept = {name: contents[task.number].get(name) for name in _TASK_COLUMNS}
        tasks.append(kept | {"task": task.name, "runs": len(task.runs)})
    for name, names, table in (
        ("sweep", (*about, *numbers), rows),
        ("tasks", _TASK_COLUMNS, tasks),
        ("best", (*_BEST_COLUMNS, *tried), best_rows(plan, rows, point)),
    ):
        # A grid's words and a program's last ones may begin like a formula.
        safe = map(csv_files.formula_safe, table)
        # A run that failed has no numbers; settings need not have the same flags.
        csv_files.write(directory / f"{name}.csv", list(dict.fromkeys(names)), safe,
                        (*numbers, *tried))  # fmt: skip
    _write_clients(directory, plan, point)
    return rows


def check_data_files(directory: pathlib.Path, contents: Iterable[Mapping[str, Any]]) -> None:
    """Raises a UserError if tasks' results are of different data files."""
    files = {json.dumps(c["data_files"], sort_keys=True) for c in contents if c.get("data_files")}
    if len(files) > 1:
        names = [errors.name(name) for name in ("data_dir", "root_output_dir")]
        digests = f"runs on different data files: {' and '.join(sorted(files))}"
        advice = f"give the same {names[0]} every time, and begin anew in another {names[1]}"
        raise UserError(str(directory), digests, "the same data files in all runs", advice)


def _sweep_rows(plan: Plan, contents: Mapping[int, Mapping[str, Any]]) -> list[dict]:
    rows: dict[SweepRun, dict[str, Any]] = {}
    names = {"algorithm": plan.grid.algorithm, "dataset": plan.grid.dataset}
    for task in plan.tasks:
        by_id = {row["run_id"]: row for row in contents[task.number].get("runs", ())}
        for run in task.runs:
            row = by_id.get(run.run_id) or failed_run(run, "did not run")
            about = {**names, **plan.grid.described(run.point), "base_random_seed": run.seed}
            rows[run] = {**row, **about}
    return [rows[run] for run in sorted(rows)]


def best_point(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Returns the point of best validation mean over clients, then seeds; None if there is none,
    or the grid chooses by nothing, which is no column.

    A point with a failed run does not count. Ties go to the first, as among candidates.
    """
    values = validation_means(plan.grid, rows).reshape(-1, plan.num_seeds)
    higher = [
        row.get("tuning_higher_is_better", row["higher_is_better"])
        for row in rows if row["status"] == "finished"
    ]  # fmt: skip
    if not np.isfinite(values).all(axis=1).any():
        return None
    return int(candidates.choose(values.T, higher[0] == "1"))


def validation_means(grid: grids.Grid, rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Returns each run's validation mean that chooses settings, of the metric that also chooses
    inside of runs; nan if it failed.

    A baseline is that of the reported round: where a best one is, the trained model that
    fine-tuning did best from.
    """
    column = f"valid_{grid.choose_by}_mean"
    tuned = f"valid_{grid.choose_by}_tuning_mean"
    names = (tuned if "tuning_metric" in row else column for row in rows)
    return np.array([float(row.get(n) or "nan") for row, n in zip(rows, names, strict=True)])


def best_rows(
    plan: Plan, rows: Sequence[Mapping[str, Any]], point: int | None
) -> list[dict[str, Any]]:
    """Returns a row for each statistic of the chosen setting on test clients, as Tables 6 and 7."""
    if point is None:
        return []
    runs = rows[point * plan.num_seeds :][: plan.num_seeds]
    paper = {} if plan.use_synthetic_data else plan.grid.paper
    best = []
    for name in columns_lib.STATISTICS:
        values = [run[f"test_{name}"] for run in runs]
        if "" in values:
            continue
        numbers = np.array(values, np.float64)
        published = [*paper.get(name, ()), None, None]
        cells = (
            plan.grid.algorithm, plan.grid.dataset, runs[0]["metric"], name, numbers.mean(),
            numbers.std(), *published[:2], plan.num_seeds, plan.grid.choose_by, paper.get("source"),
        )  # fmt: skip
        row = dict(zip(_BEST_COLUMNS, cells, strict=True))
        best.append(row | plan.grid.described(point))
    return best


def _write_clients(directory: pathlib.Path, plan: Plan, point: int | None) -> None:
    """Writes the clients of the chosen setting's runs, or takes an older table away."""
    path = directory / "clients.csv"
    if point is None:
        path.unlink(missing_ok=True)
        return
    clients = clients_of(directory, plan, point)
    columns = list(clients[0]) if clients else list(columns_lib.names("clients"))
    csv_files.write(path, columns, clients)


def clients_of(directory: pathlib.Path, plan: Plan, point: int) -> list[dict[str, str]]:
    """Returns the clients of a setting's runs at the reported round: the chosen one's, or that of
    the best baseline.
    """
    clients: list[dict[str, str]] = []
    chosen = [(task, run) for task in plan.tasks for run in task.runs if run.point == point]
    for task, run in chosen:
        content = load(path_of(directory, task)) or {}
        (row,) = (row for row in content["runs"] if row["run_id"] == run.run_id)
        table = clients_path(directory, task, run)
        for client in csv_files.read(table):
            if not {"run_id", "round", "split"} <= client.keys():
                lack, advice = "no run_id, round or split", "remove it to run its task again"
                raise UserError(str(table), lack, advice=advice)
            key = (client["run_id"], client["round"])
            if key == (run.run_id, row["round"]) and client["split"] in SPLITS:
                clients.append(client)
    return clients
