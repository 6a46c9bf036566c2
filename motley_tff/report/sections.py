"""The parts of `report.html`, from what was compared and drawn."""

from collections.abc import Iterable, Sequence

import numpy as np

from motley_tff.report import figures, page, paper_tables, runs
from motley_tff.report.comparisons import Comparison, Series

_RUN_COLUMNS = (
    "Run", "In figures", "Seed", "Round", "Test clients", "Mean", "% hurt", "Directory",
)  # fmt: skip
# Whoever gives hundreds of runs is told of these.
_MAX_LISTED_RUNS = 200


def of_tables(tables: Sequence[paper_tables.Table], compared: Iterable[Comparison]) -> page.Section:
    """Returns Tables 4 to 7, and of how many seeds they are."""
    shown = [
        page.table(f"Table {t.number}. {t.title}", t.header, t.cells, grouped=True) for t in tables
    ]
    counts = [
        f"{comparison.dataset}: " + ", ".join(map(_seeds, comparison.series))
        for comparison in compared
        if comparison.series
    ]
    note = page.paragraph(
        "Numbers from clients.csv in the layout of Motley's tables; tables.csv has them in full. "
        f"Standard deviations are the population's (divided by n). Seeds: {'; '.join(counts)}."
    )
    return page.Section("tables", "Tables", "\n".join([*shown, note]))


def _seeds(series: Series) -> str:
    repeated = len(series.runs) > series.num_seeds
    runs = f" in {len(series.runs)} runs, those of a seed averaged" if repeated else ""
    return f"{series.label} {series.num_seeds}{runs}"


def of_comparison(
    comparison: Comparison,
    anchor: str,
    images: Sequence[page.Image],
    absent: Sequence[figures.Kind],
) -> page.Section:
    """Returns one data set's figures, the settings behind their labels, and what is left out."""
    settings = [
        f"{series.label}: {', '.join(f'{flag}={value}' for flag, value in series.setting.items())}"
        for series in comparison.series
        if series.setting
    ]
    parts = [page.figures(images)]
    if settings:
        parts.append(page.paragraph("Settings in which runs of one algorithm differ:"))
        parts.append(page.items(settings))
    if absent:
        parts.append(page.paragraph("Left out here: " + ", ".join(k.title for k in absent) + "."))
    title = f"{comparison.dataset}: {comparison.metric_name} ({comparison.better})"
    return page.Section(anchor, title, "\n".join(parts), images)


def of_absent(absent: Sequence[tuple[str, str]]) -> page.Section:
    """Returns the list of figures that could not be drawn, (title, what it needs) each."""
    if not absent:
        return page.Section("left-out", "Left out", page.paragraph("Nothing."))
    lines = [f"{title}: needs {needs}" for title, needs in absent]
    note = page.paragraph("The given directories hold no data for these figures:")
    return page.Section("left-out", "Left out", note + page.items(lines))


def of_runs(compared: Iterable[Comparison]) -> page.Section:
    """Returns the list of runs with their test numbers."""
    series = [s for comparison in compared for s in comparison.series]
    rows = [_run_cells(s.label, run) for s in series for run in s.runs]
    text = f"The first {_MAX_LISTED_RUNS} of {len(rows)} runs."
    note = page.paragraph(text) if len(rows) > _MAX_LISTED_RUNS else ""
    table = page.table("Runs in this report", _RUN_COLUMNS, rows[:_MAX_LISTED_RUNS])
    return page.Section("runs", "Runs", note + table)


def _run_cells(label: str, run: runs.Run) -> list[str]:
    values = run.values
    facts = (run.seed, run.round, len(values.client_ids))
    mean, hurt = float(values.personalized.mean()), 100.0 * float(values.is_hurt.mean())
    name = f"{run.dataset}: {label}"
    shown = f"{mean:.5g}" if np.isfinite(mean) else "diverged"
    return [run.run_id, name, *map(str, facts), shown, f"{hurt:.1f}", str(run.path)]
