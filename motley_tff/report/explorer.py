"""The explorer in `report.html`: every test client of every run, to be looked into.

Its data stand in the page as JSON, numbers in them as base64 of little-endian bytes. A metric's
values have 16 bits, 65,534 steps over what a candidate's values range over, so that one that
diverges leaves the others as they are; whether a client is hurt, means and shares of the hurt are
exact. What would make the page too large is left out and named.
"""

import base64
import collections
import dataclasses
import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from motley_tff.metrics import hurt as hurt_lib, statistics
from motley_tff.report import page
from motley_tff.report.comparisons import Comparison
from motley_tff.report.runs import Run

_EMPTY = 65_535
# In the page, all runs together: it stays below 30 MB, of which figures take a few.
_MOST_BYTES = 20_000_000
_MOST_NAMED = 20
_SCRIPT = pathlib.Path(__file__).with_name("explorer.js")
_NOW = "personalized"
_NOTE = (
    "A point is a test client. Drag over points to select them, or use the boxes; the table lists "
    "those who lose most first. Values are rounded to 65,534 steps over a candidate's range, gains "
    "below that are 0; who is hurt, and means and shares over all clients, are exact."
)


class _Values(NamedTuple):
    """A run's test clients: `values` [num_candidates, num_clients], the first row the baseline."""

    candidates: list[str]
    values: np.ndarray


def section(compared: Iterable[Comparison]) -> page.Section | None:
    """Returns the part of the page; None without runs."""
    runs = _named(
        (series.label, run)
        for comparison in compared
        for series in comparison.series
        for run in series.runs
    )
    if not runs:
        return None
    shown: list[dict[str, Any]] = []
    room = _MOST_BYTES
    left_out = []
    for name, run in runs:
        encoded = _encoded(name, run, _values(run))
        size = len(page.data_text(encoded).encode())
        if size > room:
            left_out.append(name)
        else:
            room -= size
            shown.append(encoded)
    notes = [_NOTE] if shown else []
    if left_out:
        notes.append(_left_out(left_out))
    body = "\n".join(map(page.paragraph, notes))
    app = page.App({"runs": shown}, _SCRIPT.read_text(encoding="utf-8")) if shown else None
    return page.Section("explorer", "Explorer", body, app=app)


def _left_out(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    rest = f"; and {more} more" if more > 0 else ""
    return f"Too many clients for one page, left out: {'; '.join(names[:_MOST_NAMED])}{rest}."


def _named(runs: Iterable[tuple[str, Run]]) -> list[tuple[str, Run]]:
    """Returns runs with names that tell them apart: with their directories where they must be."""
    named = [(f"{label}, {run.dataset}, {run.run_id}", run) for label, run in runs]
    counts = collections.Counter(name for name, _ in named)
    return [(name if counts[name] == 1 else f"{name}, {run.path}", run) for name, run in named]


def _values(run: Run) -> _Values:
    """Returns every candidate's value for every client, and the chosen one's, which comes last."""
    ids = run.values.client_ids
    table = run.reported("candidates")
    baseline = run.values.baseline
    columns = {"baseline": np.where(np.isfinite(baseline), baseline, np.nan)}
    if table is not None:
        wide = table.assign(candidate=table["candidate"].astype(str)).pivot_table(
            index="client_id", columns="candidate", values="value", sort=False, dropna=False
        )
        wide = wide.reindex(ids)
        # Nine digits name a float32; read as one, what is equal is equal.
        found = {name: wide[name].to_numpy(np.float32).astype(float) for name in wide.columns}
        columns |= {
            f"candidate {name}": values
            for place, (name, values) in enumerate(found.items())
            # Candidate 0, the first one, mostly is the baseline itself.
            if place or not np.array_equal(values, columns["baseline"], equal_nan=True)
        }
    columns[_NOW] = run.values.personalized
    return _Values(list(columns), np.array(list(columns.values()), float))


def _encoded(name: str, run: Run, of: _Values) -> dict[str, Any]:
    values = of.values
    codes, lows, highs = _coded(values)
    higher = run.higher_is_better
    rows, clients = run.rows, run.values
    each = [dataclasses.replace(clients, personalized=row) for row in values]
    hurt = np.array([of_model.is_hurt for of_model in each])
    means = [statistics.mean(of_model, "personalized") for of_model in each]
    return {
        "name": name,
        "metric": run.metric,
        "higher": higher,
        "ids": clients.client_ids.astype(str).tolist(),
        "groups": None if clients.groups is None else clients.groups.astype(str).tolist(),
        "personalization": _sizes(rows.get("num_personalization_examples")),
        "evaluation": _sizes(clients.num_evaluation_examples),
        "candidates": of.candidates,
        "lows": lows.tolist(),
        "highs": highs.tolist(),
        "values": _base64(codes),
        "hurt": _base64(np.packbits(hurt, axis=1)),
        "means": [float(mean) if np.isfinite(mean) else None for mean in means],
        "pctHurt": [round(hurt_lib.pct_clients_hurt(of_model), 1) for of_model in each],
    }


def _coded(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns values as steps of their own row's range, and every row's lowest and highest."""
    known = np.isfinite(values)
    lows = np.min(values, axis=1, where=known, initial=np.inf)
    highs = np.max(values, axis=1, where=known, initial=-np.inf)
    lows, highs = (np.where(lows <= highs, ends, 0.0) for ends in (lows, highs))
    steps = (highs - lows) / (_EMPTY - 1)
    steps[steps == 0] = 1.0
    offsets = np.where(known, values - lows[:, None], 0.0)
    codes = np.where(known, np.rint(offsets / steps[:, None]), _EMPTY)
    return codes.astype(np.uint16), lows, highs


def _sizes(values: Any) -> str | None:
    if values is None:
        return None
    numbers = np.asarray(values, float)
    return _base64(numbers.astype(np.uint32)) if np.isfinite(numbers).all() else None


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()
