"""From paths to a folder with figures, tables and the page."""

import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from motley_tff.core.errors import UserError
from motley_tff.files import csv_files
from motley_tff.metrics import scorecard
from motley_tff.report import (
    comparisons,
    figures,
    heterogeneity,
    page,
    paper_tables,
    radar,
    runs,
    sections,
    style,
)

# (title, what it needs)
_LABELS = ("Label distributions (Figure 10)", "a heterogeneity_*.csv, which motley_doctor writes")
_SCORES = ("FedEval's scorecard", "a scorecard.csv, which motley_scorecard writes")


class Built(NamedTuple):
    """What was written: the page, other files, and (title, what it needs) of absent figures."""

    page: pathlib.Path
    files: list[pathlib.Path]
    absent: list[tuple[str, str]]


def build(
    paths: Sequence[str],
    folder: pathlib.Path,
    vector: str,
    on_comparison: Callable[[str], None] = lambda name: None,
) -> Built:
    """Draws and writes a report of directories of runs and sweeps; `vector` is `svg` or `pdf`.

    The folder is made if it is not there; `on_comparison` is called with each data set's name
    before it is drawn. A UserError if a path or a table is not as it should be, or the folder
    cannot be written.
    """
    inputs = runs.find(paths)
    compared = comparisons.compare(inputs)
    report = _Report(folder, vector)
    report.add_tables(compared)
    for comparison, stem in zip(compared, stems(compared), strict=True):
        on_comparison(comparison.dataset)
        report.add_comparison(comparison, stem)
    report.add_heterogeneity(inputs.heterogeneity)
    report.add_scorecards(inputs.scorecards)
    return report.finish(compared)


def stems(compared: Iterable[comparisons.Comparison]) -> list[str]:
    """Returns a prefix for the files of each comparison, all different."""
    names = [slug(f"{comparison.dataset} {comparison.metric}") for comparison in compared]
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
            raise UserError(
                f"cannot write {folder}: {error.strerror}; choose another --output_dir"
            ) from error

    def add_tables(self, compared: Sequence[comparisons.Comparison]) -> None:
        """Adds Tables 4 to 7, as far as there are runs for them."""
        tables = paper_tables.tables(compared)
        if tables:
            path = self._folder / "tables.csv"
            rows = [row for comparison in compared for row in paper_tables.rows(comparison)]
            csv_files.write(path, paper_tables.COLUMNS, map(csv_files.formula_safe, rows))
            self._files.append(path)
            self._sections.append(sections.of_tables(tables, compared))

    def add_comparison(self, comparison: comparisons.Comparison, stem: str) -> None:
        """Draws and adds one data set's figures."""
        images, absent = figures.draw_all(comparison, stem, self._folder, self._vector)
        self._sections.append(sections.of_comparison(comparison, f"data-{stem}", images, absent))

    def add_heterogeneity(self, paths: Sequence[pathlib.Path]) -> None:
        """Draws and adds label shares."""
        images = []
        caption = "Labels of some clients: a row a client, a column a label."
        for path in paths:
            clients, labels, shares = heterogeneity.read(path)
            with style.settings():
                figure, [[ax]] = style.panels(1, height=1.2 + 0.14 * len(clients))
                heterogeneity.draw(ax, clients, labels, shares)
                name = path.stem.removeprefix("heterogeneity_")
                images.append(self._image(figure, slug(path.stem), name, caption, path))
        self._add_images("labels", _LABELS[0], images)

    def add_scorecards(self, paths: Sequence[pathlib.Path]) -> None:
        """Draws and adds radar charts."""
        images = []
        caption = "Scores from 0 to 5, the best at the rim; a line a method."
        for place, path in enumerate(paths, 1):
            table = runs.read(path, ("method", *scorecard.AXES))
            numbers = table[list(scorecard.AXES)].to_numpy(float)
            scores = dict(zip(table["method"], numbers, strict=True))
            with style.settings():
                figure = radar.chart(scorecard.AXES, scores, scorecard.MOST)
                name = path.parent.name
                images.append(self._image(figure, f"radar_{place}", name, caption, path))
        self._add_images("scorecards", _SCORES[0], images)

    def _add_images(self, anchor: str, title: str, images: Sequence[page.Image]) -> None:
        if images:
            self._sections.append(page.Section(anchor, title, page.figures(images), images))

    def _image(
        self, figure: Figure, stem: str, title: str, caption: str, table: pathlib.Path
    ) -> page.Image:
        """Writes a figure that is drawn from one table; returns it for the page."""
        files, svg = style.save(figure, self._folder, stem, self._vector)
        return page.Image(f"table-{stem}", title, caption, str(table), svg, files)

    def finish(self, compared: Sequence[comparisons.Comparison]) -> Built:
        """Adds what was left out and the list of runs, and writes the page."""
        images = [image for section in self._sections for image in section.images]
        titles = {image.title for image in images} | {section.title for section in self._sections}
        needs = [*((kind.heading, kind.needs) for kind in figures.KINDS), _LABELS, _SCORES]
        absent = [(title, need) for title, need in needs if title not in titles]
        closing = [sections.of_absent(absent), sections.of_runs(compared)]
        names = ", ".join(dict.fromkeys(comparison.dataset for comparison in compared))
        title = "Personalized federated learning" + (f": {names}" if names else "")
        target = self._folder / "report.html"
        with csv_files.replacing(target) as file:
            file.write(page.page(title, [*self._sections, *closing]))
        files = [*self._files, *(path for image in images for path in image.files)]
        return Built(target, files, absent)
