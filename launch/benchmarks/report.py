"""From measurements to the table that people read; the same rows are in the JSON."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from launch.benchmarks.measuring import ALL_THREADS, ONE_CLIENT, SGEMM, TORCH, Contender
from motley_tff.files import text_tables


def tabulate(workload: str, title: str, contenders: Sequence[Contender]) -> dict[str, Any]:
    """Returns a workload's table: its `workload`, `title` and `rows`, one for each contender.

    A row has medians over the runs, the largest peak and the last run's facts, None for one that is
    not finite. Times are of the whole work, `scale` says how much of it was extrapolated. Ratios
    are medians over the i-th runs' ratios: to PyTorch in its better setting (always one process),
    and to one client at a time in the same process; None where there is no such contender. The
    share of the peak is of the best matrix product's GFLOP/s.
    """
    torch = sorted((c for c in contenders if c.name.startswith(TORCH)), key=_seconds)
    alone = {c.threads: [c] for c in contenders if c.name == ONE_CLIENT}
    peak = max((c.gflop / _seconds(c) for c in contenders if c.name == SGEMM), default=0.0)
    rows = []
    for contender in contenders:
        speed = contender.gflop / _seconds(contender) or None  # None where it is unknown.
        facts = contender.runs[-1].facts
        rows.append(
            {
                "name": contender.name,
                "threads": contender.threads,
                "seconds": _seconds(contender),
                "cpu_seconds": statistics.median(run.cpu_seconds for run in contender.runs),
                "times_torch": _ratio(contender, torch),
                "times_one_client": _ratio(contender, alone.get(contender.threads)),
                "gflop_per_second": speed,
                "share_of_peak": speed / peak if speed and peak else None,
                "first_call_seconds": contender.first_call_seconds,
                "peak_bytes": max(run.peak_bytes for run in contender.runs),
                "scale": contender.scale,
                "all_seconds": [run.seconds for run in contender.runs],
                "facts": {n: v if math.isfinite(v) else None for n, v in facts.items()},
            }
        )
    return {"workload": workload, "title": title, "rows": rows}


def _seconds(contender: Contender) -> float:
    return statistics.median(run.seconds for run in contender.runs)


def _ratio(contender: Contender, references: Sequence[Contender] | None) -> float | None:
    """Returns the median of the ratios of runs that were neighbours in time."""
    if not references or contender.name == SGEMM:
        return None
    pairs = zip(contender.runs, references[0].runs, strict=False)
    return statistics.median(run.seconds / other.seconds for run, other in pairs)


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
    """Returns the table for a terminal; facts of one row alone are notes below it."""
    rows = table["rows"]
    columns = [["", *(row["name"] for row in rows)]]
    for key, (heading, form) in _COLUMNS.items():
        cells = ["" if row[key] is None else form(row[key]) for row in rows]
        if key == "seconds":
            cells = [c + "*" * (r["scale"] != 1) for c, r in zip(cells, rows, strict=True)]
        if any(cells):
            columns.append([heading, *cells])
    notes = [
        f"* 1/{row['scale']:g} of the work was run, the rest extrapolated: {row['name']}"
        for row in rows
        if row["scale"] != 1
    ]
    facts = [
        {name: "diverged" if v is None else f"{v:.4g}" for name, v in row["facts"].items()}
        for row in rows
    ]
    if sum(map(bool, facts)) > 1:
        columns += [[name, *(shown.get(name, "") for shown in facts)] for name in facts[0]]
    else:
        for row, shown in zip(rows, facts, strict=True):
            notes += [f"{row['name']}: {name}: {fact}" for name, fact in shown.items()]
    lines = [*text_tables.aligned(list(zip(*columns, strict=True))), *notes]
    return "\n".join([f"{table['workload']}: {table['title']}", *(f"  {x}" for x in lines)]) + "\n"
