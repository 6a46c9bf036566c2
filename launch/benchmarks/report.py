"""From measurements to the table that people read and the JSON that machines read."""

import dataclasses
import json
import math
import statistics
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import ALL_THREADS, BARE, ONE_CLIENT, SGEMM, STOCK, TORCH
from launch.benchmarks.measuring import Result
from motley_tff.files import text_tables

_MEGABYTE = 1e6


@dataclasses.dataclass(frozen=True)
class Row:
    """A contender in the table: medians over its runs, the largest peak, the last run's facts.

    Times are of the whole work, `scale` says how much of it was extrapolated. Ratios are medians
    over the i-th runs' ratios: to the bare loop in the same process, to the one that uses all
    threads, to PyTorch in its better setting (always one process), to one client at a time in the
    same process, and of the first stock TFF contender to this one; None where there is no such
    contender. The share of the peak is of the best matrix product's GFLOP/s.
    """

    name: str
    threads: int
    seconds: float
    cpu_seconds: float
    times_bare_loop: float | None
    times_bare_loop_on_all_threads: float | None
    faster_than_stock: float | None
    times_torch: float | None
    times_one_client: float | None
    gflop_per_second: float | None
    share_of_peak: float | None
    first_call_seconds: float | None
    peak_bytes: int
    scale: float
    all_seconds: list[float]
    facts: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Table:
    """A workload's table."""

    workload: str
    title: str
    rows: list[Row]


def tabulate(workload: str, title: str, results: Sequence[Result]) -> Table:
    """Returns the table of a workload's results."""
    return Table(workload, title, [_row(result, results) for result in results])


def _row(result: Result, results: Sequence[Result]) -> Row:
    seconds = [run.seconds for run in result.runs]
    stock = [r for r in results if r.name.startswith(STOCK)]
    bare = [r for r in results if r.name == BARE]
    torch = sorted((r for r in results if r.name.startswith(TORCH)), key=_seconds)
    same_threads = [r for r in bare if r.threads == result.threads]
    one = [r for r in results if (r.name, r.threads) == (ONE_CLIENT, result.threads)]
    peak = max((_gflop_per_second(r) or 0.0 for r in results if r.name == SGEMM), default=0.0)
    speed = _gflop_per_second(result)
    all_threads = [r for r in bare if r.threads == ALL_THREADS]
    return Row(
        name=result.name,
        threads=result.threads,
        seconds=_seconds(result),
        cpu_seconds=statistics.median(run.cpu_seconds for run in result.runs),
        times_bare_loop=_ratio(result, same_threads),
        times_bare_loop_on_all_threads=_ratio(result, all_threads),
        faster_than_stock=_ratio(stock[0], [result]) if stock else None,
        times_torch=_ratio(result, torch),
        times_one_client=_ratio(result, one),
        gflop_per_second=speed,
        share_of_peak=speed / peak if speed and peak else None,
        first_call_seconds=result.first_call_seconds,
        peak_bytes=max(run.peak_bytes for run in result.runs),
        scale=result.scale,
        all_seconds=seconds,
        facts=dict(result.runs[-1].facts),
    )


def _seconds(result: Result) -> float:
    return statistics.median(run.seconds for run in result.runs)


def _gflop_per_second(result: Result) -> float | None:
    return result.gflop / _seconds(result) if result.gflop else None


def _ratio(result: Result, reference: Sequence[Result]) -> float | None:
    """Returns the median of the ratios of runs that were neighbours in time."""
    if not reference or result.name == SGEMM:
        return None
    pairs = zip(result.runs, reference[0].runs, strict=False)
    return statistics.median(run.seconds / other.seconds for run, other in pairs)


def to_json(tables: Sequence[Table], about: dict[str, Any]) -> str:
    """Returns everything that was measured, unrounded."""
    workloads = [dataclasses.asdict(table) for table in tables]
    for row in (row for workload in workloads for row in workload["rows"]):
        # JSON has no word for a loss that diverged.
        row["facts"] = {n: v if math.isfinite(v) else None for n, v in row["facts"].items()}
    return json.dumps({**about, "workloads": workloads}, indent=2, allow_nan=False) + "\n"


_COLUMNS = (
    ("threads", lambda row: "all" if row.threads == ALL_THREADS else str(row.threads)),
    ("seconds", lambda row: _number(row.seconds) + ("*" if row.scale != 1 else "")),
    ("x bare loop", lambda row: _number(row.times_bare_loop, ".2f")),
    ("x bare, all threads", lambda row: _number(row.times_bare_loop_on_all_threads, ".2f")),
    ("x PyTorch", lambda row: _number(row.times_torch, ".2f")),
    ("x one client", lambda row: _number(row.times_one_client, ".2f")),
    ("GFLOP/s", lambda row: _number(row.gflop_per_second, ".0f")),
    ("of SGEMM", lambda row: _number(row.share_of_peak, ".0%")),
    ("faster than stock", lambda row: _number(row.faster_than_stock, ".2f")),
    ("cpu s", lambda row: _number(row.cpu_seconds)),
    ("first call s", lambda row: _number(row.first_call_seconds)),
    ("peak MB", lambda row: f"{row.peak_bytes / _MEGABYTE:.0f}"),
)


def to_text(table: Table) -> str:
    """Returns the table for a terminal."""
    columns = [("", [row.name for row in table.rows])]
    for heading, cell in _COLUMNS:
        cells = [cell(row) for row in table.rows]
        if any(cells):
            columns.append((heading, cells))
    # Facts that every contender states that states any make columns.
    stating = [row.facts for row in table.rows if row.facts]
    common = set.intersection(*map(set, stating)) if stating else set()
    facts = [name for name in table.rows[0].facts if name in common and len(stating) > 1]
    columns.extend((name, [_number(row.facts.get(name)) for row in table.rows]) for name in facts)
    rows = list(zip(*([heading, *values] for heading, values in columns), strict=True))
    lines = (f"  {line}" for line in text_tables.aligned(rows))
    title = f"{table.workload}: {table.title}"
    return "\n".join([title, *lines, *_notes(table.rows, facts)]) + "\n"


def _notes(rows: Sequence[Row], in_columns: Sequence[str]) -> list[str]:
    notes = []
    for scale in sorted({row.scale for row in rows} - {1.0}):
        names = ", ".join(dict.fromkeys(row.name for row in rows if row.scale == scale))
        notes.append(f"  * 1/{scale:g} of the work was run, the rest extrapolated: {names}")
    for row in rows:
        facts = {name: value for name, value in row.facts.items() if name not in in_columns}
        notes.extend(f"  {row.name}: {name}: {_number(v)}" for name, v in facts.items())
    return notes


def _number(value: float | None, form: str = ".4g") -> str:
    return "" if value is None else format(value, form)
