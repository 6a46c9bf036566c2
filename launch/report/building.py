"""From paths to a folder with figures, tables and the page."""

import json
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from launch.report import (
    comparisons,
    explorer,
    figures,
    generated_sets,
    heterogeneity,
    page,
    paper_tables,
    radar,
    runs,
    score_figures,
    style,
)
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.experiment import accounting
from motley_tff.files import csv_files
from motley_tff.metrics import hurt as hurt_lib, statistics

_PICTURES = "scores of their pictures, which motley_generative makes; the nets' own are none"
_EPSILON = "Epsilon, replacing one client"
# Whoever gives hundreds of runs is told of these.
_MAX_LISTED_RUNS = 200


class Built(NamedTuple):
    """What was written: the page, other files, and (title, what it needs) of absent figures; and
    warnings of paths without tables and of runs that should not be compared.
    """

    page: pathlib.Path
    files: list[pathlib.Path]
    absent: list[tuple[str, str]]
    warnings: list[str]


def build(
    paths: Sequence[str],
    folder: pathlib.Path,
    vector: str,
    on_comparison: Callable[[str], None] = lambda name: None,
    anyway: bool = False,
    before: Sequence[page.Section] = (),
) -> Built:
    """Draws and writes a report of directories of runs and sweeps; `vector` is `svg` or `pdf`.
    Sections `before` come first.

    The folder is made if it is not there; `on_comparison` is called with each data set's name
    before it is drawn. A UserError if a path or a table is not as it should be, the folder cannot
    be written, or, unless they are compared `anyway`, runs are not scored on the same.
    """
    inputs = runs.find(paths)
    compared = comparisons.compare(inputs, anyway)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = f"choose another {errors.name('output_dir')}"
        raise UserError(str(folder), error.strerror, "a folder to write", advice) from error
    files: list[pathlib.Path] = []
    if rows := [row for comparison in compared for row in paper_tables.rows(comparison)]:
        files.append(folder / "tables.csv")
        csv_files.write(files[0], paper_tables.COLUMNS, map(csv_files.formula_safe, rows))
    drawing = figures.Folder(folder, vector)
    drawn = _sections(inputs, compared, drawing, on_comparison)
    sections = [*before, *(section for section in drawn if section is not None)]
    images = [image for section in sections for image in section.images]
    titles = {image.title for image in images} | {section.title for section in sections}
    known = figures.ALL.values()
    absent = [(k.heading, k.needs) for k in known if k.needs and k.heading not in titles]
    if inputs.generators:
        absent.append((f"Tables of generators' runs ({len(inputs.generators)})", _PICTURES))
    missing = [str(error) for error in inputs.missing]
    sections += [_section_of_absent(absent, missing), _section_of_runs(compared)]
    names = ", ".join(dict.fromkeys(comparison.dataset for comparison in compared))
    title = "Personalized federated learning" + (f": {names}" if names else "")
    target = folder / "report.html"
    with csv_files.replacing(target) as file:
        file.write(page.page(title, sections))
    files += [path for image in images for path in image.files]
    warnings = [f"warning: {line}" for line in missing]
    warnings += [warning for comparison in compared for warning in comparison.warnings]
    return Built(target, files, absent, warnings)


def _sections(
    inputs: runs.Inputs,
    compared: Sequence[comparisons.Comparison],
    drawing: figures.Folder,
    on_comparison: Callable[[str], None],
) -> Iterator[page.Section | None]:
    """Yields the page's sections, None for one of which there are no data."""
    yield explorer.section(compared)
    yield section_of_tables(compared)
    prefixes = stems(f"{comparison.dataset} {comparison.metric}" for comparison in compared)
    for comparison, stem in zip(compared, prefixes, strict=True):
        on_comparison(comparison.dataset)
        images, absent = figures.draw_all(comparison, stem, drawing)
        yield section_of_comparison(comparison, f"data-{stem}", images, absent)
    rounds = {run.path.resolve(): run.round for run in inputs.runs}

    def draw_scores(path: pathlib.Path) -> Iterator[style.Drawn]:
        return score_figures.draw(path, rounds.get(path.parent.resolve()))

    yield _section_of_files("labels", inputs, heterogeneity.drawn, drawing)
    yield _section_of_files("scorecards", inputs, radar.drawn, drawing)
    yield _section_of_files("generated", inputs, generated_sets.draw, drawing)
    yield _section_of_files("examples", inputs, draw_scores, drawing)


def _section_of_files(
    name: str,
    inputs: runs.Inputs,
    draw: Callable[[pathlib.Path], Iterable[style.Drawn]],
    drawing: figures.Folder,
) -> page.Section | None:
    """Returns the figures of tables of one kind, which `draw` yields for each."""
    paths, images = inputs.tables[name], []
    prefixes = stems(path.stem for path in paths)
    for path, prefix in zip(paths, prefixes, strict=True):
        with style.settings():
            for drawn in draw(path):
                stem = prefix if drawn.name == name else f"{prefix}_{drawn.name}"
                title = f"{figures.ALL[drawn.name].title} ({path.parent.name}/{path.name})"
                images.append(drawing.add(drawn, stem, str(path), title))
    heading = figures.ALL[name].heading
    return page.Section(name, heading, page.figures(images), images) if images else None


def stems(names: Iterable[str]) -> list[str]:
    """Returns names as parts of files' names: letters, digits and underscores, with a number behind
    each that is not the first of its kind.
    """
    slugs = [re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "data" for name in names]
    counts = [slugs[: place + 1].count(slug) for place, slug in enumerate(slugs)]
    return [f"{slug}.{n}" if n > 1 else slug for slug, n in zip(slugs, counts, strict=True)]


def section_of_tables(compared: Sequence[comparisons.Comparison]) -> page.Section | None:
    """Returns Tables 4 to 7, and of how many seeds they are."""
    tables = [
        page.table(f"Table {t.number}. {t.title}", t.header, t.cells, grouped=True)
        for t in paper_tables.tables(compared)
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
    return page.Section("tables", "Tables", "\n".join([*tables, note])) if tables else None


def _seeds(series: comparisons.Series) -> str:
    repeated = len(series.runs) > series.num_seeds
    runs = f" in {len(series.runs)} runs, those of a seed averaged" if repeated else ""
    return f"{series.label} {series.num_seeds}{runs}"


def section_of_comparison(
    comparison: comparisons.Comparison,
    anchor: str,
    images: Sequence[page.Image],
    absent: Sequence[figures.FigureKind],
) -> page.Section:
    """Returns one data set's figures, the settings behind their labels, and what is left out."""
    settings = [
        f"{series.label}: {', '.join(f'{flag}={value}' for flag, value in series.setting.items())}"
        for series in comparison.series
        if series.setting
    ]
    parts = [*map(page.paragraph, comparison.warnings), page.figures(images)]
    if settings:
        parts.append(page.paragraph("Settings in which runs of one algorithm differ:"))
        parts.append(page.items(settings))
    if absent:
        titles = ", ".join(kind.title for kind in absent)
        parts.append(page.paragraph(f"Left out here: {titles}."))
    title = f"{comparison.dataset}: {comparison.metric_name} ({comparison.better})"
    return page.Section(anchor, title, "\n".join(parts), images)


def _section_of_absent(absent: Sequence[tuple[str, str]], missing: Sequence[str]) -> page.Section:
    """Returns the list of figures that could not be drawn, and lines on paths without tables."""
    parts = [page.items(missing)] if missing else []
    if absent:
        parts.append(page.paragraph("The given directories hold no data for these figures:"))
        parts.append(page.items(f"{title}: needs {needs}" for title, needs in absent))
    return page.Section("left-out", "Left out", "".join(parts) or page.paragraph("Nothing."))


def _section_of_runs(compared: Iterable[comparisons.Comparison]) -> page.Section:
    """Returns the list of runs with their test numbers."""
    rows = [
        _run_row(series.label, run)
        for comparison in compared
        for series in comparison.series
        for run in series.runs
    ]
    text = f"The first {_MAX_LISTED_RUNS} of {len(rows)} runs."
    note = page.paragraph(text) if len(rows) > _MAX_LISTED_RUNS else ""
    table = page.records("Runs in this report", rows[:_MAX_LISTED_RUNS])
    return page.Section("runs", "Runs", note + table)


def _epsilon(run: runs.ReportedRun) -> dict[str, str]:
    """Returns what a run with a private mean says of its rounds: where one of them was chosen, all
    had a say.
    """
    record, summary = run.path / "run.json", run.table("summary")
    if summary is None or "epsilon" not in summary or not record.exists():
        return {}
    counted = json.loads(record.read_text(encoding="utf-8"))[accounting.KEY]
    # Devices' rounds are chosen by clients that do not train.
    ends_early = any(run.flags.get(name) for name in ("stop_after", "loop.stop_after"))
    by_silos = run.selects_round and not ends_early
    reason = accounting.CHOSEN_ROUND if by_silos else counted.get("reason")
    if reason:
        return {_EPSILON: f"none, as {reason}"}
    epsilon = summary["epsilon"].max()
    return {_EPSILON: f"{epsilon:.4g} at delta {counted['delta']:.3g} ({counted['accountant']})"}


def _run_row(label: str, run: runs.ReportedRun) -> dict[str, Any]:
    mean = statistics.mean(run.values, "personalized")
    return {
        "Run": run.run_id,
        "In figures": f"{run.dataset}: {label}",
        "Seed": run.seed,
        "Round": run.round,
        "Test clients": len(run.values.client_ids),
        "Mean": f"{mean:.5g}" if np.isfinite(mean) else "diverged",
        "% hurt": f"{hurt_lib.pct_clients_hurt(run.values):.1f}",
        **_epsilon(run),
        "Directory": run.path,
    }
