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
    rows, shown, notes = table["rows"], [], []
    has_columns_of_facts = sum(bool(row["facts"]) for row in rows) > 1
    for row in rows:
        name, scale = row["name"], row["scale"]
        known = {key: column for key, column in _COLUMNS.items() if row[key] is not None}
        cells = {heading: form(row[key]) for key, (heading, form) in known.items()}
        facts = {n: "diverged" if v is None else f"{v:.4g}" for n, v in row["facts"].items()}
        if scale != 1:
            cells["seconds"] += "*"
            notes.append(f"* 1/{scale:g} of the work was run, the rest extrapolated: {name}")
        if not has_columns_of_facts:
            notes += [f"{name}: {fact}: {value}" for fact, value in facts.items()]
        shown.append({"": name, **cells, **(facts if has_columns_of_facts else {})})
    names = dict.fromkeys(["", *(h for h, _ in _COLUMNS.values()), *(n for r in shown for n in r)])
    header = [name for name in names if any(name in row for row in shown)]
    cells_of_rows = ([row.get(name, "") for name in header] for row in shown)
    lines = [*text_tables.aligned([header, *cells_of_rows]), *notes]
    return "\n".join([f"{table['workload']}: {table['title']}", *(f"  {x}" for x in lines)]) + "\n"
