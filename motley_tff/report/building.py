"""From paths to a folder with figures, tables and the page."""

import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files
from motley_tff.metrics import hurt as hurt_lib, scorecard, statistics
from motley_tff.report import (
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
    winners,
)

if TYPE_CHECKING:
    import pandas as pd  # Takes 0.3 s.

# (title, what it needs)
_LABELS = ("Label distributions (Figure 10)", "a heterogeneity_*.csv, which motley_doctor writes")
_WINNERS = ("Who wins by which metric", "FedAvg and two other methods on the same clients")
_SCORES = (
    "FedEval's scorecard",
    "a scorecard.csv, which launch/experiments/fedeval/radar.py writes",
)
_GENERATED = (
    "Scores of generated sets", "a generative*.csv, which motley_generative --output writes"
)  # fmt: skip
_PICTURES = "scores of their pictures, which motley_generative makes; the nets' own are none"
_EXAMPLES = ("Scores of examples and ROC-AUC", "a scores.csv, which --export_scores writes")
_RUN_COLUMNS = (
    "Run", "In figures", "Seed", "Round", "Test clients", "Mean", "% hurt", "Directory",
)  # fmt: skip
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
) -> Built:
    """Draws and writes a report of directories of runs and sweeps; `vector` is `svg` or `pdf`.

    The folder is made if it is not there; `on_comparison` is called with each data set's name
    before it is drawn. A UserError if a path or a table is not as it should be, the folder cannot
    be written, or, unless they are compared `anyway`, runs are not scored on the same.
    """
    inputs = runs.find(paths)
    compared = comparisons.compare(inputs, anyway)
    report = _Report(folder, vector)
    report.add_explorer(compared)
    report.add_tables(compared)
    for comparison, stem in zip(compared, stems(compared), strict=True):
        on_comparison(comparison.dataset)
        report.add_comparison(comparison, stem)
    report.add_winners(compared)
    report.add_heterogeneity(inputs.heterogeneity)
    report.add_scorecards(inputs.scorecards)
    report.add_drawn("generated", _GENERATED[0], inputs.generated, generated_sets.draw)
    rounds = {run.path.resolve(): run.round for run in inputs.runs}
    report.add_drawn(
        "examples", _EXAMPLES[0], inputs.examples,
        lambda path: score_figures.draw(path, rounds.get(path.parent.resolve())),
    )  # fmt: skip
    return report.finish(compared, len(inputs.generators), list(map(str, inputs.missing)))


def stems(compared: Iterable[comparisons.Comparison]) -> list[str]:
    """Returns a prefix for the files of each comparison, all different."""
    return _all_different(
        slug(f"{comparison.dataset} {comparison.metric}") for comparison in compared
    )


def _all_different(names: Iterable[str]) -> list[str]:
    """Returns names with a number behind each that is not the first of its kind."""
    names = list(names)
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [f"{n}.{count}" if count > 1 else n for n, count in zip(names, counts, strict=True)]


def slug(text: str) -> str:
    """Returns text as a part of a file name: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "data"


class _Report:
    """A report that is being made."""

    def __init__(self, folder: pathlib.Path, vector: str):
        self._folder, self._vector = folder, vector
        self._sections: list[page.Section] = []
        self._files: list[pathlib.Path] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            advice = f"choose another {errors.name('output_dir')}"
            raise UserError(str(folder), error.strerror, "a folder to write", advice) from error

    def add_explorer(self, compared: Sequence[comparisons.Comparison]) -> None:
        """Adds what every client can be looked into with."""
        if (section := explorer.section(compared)) is not None:
            self._sections.append(section)

    def add_tables(self, compared: Sequence[comparisons.Comparison]) -> None:
        """Adds Tables 4 to 7, as far as there are runs for them."""
        tables = paper_tables.tables(compared)
        if tables:
            path = self._folder / "tables.csv"
            rows = [row for comparison in compared for row in paper_tables.rows(comparison)]
            csv_files.write(path, paper_tables.COLUMNS, map(csv_files.formula_safe, rows))
            self._files.append(path)
            self._sections.append(section_of_tables(tables, compared))

    def add_comparison(self, comparison: comparisons.Comparison, stem: str) -> None:
        """Draws and adds one data set's figures."""
        images, absent = figures.draw_all(comparison, stem, self._folder, self._vector)
        self._sections.append(section_of_comparison(comparison, f"data-{stem}", images, absent))

    def add_winners(self, compared: Sequence[comparisons.Comparison]) -> None:
        """Draws and adds which method is best by which metric of the quantum of improvement."""
        splits = [s for comparison in compared if (s := winners.split(comparison)) is not None]
        images = []
        for reference, stem in ((winners.G, "over_global"), (winners.BETTER, "over_better")):
            shown = [s for s in splits if reference in s.scores]
            if shown:
                with style.settings():
                    figure = winners.draw(shown, reference)
                    caption = winners.caption(shown, reference)
                    title = f"Fairness of gains over {reference}"
                    files, svg = style.save(figure, self._folder, f"fairness_{stem}", self._vector)
                tables = f"clients.csv of the runs on {', '.join(s.name for s in shown)}"
                images.append(page.Image(f"fairness-{stem}", title, caption, tables, svg, files))
        if splits:
            self._sections.append(winners.section(_WINNERS[0], splits, images))

    def add_heterogeneity(self, paths: Sequence[pathlib.Path]) -> None:
        """Draws and adds label shares."""
        images = []
        for path in paths:
            clients, labels, shares = heterogeneity.read(path)
            most = 100.0 * float(np.nanmax(shares, axis=1).mean())
            caption = (
                f"A client's most frequent label has {most:.0f}% of its examples on average. "
                "Labels of some clients: a row a client, a column a label."
            )
            with style.settings():
                figure, [[ax]] = style.panels(1, height=1.2 + 0.14 * len(clients))
                heterogeneity.draw(ax, clients, labels, shares)
                name = path.stem.removeprefix("heterogeneity_")
                images.append(self._image(figure, slug(path.stem), name, caption, path))
        self._add_images("labels", _LABELS[0], images)

    def add_scorecards(self, paths: Sequence[pathlib.Path]) -> None:
        """Draws and adds radar charts."""
        images = []
        for place, path in enumerate(paths, 1):
            table = runs.read(path, ("method", *scorecard.AXES))
            numbers = table[list(scorecard.AXES)].to_numpy(float)
            scores = dict(zip(table["method"], numbers, strict=True))
            best = [f"{axis} {_highest(table, axis)}" for axis in scorecard.AXES]
            caption = (
                f"Highest: {'; '.join(best)}. Scores from 0 to 5, the best at the rim; a line a "
                "method."
            )
            with style.settings():
                figure = radar.chart(scorecard.AXES, scores, scorecard.MOST)
                name = path.parent.name
                images.append(self._image(figure, f"radar_{place}", name, caption, path))
        self._add_images("scorecards", _SCORES[0], images)

    def add_drawn(
        self,
        anchor: str,
        title: str,
        paths: Sequence[pathlib.Path],
        draw: Callable[[pathlib.Path], Iterable[Any]],
    ) -> None:
        """Draws and adds a section of tables, of each what `draw` yields: name, title, figure and
        caption.
        """
        images = []
        prefixes = _all_different(slug(path.stem) for path in paths)
        for path, prefix in zip(paths, prefixes, strict=True):
            with style.settings():
                for drawn in draw(path):
                    stem = f"{prefix}_{drawn.name}"
                    heading = f"{drawn.title} ({path.parent.name}/{path.name})"
                    images.append(self._image(drawn.figure, stem, heading, drawn.caption, path))
        self._add_images(anchor, title, images)

    def _add_images(self, anchor: str, title: str, images: Sequence[page.Image]) -> None:
        if images:
            self._sections.append(page.Section(anchor, title, page.figures(images), images))

    def _image(
        self, figure: Figure, stem: str, title: str, caption: str, table: pathlib.Path
    ) -> page.Image:
        """Writes a figure that is drawn from one table; returns it for the page."""
        files, svg = style.save(figure, self._folder, stem, self._vector)
        return page.Image(f"table-{stem}", title, caption, str(table), svg, files)

    def finish(
        self,
        compared: Sequence[comparisons.Comparison],
        num_generators: int,
        missing: Sequence[str],
    ) -> Built:
        """Adds what was left out and the list of runs, and writes the page."""
        images = [image for section in self._sections for image in section.images]
        titles = {image.title for image in images} | {section.title for section in self._sections}
        needs = [
            *((kind.heading, kind.needs) for kind in figures.KINDS),
            _WINNERS,
            _LABELS,
            _SCORES,
            _GENERATED,
            _EXAMPLES,
        ]
        absent = [(title, need) for title, need in needs if title not in titles]
        if num_generators:
            absent.append((f"Tables of generators' runs ({num_generators})", _PICTURES))
        closing = [section_of_absent(absent, missing), section_of_runs(compared)]
        names = ", ".join(dict.fromkeys(comparison.dataset for comparison in compared))
        title = "Personalized federated learning" + (f": {names}" if names else "")
        target = self._folder / "report.html"
        with csv_files.replacing(target) as file:
            file.write(page.page(title, [*self._sections, *closing]))
        files = [*self._files, *(path for image in images for path in image.files)]
        warnings = [f"warning: {line}" for line in missing]
        warnings += [warning for comparison in compared for warning in comparison.warnings]
        return Built(target, files, absent, warnings)


def _highest(table: "pd.DataFrame", axis: str) -> str:
    """Returns the methods whose score on an axis is the highest, or none."""
    highest = table[axis].max()
    return ", ".join(map(str, table["method"][table[axis] == highest])) or "none"


def section_of_tables(
    tables: Sequence[paper_tables.Table], compared: Iterable[comparisons.Comparison]
) -> page.Section:
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


def _seeds(series: comparisons.Series) -> str:
    repeated = len(series.runs) > series.num_seeds
    runs = f" in {len(series.runs)} runs, those of a seed averaged" if repeated else ""
    return f"{series.label} {series.num_seeds}{runs}"


def section_of_comparison(
    comparison: comparisons.Comparison,
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
    parts = [*map(page.paragraph, comparison.warnings), page.figures(images)]
    if settings:
        parts.append(page.paragraph("Settings in which runs of one algorithm differ:"))
        parts.append(page.items(settings))
    if absent:
        parts.append(page.paragraph("Left out here: " + ", ".join(k.title for k in absent) + "."))
    title = f"{comparison.dataset}: {comparison.metric_name} ({comparison.better})"
    return page.Section(anchor, title, "\n".join(parts), images)


def section_of_absent(
    absent: Sequence[tuple[str, str]], missing: Sequence[str] = ()
) -> page.Section:
    """Returns the list of figures that could not be drawn, (title, what it needs) each, and lines
    on paths without tables.
    """
    paths = page.items(missing) if missing else ""
    if not absent:
        return page.Section("left-out", "Left out", paths or page.paragraph("Nothing."))
    lines = [f"{title}: needs {needs}" for title, needs in absent]
    note = page.paragraph("The given directories hold no data for these figures:")
    return page.Section("left-out", "Left out", paths + note + page.items(lines))


def section_of_runs(compared: Iterable[comparisons.Comparison]) -> page.Section:
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
    mean, hurt = statistics.mean(values, "personalized"), hurt_lib.pct_clients_hurt(values)
    name = f"{run.dataset}: {label}"
    shown = f"{mean:.5g}" if np.isfinite(mean) else "diverged"
    return [run.run_id, name, *map(str, facts), shown, f"{hurt:.1f}", str(run.path)]
