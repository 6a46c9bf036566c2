"""The explorer in `report.html`: every test client of every run, to be looked into.

Its data stand in the page as JSON, a metric's values in it as base64 of little-endian float32.
Whether a client is hurt, means and shares of the hurt are computed here, from all digits. What
would make the page too large is left out and named.
"""

import base64
import collections
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from launch.report import causes, page
from launch.report.comparisons import Comparison
from launch.report.runs import ReportedRun
from motley_tff.metrics import hurt as hurt_lib, statistics

# In a float32; what is larger, or infinite, is shown as unknown.
_LARGEST = np.finfo(np.float32).max
# In the page, all runs together: it stays below 30 MB, of which figures take a few.
_MOST_BYTES = 20_000_000
_SCRIPT = pathlib.Path(__file__).with_name("explorer.js")
_NOTE = (
    "A point is a test client. Drag over points to select them, or use the boxes; the table lists "
    "those who lose most first. Over baseline values, gains are of other examples than these: on "
    "the same ones, chance alone lets weak clients gain. They are known of the chosen candidate."
)


def section(compared: Sequence[Comparison]) -> page.Section | None:
    """Returns the part of the page; None without runs."""
    runs = [
        (f"{series.label}, {run.dataset}, {run.run_id}", run)
        for comparison in compared
        for series in comparison.series
        for run in series.runs
    ]
    if not runs:
        return None
    shown: list[dict[str, Any]] = []
    room, left_out = _MOST_BYTES, []
    counts = collections.Counter(name for name, _ in runs)
    for name, run in runs:
        if counts[name] > 1:  # Their directories tell them apart.
            name = f"{name}, {run.path}"
        encoded = _encoded(name, run)
        size = len(page.data_text(encoded).encode())
        if size > room:
            left_out.append(name)
        else:
            room -= size
            shown.append(encoded)
    body = page.paragraph(_NOTE) if shown else ""
    for comparison in compared:
        if rows := causes.data(comparison).to_dict("records"):
            body += page.records(f"What goes with being hurt: {comparison.dataset}", rows)
    if left_out:
        body += page.paragraph("Too many clients for one page, left out:") + page.items(left_out)
    script = _SCRIPT.read_text(encoding="utf-8") if shown else ""
    return page.Section("explorer", "Explorer", body, script=script, data={"runs": shown})


def _values(run: ReportedRun) -> dict[str, np.ndarray]:
    """Returns every candidate's value for every client, and the chosen one's, which comes last."""
    table, baseline = run.reported("candidates"), run.values.baseline
    columns = {"baseline": np.where(np.isfinite(baseline), baseline, np.nan)}
    if table is not None:
        wide = table.assign(candidate=table["candidate"].astype(str)).pivot_table(
            index="client_id", columns="candidate", values="value", sort=False, dropna=False
        )
        # Nine digits name a float32; read as one, what is equal is equal.
        wide = wide.reindex(run.values.client_ids).astype(np.float32).astype(float)
        # Candidate 0, the first one, mostly is the baseline itself.
        if np.array_equal(wide.iloc[:, 0], columns["baseline"], equal_nan=True):
            wide = wide.iloc[:, 1:]
        columns |= {f"candidate {name}": wide[name].to_numpy() for name in wide}
    return columns | {"personalized": run.values.personalized}


def _encoded(name: str, run: ReportedRun) -> dict[str, Any]:
    """Returns what the script reads of a run; values are [num_candidates, num_clients]."""
    candidates = _values(run)
    values = np.array(list(candidates.values()), float)
    shown = np.where(np.abs(values) <= _LARGEST, values, np.nan).astype("<f4")
    clients = run.values
    each = [dataclasses.replace(clients, personalized=row) for row in values]
    hurt = np.array([of_model.is_hurt for of_model in each])
    means = [statistics.mean(of_model, "personalized") for of_model in each]
    return {
        "name": name,
        "metric": run.metric,
        "higher": run.higher_is_better,
        "ids": clients.client_ids.astype(str).tolist(),
        "groups": None if clients.groups is None else clients.groups.astype(str).tolist(),
        "personalization": _sizes(run.rows.get("num_personalization_examples")),
        "evaluation": _sizes(clients.num_evaluation_examples),
        "baselineHalf": _numbers(run.rows.get("baseline_half")),
        "deltaHalf": _numbers(run.rows.get("delta_half")),
        "candidates": list(candidates),
        "values": base64.b64encode(shown.tobytes()).decode(),
        "hurt": ["".join(row) for row in np.where(hurt, "1", "0")],
        "means": [float(mean) if np.isfinite(mean) else None for mean in means],
        "pctHurt": [round(hurt_lib.pct_clients_hurt(of_model), 1) for of_model in each],
    }


def _numbers(values: Any) -> list[float | None] | None:
    if values is None:
        return None
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in np.asarray(values, float)]


def _sizes(values: Any) -> list[int] | None:
    numbers = np.asarray(np.nan if values is None else values, float)
    return numbers.astype(int).tolist() if np.isfinite(numbers).all() else None
