"""From measurements to the table that people read and the JSON that machines read."""

import copy
import json
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from launch.benchmarks import ALL_THREADS, ONE_CLIENT, SGEMM, TORCH
from launch.benchmarks.measuring import Result
from motley_tff.files import text_tables


def tabulate(workload: str, title: str, results: Sequence[Result]) -> dict[str, Any]:
    """Returns a workload's table: its `workload`, `title` and `rows`, one for each contender.

    A row has medians over the runs, the largest peak and the last run's facts. Times are of the
    whole work, `scale` says how much of it was extrapolated. Ratios are medians over the i-th runs'
    ratios: to PyTorch in its better setting (always one process), and to one client at a time in
    the same process; None where there is no such contender. The share of the peak is of the best
    matrix product's GFLOP/s.
    """
    torch = sorted((r for r in results if r.name.startswith(TORCH)), key=_seconds)
    speeds = [result.gflop / _seconds(result) for result in results]  # 0 where it is unknown.
    pairs = list(zip(results, speeds, strict=True))
    peak = max((speed for result, speed in pairs if result.name == SGEMM), default=0.0)
    rows = []
    for result, speed in pairs:
        one = [r for r in results if (r.name, r.threads) == (ONE_CLIENT, result.threads)]
        rows.append(
            {
                "name": result.name,
                "threads": result.threads,
                "seconds": _seconds(result),
                "cpu_seconds": statistics.median(run.cpu_seconds for run in result.runs),
                "times_torch": _ratio(result, torch),
                "times_one_client": _ratio(result, one),
                "gflop_per_second": speed or None,
                "share_of_peak": speed / peak if speed and peak else None,
                "first_call_seconds": result.first_call_seconds,
                "peak_bytes": max(run.peak_bytes for run in result.runs),
                "scale": result.scale,
                "all_seconds": [run.seconds for run in result.runs],
                "facts": dict(result.runs[-1].facts),
            }
        )
    return {"workload": workload, "title": title, "rows": rows}


def _seconds(result: Result) -> float:
    return statistics.median(run.seconds for run in result.runs)


def _ratio(result: Result, reference: Sequence[Result]) -> float | None:
    """Returns the median of the ratios of runs that were neighbours in time."""
    if not reference or result.name == SGEMM:
        return None
    pairs = zip(result.runs, reference[0].runs, strict=False)
    return statistics.median(run.seconds / other.seconds for run, other in pairs)


def to_json(tables: Sequence[dict[str, Any]], about: dict[str, Any]) -> str:
    """Returns everything that was measured, unrounded."""
    workloads = copy.deepcopy(list(tables))
    for row in (row for workload in workloads for row in workload["rows"]):
        # JSON has no word for a loss that diverged.
        row["facts"] = {n: v if math.isfinite(v) else None for n, v in row["facts"].items()}
    return json.dumps({**about, "workloads": workloads}, indent=2, allow_nan=False) + "\n"


_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "threads": ("threads", lambda value: "all" if value == ALL_THREADS else str(value)),
    "seconds": ("seconds", "{:.4g}".format),
    "times_torch": ("x PyTorch", "{:.2f}".format),
    "times_one_client": ("x one client", "{:.2f}".format),
    "gflop_per_second": ("GFLOP/s", "{:.0f}".format),
    "share_of_peak": ("of SGEMM", "{:.0%}".format),
    "cpu_seconds": ("cpu s", "{:.4g}".format),
    "first_call_seconds": ("first call s", "{:.4g}".format),
    "peak_bytes": ("peak MB", lambda value: f"{value / 1e6:.0f}"),
}


def to_text(table: dict[str, Any]) -> str:
    """Returns the table for a terminal."""
    rows = table["rows"]
    columns = [["", *(row["name"] for row in rows)]]
    for key, (heading, form) in _COLUMNS.items():
        cells = ["" if row[key] is None else form(row[key]) for row in rows]
        if key == "seconds":
            cells = [c + "*" * (r["scale"] != 1) for c, r in zip(cells, rows, strict=True)]
        if any(cells):
            columns.append([heading, *cells])
    # Facts of one row alone are notes below the table.
    facts = rows[0]["facts"] if sum(bool(row["facts"]) for row in rows) > 1 else ()
    for name in facts:
        columns.append([name, *(f"{r['facts'][name]:.4g}" if r["facts"] else "" for r in rows)])
    lines = [f"{table['workload']}: {table['title']}"]
    lines.extend(f"  {line}" for line in text_tables.aligned(list(zip(*columns, strict=True))))
    for row in rows:
        name, scale = row["name"], row["scale"]
        if scale != 1:
            lines.append(f"  * 1/{scale:g} of the work was run, the rest extrapolated: {name}")
        if not facts:
            lines.extend(f"  {name}: {fact}: {v:.4g}" for fact, v in row["facts"].items())
    return "\n".join(lines) + "\n"
