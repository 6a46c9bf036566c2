"""What a report is made of: runs and sweeps, found under the given paths.

A run directory has `clients.csv`, a sweep directory `sweep.csv` and the `clients.csv` of its best
runs. Everything else is optional, and read when a figure asks for it.
"""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from launch.report import names
from motley_tff.core import candidates
from motley_tff.core.errors import UserError
from motley_tff.experiment import summaries
from motley_tff.files import csv_files
from motley_tff.metrics import client_values, statistics
from motley_tff.tables import client_tables, columns, comparable, reading
from motley_tff.tables.client_tables import Evaluation

_SWEEP = (
    "run_id", "algorithm", "dataset", "base_random_seed", "status", "metric", "higher_is_better",
    "valid_personalized_mean", "test_personalized_mean", "test_pct_clients_hurt",
)  # fmt: skip
# What figures take of a run's further tables, besides the round.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "acceptance": ("split", "rule", "num_clients", "num_accepted", "personalized_mean",
                   "pct_clients_hurt"),
    "candidates": ("split", "client_id", "candidate", "value"),
    "clusters": ("split", "cluster_id", "group", "num_clients"),
    "rounds": (),
    "sizes": ("split", "personalization_fraction", "personalized_mean", "pct_clients_hurt"),
    "summary": ("run_id", "split"),
    "warm_start": ("model", "seconds", "bytes_down", "bytes_up"),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ReportedRun:
    """One run at the round that is reported.

    Attributes:
      dataset: As in the tables; "(synthetic)" is added where flags say so, and the file and the
        setting of a user's data.
      algorithm: As in the tables; `ensemble` for clusters that were never trained together.
      round: The last one, or, of a run with `--finetune_every`, `--stop_after` or
        `--reported_round=best`, the best on validation clients.
      flags: What `run.json` says, and the digests of its `data_files`; empty without one.
      evaluations: `{split: its clients}` at that round.
      data: What `comparable.of_table` says.
    """

    path: pathlib.Path
    run_id: str
    dataset: str
    algorithm: str
    seed: int
    round: int
    metric: str
    higher_is_better: bool
    flags: Mapping[str, Any]
    evaluations: Mapping[str, Evaluation] = dataclasses.field(repr=False)
    data: Mapping[str, Any] = dataclasses.field(repr=False, default_factory=dict)

    @property
    def rows(self) -> pd.DataFrame:
        """The test clients' rows in `clients.csv`."""
        return self.evaluations["test"].rows

    @property
    def values(self) -> client_values.ClientValues:
        """The test clients, as metrics take them."""
        return self.evaluations["test"].values

    @property
    def is_silo(self) -> bool:
        """Whether the same clients are in both splits."""
        ids = [set(e.values.client_ids) for e in self.evaluations.values()]
        return len(ids) > 1 and ids[0] == ids[1]

    @property
    def has_trained_baseline(self) -> bool:
        """Whether the baseline is a trained model.

        Local training starts from a random one; so did older runs' `--finetune_every`, at round 0.
        """
        is_tuned = "+" in self.algorithm and names.is_fine_tuned(self.algorithm)
        return self.round > 0 or not (self.algorithm == "local" or is_tuned)

    @property
    def selects_round(self) -> bool:
        """Whether validation data chose the round."""
        return _selects_round(self.flags)

    def table(self, name: str) -> pd.DataFrame | None:
        """Returns another of the run's tables, all rounds, or None if there is none or no row."""
        return _read_optional(self.path / f"{name}.csv", ("round", *_COLUMNS[name]))

    def reported(self, name: str, split: str = "test") -> pd.DataFrame | None:
        """Returns a table's rows of the reported round and a split, None if there are none."""
        table = self.table(name)
        if table is None:
            return None
        rows = table[(table["round"] == self.round) & (table["split"] == split)]
        return None if rows.empty else rows


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep's directory and table: `rows` are of the runs that finished, `num_failed` did not."""

    path: pathlib.Path
    dataset: str
    metric: str
    higher_is_better: bool
    rows: pd.DataFrame = dataclasses.field(repr=False)
    num_failed: int

    @property
    def hyperparameters(self) -> list[str]:
        """The columns that the grid has values of: those between the data set and the seed."""
        names = list(self.rows.columns)
        return names[names.index("dataset") + 1 : names.index("base_random_seed")]

    def setting(self, run_id: str) -> dict[str, Any]:
        """Returns a run's hyperparameters."""
        rows = self.rows[self.rows["run_id"] == run_id]
        return {} if rows.empty else dict(rows[self.hyperparameters].iloc[0])


class Inputs(NamedTuple):
    """Everything under the given paths; of `generators` nothing is read: their own tables score
    nets, not pictures. `tables` are other commands', by `_TABLES`. `missing` says of paths without
    any of these what is there instead.
    """

    runs: list[ReportedRun]
    sweeps: list[Sweep]
    generators: list[pathlib.Path]
    tables: dict[str, list[pathlib.Path]]
    missing: list[UserError]


# Other commands' tables: motley_doctor's label shares, FedEval's scores, motley_generative's, and
# runs' scores of examples.
_TABLES = {
    "labels": "heterogeneity_*.csv",
    "scorecards": "scorecard.csv",
    "generated": "generative*.csv",
    "examples": "scores.csv",
}


def find(paths: Sequence[str]) -> Inputs:
    """Reads the runs and sweeps in directories, each once; UserError if none or broken. A path that
    has none is named beside others that have some.
    """
    inputs = Inputs([], [], [], {name: [] for name in _TABLES}, [])
    seen: set[pathlib.Path] = set()

    def take_new(places: Iterable[pathlib.Path]) -> list[pathlib.Path]:
        new = [path for path in places if path.resolve() not in seen]
        seen.update(path.resolve() for path in new)
        return new

    for text in paths:
        path = pathlib.Path(os.path.expanduser(text))
        if not path.is_dir():
            kind = "a file" if path.exists() else "nothing"
            expected = "the directory of a run, a sweep, or several"
            inputs.missing.append(UserError(text, kind, expected))
            continue
        directories = list(client_tables.directories(path))
        tables = {name: sorted(path.rglob(files)) for name, files in _TABLES.items()}
        tables["generated"] = list(filter(_has_scored_sets, tables["generated"]))
        if not directories and not any(tables.values()):
            advice = "give what a trainer or sweep has written"
            inputs.missing.append(UserError(text, "no clients.csv or sweep.csv", advice=advice))
        for directory in take_new(directories):
            _read_directory(directory, inputs)
        for name, of_kind in tables.items():
            inputs.tables[name].extend(take_new(of_kind))
    if inputs.runs or inputs.sweeps or any(inputs.tables.values()):
        return inputs
    if inputs.generators:
        kind = "a run of generative_trainer, whose own tables score nets, not pictures"
        advice = "score these with motley_generative, and give the directory of its output"
        raise UserError(str(inputs.generators[0]), kind, advice=advice)
    if inputs.missing:
        raise inputs.missing[0]
    return inputs


def _has_scored_sets(path: pathlib.Path) -> bool:
    """Whether a header names what every row of a scored set has: that of `--theorem` does not, nor
    did those of older versions. Cells of a wrong separator are refused where the table is read.
    """
    header = ",".join(reading.open_file(path).header)
    return all(name in header for name in ("fid_all", "source"))


def _read_directory(path: pathlib.Path, inputs: Inputs) -> None:
    flags, is_of_generator = _from_record(path)
    if is_of_generator:
        inputs.generators.append(path)
        return
    sweep = _sweep(path, flags) if (path / "sweep.csv").exists() else None
    clients = path / "clients.csv"
    if sweep is not None:
        inputs.sweeps.append(sweep)
    # A sweep in which no setting finished under all seeds has no best runs.
    if not clients.exists() or (sweep is not None and not any(csv_files.read(clients))):
        return
    of_run: dict[str, list[Evaluation]] = {}
    for evaluation in client_tables.evaluations(client_tables.read(clients), clients):
        of_run.setdefault(evaluation.keys["run_id"], []).append(evaluation)
    for run_id, evaluations in of_run.items():
        run_flags = flags if sweep is None else {**flags, **sweep.setting(run_id)}
        below = path / "runs" / run_id
        inputs.runs.append(_run(below if below.is_dir() else path, run_flags, run_id, evaluations))


def _sweep(path: pathlib.Path, flags: Mapping[str, Any]) -> Sweep:
    rows = read(path / "sweep.csv", _SWEEP)
    finished = rows[rows["status"] == "finished"]
    if finished.empty:
        table, lack = str(path / "sweep.csv"), f"no finished run in {len(rows)} rows"
        raise UserError(table, lack, "one or more", "see its column `reason`")
    first = finished.iloc[0]
    dataset, higher = dataset_named(first["dataset"], flags), bool(first["higher_is_better"])
    return Sweep(path, dataset, first["metric"], higher, finished, len(rows) - len(finished))


def dataset_named(name: str, flags: Mapping[str, Any]) -> str:
    """Returns a data set's name, with what tells it apart: a user's file, the setting of what can
    have either, a partition by labels.
    """
    kinds = {"cross_silo": "silos", "cross_device": "devices"}
    setting = kinds.get(flags.get("setting") or "")
    files = (flags.get("data_files") or {}) if setting else {}
    made_up = ["synthetic"] if flags.get("use_synthetic_data") else []
    named = sorted(files) if len(files) == 1 else []
    partition = str(flags.get("partition") or "natural")
    dealt = [] if partition in ("natural", "iid") else [partition]
    if flags.get("evaluation_partition", "same") != "same":
        dealt.append(f"evaluation {flags['evaluation_partition']}")
    more = [*made_up, *named, *([setting] if setting else []), *dealt]
    return f"{name} ({', '.join(more)})" if more else name


def _run(
    path: pathlib.Path, flags: Mapping[str, Any], run_id: str, evaluations: Sequence[Evaluation]
) -> ReportedRun:
    flags = _from_record(path)[0] or flags
    selects = _selects_round(flags)
    number = _tuned_round(path) if selects else None
    number = _reported_round(evaluations, selects) if number is None else number
    by_split = {e.keys["split"]: e for e in evaluations if e.keys["round"] == number}
    if "test" not in by_split or not by_split["test"].is_personalized:
        lack = f"no test clients with personalized models in round {number} of run {run_id!r}"
        expected = "the table of a run that came to its end"
        raise UserError(str(path / "clients.csv"), lack, expected)
    keys, algorithm = by_split["test"].keys, by_split["test"].keys.get("algorithm") or run_id
    if algorithm == "hypcluster" and number == 0:
        algorithm = names.ENSEMBLE
    return ReportedRun(
        path=path,
        run_id=run_id,
        dataset=dataset_named(keys.get("dataset") or "unnamed data", flags),
        algorithm=algorithm,
        seed=int(keys.get("base_random_seed") or 0),
        round=number,
        metric=by_split["test"].metric,
        higher_is_better=by_split["test"].values.higher_is_better,
        flags=flags,
        evaluations=by_split,
        data=by_split["test"].data,
    )


def _selects_round(flags: Mapping[str, Any]) -> bool:
    names = "finetune_every", "stop_after", "loop.stop_after"
    return flags.get("reported_round") == "best" or any(flags.get(name) for name in names)


def _tuned_round(path: pathlib.Path) -> int | None:
    """Returns the best round of a run that chooses by another metric than the reported one; None of
    other runs, and of a folder that has no summary or record, as that of a sweep.
    """
    if not (path / "summary.csv").exists() or not (path / "run.json").exists():
        return None
    record = json.loads((path / "run.json").read_text(encoding="utf-8"))
    if "tuning_metric" not in record:
        return None
    rows = list(csv_files.read(path / "summary.csv"))
    return int(candidates.best_round(rows, *summaries.chosen_by(record)))


def _reported_round(evaluations: Sequence[Evaluation], selects: bool) -> int:
    """Returns the last round, or the one that is best on validation clients."""
    if not selects:
        return max(e.keys["round"] for e in evaluations)
    rows = [
        {
            **e.keys,
            "personalized_mean": csv_files.cell(statistics.mean(e.values, "personalized")),
            "num_diverged": str(np.sum(e.values.has_diverged("personalized"))),
        }
        for e in sorted(evaluations, key=lambda e: e.keys["round"])
    ]
    return int(candidates.best_round(rows, evaluations[0].values.higher_is_better))


def _from_record(path: pathlib.Path) -> tuple[dict[str, Any], bool]:
    """Returns the flags that `run.json` names, of a sweep those that all its runs share, none
    without one; and whether it is of a generator.
    """
    record = path / "run.json"
    try:
        content = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
        if "plan" in content:
            is_generator = content["plan"]["grid"].get("trainer") == "generative_trainer"
        else:
            is_generator = "generator" in content.get("flags", {})
        return ({} if is_generator else _flags_of(content)), is_generator
    except (OSError, ValueError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise UserError(str(record), error, "what a run wrote", "move it away") from error


def _flags_of(content: Mapping[str, Any]) -> dict[str, Any]:
    if not content:
        return {}
    if "plan" not in content:
        data = content.get("data_files")
        # The first version was not written down; numbers of two do not belong together.
        version = {"results_version": content.get("results_version", 1)}
        return {**comparable.flags_of(content), **version, **({"data_files": data} if data else {})}
    plan = content["plan"]
    differ = {flag for setting in plan["grid"].get("settings", ()) for flag, _ in setting}
    fixed = {flag: v for flag, v in plan["grid"]["fixed"] if flag not in differ}
    file = content.get("data_file")
    return {
        **fixed,
        "use_synthetic_data": plan["use_synthetic_data"],
        **({"setting": setting} if (setting := content.get("setting")) else {}),
        **({"data_files": {os.path.basename(file): ""}} if file else {}),
    }


@functools.lru_cache(maxsize=256)
def _read_optional(path: pathlib.Path, required: Sequence[str]) -> pd.DataFrame | None:
    table = read(path, required) if path.exists() else None
    return None if table is None or table.empty else table


def read(path: pathlib.Path, required: Sequence[str], table_name: str = "") -> pd.DataFrame:
    """Returns one of this program's tables: numbers, nan where a cell is empty, or text.

    `table_name` is that of `columns.TABLES`; without it the file has the name that it was written
    with. If it cannot be read, lacks a column, or a cell is not what it should be, that is a
    UserError.
    """
    file = reading.open_file(path)
    reading.require(file, required)
    table = reading.read(file, table_name or columns.table_of(path.stem), guess=True)
    keys = ["round", "split", "client_id", "candidate"]
    if set(keys) <= set(required) and table.duplicated(keys).any():
        raise UserError(str(path), "two rows of a client and candidate", "one")
    return table


def mean_of_all(summary: pd.DataFrame, model: str) -> np.ndarray:
    """Returns a model's means of rows of `summary.csv`, [rows]; not-a-number where it diverged for
    some client, as means that stand beside each other are over the same clients.
    """
    means = summary[f"{model}_mean"].to_numpy(float)
    counts = "num_diverged" if model == "personalized" else f"{model}_num_diverged"
    if counts not in summary:  # Of an earlier version, which had no mean then.
        return means
    return np.where(summary[counts].to_numpy(float) > 0, np.nan, means)
