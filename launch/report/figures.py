"""The registry of figures, `figures.yaml`: what each is called, and how it is made.

A figure of a data set has a function from a `Comparison` to data (nothing where the tables do not
have it), one from data to a Matplotlib figure, and one to the rows of a small table beside it. A
new one is one file, and its entry there.
"""

import importlib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import yaml

from launch.report import page, style, sweep_curves
from launch.report.comparisons import Comparison


class FigureKind(NamedTuple):
    """An entry of `figures.yaml`: a figure or a section.

    Attributes:
      data: Of a data set's figure, `module.function` that returns a table of what it shows, with a
        column `algorithm`, empty or None without it.
      draw: `module.function` of the table, the comparison and the styles of the series; `draw` of
        the same module unless it is named.
      numbers: The rows of the table beside it, likewise; without such a function what is drawn.
    """

    name: str
    title: str
    paper: str = ""
    needs: str = ""
    tables: str = ""
    caption: str = ""
    data: str = ""
    draw: str = ""
    numbers: str = ""

    @property
    def heading(self) -> str:
        """Its title, with its number in the paper."""
        return f"{self.title} ({self.paper})" if self.paper else self.title

    def function(self, part: str) -> Callable[..., Any]:
        """Returns what makes its `data`, `draw` or `numbers`."""
        place = getattr(self, part) or f"{(self.draw or self.data).partition('.')[0]}.{part}"
        module, _, name = place.partition(".")
        return getattr(importlib.import_module(f"launch.report.{module}"), name, _rows)


_ENTRIES = pathlib.Path(__file__).with_name("figures.yaml").read_text(encoding="utf-8")
ALL = {name: FigureKind(name, **fields) for name, fields in yaml.safe_load(_ENTRIES).items()}
# Those of data sets.
KINDS = tuple(kind for kind in ALL.values() if kind.data)


def _rows(data: pd.DataFrame, comparison: Comparison) -> Sequence[Mapping[str, Any]]:
    """Returns what is drawn, as means over seeds."""
    return data[[name for name in data if not name.endswith("_std")]].to_dict("records")


class Folder(NamedTuple):
    """Where a report's figures go, and which vector files they are: `svg` or `pdf`."""

    path: pathlib.Path
    vector: str

    def add(
        self, drawn: style.Drawn, stem: str, source: str, title: str = "", better: str = ""
    ) -> page.Image:
        """Writes a figure; returns it for the page. `source` says what it is drawn from."""
        files, svg = style.save(drawn.figure, self.path, stem, self.vector)
        kind = ALL[drawn.name]
        caption = kind.caption.format(better=better)
        title = title or kind.heading
        return page.Image(f"figure-{stem}", title, caption, source, svg, drawn.numbers, files)


def draw_all(
    comparison: Comparison, stem: str, folder: Folder
) -> tuple[list[page.Image], list[FigureKind]]:
    """Draws all figures into files whose names begin with `stem`; returns (those drawn, the kinds
    for which there are no data).
    """
    images, absent = [], []
    labels = [series.label for series in comparison.series]
    labels += [sweep_curves.name_of(a) for s in comparison.sweeps for a in s.rows["algorithm"]]
    styles = style.styles(list(dict.fromkeys(labels)))
    for kind in KINDS:
        data = kind.function("data")(comparison)
        if data is None or data.empty:
            absent.append(kind)
            continue
        with style.settings():
            figure = kind.function("draw")(data, comparison, styles)
            numbers = kind.function("numbers")(data, comparison)
            drawn = style.Drawn(kind.name, figure, numbers)
            source = _source(kind, data, comparison)
            images.append(
                folder.add(drawn, f"{stem}_{kind.name}", source, better=comparison.better)
            )
    return images, absent


def _source(kind: FigureKind, data: pd.DataFrame, comparison: Comparison) -> str:
    """Returns which tables a figure is of, and whose: of the series that it shows."""
    tables = kind.tables
    if tables == "sweep.csv":
        return f"{tables} of {page.listed([str(sweep.path) for sweep in comparison.sweeps])}"
    shown = set(data["algorithm"])
    series = [s for s in comparison.series if s.label in shown] or comparison.series
    return f"{tables} of {page.listed([run.run_id for s in series for run in s.runs])}"
