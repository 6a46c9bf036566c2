"""What a run's `summary.csv` says of its last evaluation, or of its best."""

from collections.abc import Mapping
from typing import Any

from motley_tff.core import candidates
from motley_tff.core.errors import UserError
from motley_tff.experiment.run_directory import RunDirectory
from motley_tff.files import csv_files
from motley_tff.tables import columns


def last(directory: RunDirectory) -> list[dict[str, str]]:
    """Returns the rows of the last evaluation in `summary.csv`, as text."""
    rows = _summary_rows(directory)
    return [row for row in rows if row["round"] == rows[-1]["round"]]


def selected(directory: RunDirectory) -> list[dict[str, str]]:
    """Returns the rows of the evaluation best on validation clients, of equals the first."""
    rows = _summary_rows(directory)
    best = candidates.best_round(rows, *chosen_by(directory.record))
    return [row for row in rows if row["round"] == best]


def chosen_by(record: Mapping[str, Any]) -> tuple[bool, str | None]:
    """Returns (whether higher is better, the metric) of what chooses rounds, by a run's record; no
    metric for the reported one.
    """
    metric = record.get("tuning_metric")
    return record["higher_is_better" if metric is None else "tuning_higher_is_better"], metric


def rounds(directory: RunDirectory) -> list[str]:
    """Returns the rounds that were evaluated, as text."""
    return list(dict.fromkeys(row["round"] for row in _summary_rows(directory)))


def test_clients(directory: RunDirectory, round_number: str) -> list[dict[str, str]]:
    """Returns the test clients' rows of one evaluation in `clients.csv`, as text."""
    rows = csv_files.read(directory.table("clients"))
    return [row for row in rows if row["round"] == round_number and row["split"] == "test"]


def _summary_rows(directory: RunDirectory) -> list[dict[str, str]]:
    path = directory.table("summary")
    rows = list(csv_files.read(path))
    expected = (*columns.RUN, "personalized_mean")
    if not rows or not set(expected) <= set(rows[0]):
        raise UserError(str(path), "another table", f"rows of {', '.join(expected)}")
    return rows
