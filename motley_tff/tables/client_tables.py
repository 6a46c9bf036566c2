"""Reads tables of a row per client: `clients.csv`, LEAF's `metrics_stat.csv`, any CSV.

    for path in client_tables.find(["results"]):
        for evaluation in client_tables.evaluations(client_tables.read(path)):
            evaluation.keys, evaluation.metric, evaluation.values, evaluation.rows

Whatever is wrong with a file is one line that names the file, the line (the header is line 1, as in
a spreadsheet) and the column.
"""

import dataclasses
import functools
import glob
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files
from motley_tff.metrics import client_values, hurt
from motley_tff.tables import columns as columns_lib, comparable, reading

if TYPE_CHECKING:
    import pandas as pd

# How LEAF (Caldas et al. 2018, `models/metrics/writer.py`) names what we have; older versions leave
# `set` out. It scores one model, the server's.
LEAF = {
    "client_id": "client_id",
    "round": "round_number",
    "split": "set",
    "num_evaluation_examples": "num_samples",
    "baseline": "accuracy",
    "baseline_loss": "loss",
}
# Short names that a mapping may use besides the columns' full names.
SHORT_NAMES = {
    "client": "client_id",
    "run": "run_id",
    "examples": "num_evaluation_examples",
    "cluster": "cluster_id",
    "seed": "base_random_seed",
}
MAPPABLE = (
    "client_id", "baseline", "personalized", "run_id", "round", "split", "base_random_seed",
    "num_evaluation_examples", "cluster_id", "group",
)  # fmt: skip

_REQUIRED = (
    "client_id", "round", "split", "metric", "higher_is_better", "baseline", "personalized",
)  # fmt: skip
# Accuracies are in percent where their median is above this, or the metric's name says so.
_LARGEST_SHARE = 2.0
# What a client's difference rests on.
_EVIDENCE = ("delta_se", "num_gained", "num_lost")
_TABLE = "a CSV file or a run's directory"
_IF_PERCENT = (
    "if all are in percent, call the metric 'accuracy (percent)', of a foreign file by "
    f"{errors.name('metric')}"
)
_COLUMNS = errors.name("columns")
_MAP = f"name the columns of a foreign file with {_COLUMNS}"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """One (run, round, split) of a table.

    Attributes:
      keys: What it has of the run's keys (`columns.RUN`): `run_id`, `round` and so on.
      values: What metrics are functions of; without personalized models `personalized` has the
        baseline's values.
      is_personalized: Whether there are any.
      data: What `comparable.of_table` says of the table.
      scores_path: The run's `scores.csv`, if it exported any.
    """

    keys: Mapping[str, Any]
    metric: str
    values: client_values.ClientValues
    is_personalized: bool
    rows: "pd.DataFrame"
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scores_path: pathlib.Path | None = None


def find(paths: Iterable[str | os.PathLike[str]], name: str = "clients.csv") -> list[pathlib.Path]:
    """Returns the tables that paths stand for, each once; a UserError where there is none.

    Paths are CSV files, directories of runs (with a table of that name) or somewhere above these,
    and patterns such as `results/ft*`. Of a sweep it is the sweep's own table, not its runs', too.
    """
    unique: dict[pathlib.Path, pathlib.Path] = {}
    for path in paths:
        for table in _tables(os.path.expanduser(path), name):
            unique.setdefault(table.resolve(), table)
    return list(unique.values())


def _tables(path: str, name: str) -> list[pathlib.Path]:
    matches = [path] if os.path.exists(path) else sorted(glob.glob(path))
    if not matches:
        raise UserError(path, "nothing", _TABLE)
    tables = [table for match in map(pathlib.Path, matches) for table in _below(match, name)]
    if not tables:
        raise UserError(path, f"no {name}", _TABLE)
    return tables


def _below(path: pathlib.Path, name: str) -> list[pathlib.Path]:
    if not path.is_dir():
        return [path]
    if (path / name).exists():
        return [path / name]
    tables = [folder / name for folder in directories(path) if (folder / name).exists()]
    # A sweep that has not ended has no table of its own.
    return tables or sorted(path.rglob(name))


def directories(
    path: pathlib.Path, visited: set[pathlib.Path] | None = None
) -> Iterator[pathlib.Path]:
    """Yields directories with tables, a sweep's single runs not, whatever links lead there; each
    once, and none of those `visited` already.
    """
    visited = set() if visited is None else visited
    if path.resolve() in visited:
        return
    visited.add(path.resolve())
    if (path / "sweep.csv").exists() or (path / "clients.csv").exists():
        yield path
        return
    try:
        children = sorted(path.iterdir())
    except PermissionError:  # As Path.rglob does.
        return
    for child in children:
        if child.is_dir() and not child.name.startswith("."):
            yield from directories(child, visited)


def read(
    path: str | os.PathLike[str],
    columns: Mapping[str, str] | None = None,
    metric: str | None = None,
    higher_is_better: bool | None = None,
) -> "pd.DataFrame":
    """Reads a CSV file with a row per client and checks it.

    Args:
      columns: Of a foreign file, our name (see `MAPPABLE`, `SHORT_NAMES`) to its: `client` and
        `baseline` at least. Files of ours and LEAF's, told by their columns, do without.
      metric: What a foreign file's values are; by default `accuracy` where a column says so.
        Accuracies in percent, as their values say, are called `accuracy (percent)`; where they are
        so low that values do not, give that name.
      higher_is_better: Of a foreign file whose values are no accuracies.

    Returns:
      A row per (round, split, client) under our names. Numbers are float64 (`round` int64), the
      rest is text, "" where there is none. `run_id`, `metric` and `higher_is_better` (bool) are
      always there, `round`, `split`, `num_evaluation_examples`, `personalized` if the file knows.
      An empty value is of a model that diverged or a client without a score, see `client_values`.

    Raises:
      UserError: If the file is empty or no CSV, columns are missing, a cell is not what it should
        be, a client has two rows, or metrics are mixed.
    """
    file = reading.open_file(path)
    is_foreign = False
    if {"client_id", "round_number", "num_samples", "accuracy"} <= set(file.header):
        table = _leaf(file)
    elif columns is None or set(_REQUIRED) <= set(file.header):
        table = _run_table(file)
    else:
        table, is_foreign = _foreign(file, columns, metric, higher_is_better), True
    with errors.at(file.path):
        reading.refuse_no_rows(table)
        _check(table)
    if "run_id" not in table:
        is_of_no_run = place(file.path) == file.path
        name = file.path.stem if is_of_no_run else file.path.absolute().parent.name
        table = table.assign(run_id=name)
    called = table["metric"].iloc[0]
    is_unsaid = is_foreign and "accuracy" in called and not _is_called_percent(called)
    if is_unsaid and is_percent(table):
        table = table.assign(metric=f"{called} (percent)")
    return table.astype({"round": np.int64}) if "round" in table else table


def is_scores(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file has the columns of `scores.csv`."""
    return {"label", "baseline_score"} <= set(reading.open_file(path).header)


def read_scores(path: str | os.PathLike[str]) -> "pd.DataFrame":
    """Reads a `scores.csv`: a row per example and class, label 1 for the class's, "" as the class
    of files that have two.
    """
    file = reading.open_file(path)
    names = [name for name in columns_lib.names("scores") if name != "class"]
    reading.require(file, names)
    of_classes = ["class"] if "class" in file.header else []
    table = reading.read(file, "scores", {name: name for name in [*names, *of_classes]})
    with errors.at(file.path):
        reading.refuse_no_rows(table)
    classes = table["class"].map(csv_files.formula_undone) if of_classes else ""
    return table.assign(**{"class": classes})


def _run_table(file: reading.CsvFile) -> "pd.DataFrame":
    reading.require(file, _REQUIRED, _MAP)
    table = reading.read(file, "clients")
    with np.errstate(over="ignore"):
        for name in table.columns:
            column = columns_lib.find("clients", name)
            if column and column.kind == "float32":
                # Nine digits name a float32: here it is again, to the bit.
                table[name] = table[name].astype(np.float32).astype(np.float64)
    table["higher_is_better"] = table["higher_is_better"] == 1
    return table


def _leaf(file: reading.CsvFile) -> "pd.DataFrame":
    names = {column: name for column, name in LEAF.items() if name in file.header}
    # It writes a row for every client, with empty cells for those that it did not score.
    table = reading.read(file, "clients", names, with_cell="baseline")
    return table.assign(metric="accuracy", higher_is_better=True)


def place(path: pathlib.Path) -> pathlib.Path:
    """Returns what a table is known by: its run's directory, or the file if it is of no run."""
    return path.parent if path.name in ("clients.csv", "metrics_stat.csv") else path


def _foreign(
    file: reading.CsvFile,
    columns: Mapping[str, str],
    metric: str | None,
    higher_is_better: bool | None,
) -> "pd.DataFrame":
    names = _mapping(columns)
    reading.require(file, names.values(), _MAP)
    values = [names[n].lower() for n in ("baseline", "personalized") if n in names]
    metric = metric or ("accuracy" if any("accuracy" in name for name in values) else "value")
    if higher_is_better is None:
        if "accuracy" not in metric:
            higher = errors.name("higher_is_better")
            unknown = f"the metric {metric!r}, of which nothing says whether higher is better"
            advice = f"give {higher}=True or {higher}=False"
            raise UserError(str(file.path), unknown, advice=advice)
        higher_is_better = True
    table = reading.read(file, "clients", names)
    return table.assign(metric=metric, higher_is_better=higher_is_better)


def _is_called_percent(metric: str) -> bool:
    return "percent" in metric or "%" in metric


def is_percent(table: "pd.DataFrame") -> bool:
    """Returns whether accuracies are in percent, by their metric's name or their values."""
    if _is_called_percent(table["metric"].iloc[0]):
        return True
    values = table[_present(table, ("baseline", "personalized"))].to_numpy(np.float64)
    return bool(np.isfinite(values).any() and np.nanmedian(values) > _LARGEST_SHARE)


def _mapping(columns: Mapping[str, str]) -> dict[str, str]:
    names = {SHORT_NAMES.get(name, name): header for name, header in columns.items()}
    unknown = [name for name in names if name not in MAPPABLE]
    if unknown or not {"client_id", "baseline"} <= names.keys():
        pairs = [f"{name}={header}" for name, header in columns.items()]
        expected = f"client=..., baseline=... and any of {', '.join(MAPPABLE[2:])}"
        raise UserError(_COLUMNS, pairs, expected)
    return names


def _present(table: "pd.DataFrame", names: Iterable[str]) -> list[str]:
    return [name for name in names if name in table]


def _check(table: "pd.DataFrame") -> None:
    for name in ("metric", "higher_is_better"):
        values = table[name].unique()
        if len(values) > 1:
            raise UserError(f"column {name!r}", ", ".join(map(str, values)), "one throughout")
    reading.refuse(table, "client_id", table["client_id"] == "", "a client's id")
    metric = table["metric"].iloc[0]
    if "accuracy" in metric:
        most, is_called = 100 if is_percent(table) else 1, _is_called_percent(metric)
        expected = f"an accuracy within [0, {most}]{' in percent' if most == 100 else ''}"
        expected += ", as most are" if most == 100 and not is_called else ""
        for name in _present(table, ("baseline", "personalized")):
            outside = (table[name] < 0) | (table[name] > most)
            if most == 100 and not is_called and 0 < table[name].max() <= 1:
                outside = table[name] > 0  # Shares, beside percent in the other column.
            reading.refuse(table, name, outside, expected, "" if is_called else _IF_PERCENT)
    keys = _present(table, (*columns_lib.RUN, "client_id"))
    for i in np.flatnonzero(table.duplicated(keys)):
        values = {name: table[name].iloc[i] for name in keys if name != "client_id"}
        where = ", ".join(f"{k} {v:g}" if k == "round" else f"{k} {v}" for k, v in values.items())
        row = f"a second row of client {table['client_id'].iloc[i]!r} ({where})"
        raise UserError(f"line {table.index[i] + 2}", row, "one")


def choose(
    table: "pd.DataFrame", which: int | Literal["last", "all"], splits: Sequence[str] | None
) -> "pd.DataFrame":
    """Returns the rows of a round, of each run's last or of all, and of some splits or all (None).

    A table without rounds has one.
    """
    if which != "all" and "round" in table:
        last = table.groupby("run_id")["round"].transform("max")
        table = table[table["round"] == (last if which == "last" else which)]
    if splits is not None and "split" in table:
        table = table[table["split"].isin(splits)]
    return table


def evaluations(table: "pd.DataFrame", path: pathlib.Path | None = None) -> list[Evaluation]:
    """Returns a table's evaluations, in the order of the file; of a table that was read from a
    path with what is known of its data.
    """
    keys = _present(table, columns_lib.RUN)
    groups = table.groupby(keys, sort=False, dropna=False)
    named = ((dict(zip(keys, key, strict=True)), rows) for key, rows in groups)
    scores = path.with_name("scores.csv") if path and path.name == "clients.csv" else None
    scores = scores if scores and scores.is_file() else None
    data_of = functools.cache(functools.partial(comparable.of_table, path))
    return [
        Evaluation(
            keys=key,
            metric=str(rows["metric"].iloc[0]),
            values=_values(rows),
            is_personalized="personalized" in rows,
            rows=rows,
            data={} if path is None else data_of(key["run_id"], key.get("base_random_seed")),
            scores_path=scores,
        )
        for key, rows in named
    ]


def _evidence(rows: "pd.DataFrame") -> dict[str, Any]:
    """Returns the columns of what differences rest on, none where all of their cells are empty."""
    names = _present(rows, _EVIDENCE)
    columns = {name: rows[name].to_numpy(np.float64) for name in names}
    return columns if any(np.isfinite(column).any() for column in columns.values()) else {}


def _values(rows: "pd.DataFrame") -> client_values.ClientValues:
    """Returns both models' values: the one's twice where there is no other. Of a client with a cell
    `is_hurt`, two empty cells are of models that diverged.
    """
    has_groups = "group" in rows and (rows["group"] != "").all()
    has_clusters = "cluster_id" in rows and rows["cluster_id"].notna().all()
    sizes = rows.get("num_evaluation_examples")
    higher = bool(rows["higher_is_better"].iloc[0])
    cells = rows[_present(rows, ("baseline", "personalized"))].to_numpy(np.float64)
    if "is_hurt" in rows:
        has_diverged = np.isnan(cells).all(axis=1) & rows["is_hurt"].notna().to_numpy()
        cells = np.where(has_diverged[:, None], -np.inf if higher else np.inf, cells)
    values = client_values.ClientValues(
        client_ids=rows["client_id"].to_numpy(),
        baseline=cells[:, 0],
        personalized=cells[:, -1],
        higher_is_better=higher,
        num_evaluation_examples=None if sizes is None else sizes.to_numpy(np.int64),
        clusters=rows["cluster_id"].to_numpy(np.int64) if has_clusters else None,
        groups=rows["group"].to_numpy() if has_groups else None,
        **_evidence(rows),
    )
    if "split" not in rows or rows["split"].iloc[0] != "test":  # The others chose the candidate.
        return values
    return hurt.with_margin(values)
