"""The registry of figures: how each one of a data set's is made, and what all are called.

Every figure is a function from a `Comparison` to data (nothing where the tables do not have it),
one from data to a Matplotlib figure, and one to the rows of a small table beside it. A new figure
is one file, one line here, and its words in `figures.yaml`.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import yaml
from matplotlib.figure import Figure

from launch.report import (
    acceptance,
    box_plots,
    candidate_curves,
    clusters,
    communication,
    deltas,
    distribution_shift,
    improvement,
    page,
    style,
    sweep_curves,
    tuning,
)
from launch.report.comparisons import Comparison


class Words(NamedTuple):
    """What `figures.yaml` says of a figure or a section."""

    title: str
    paper: str = ""
    needs: str = ""
    tables: str = ""
    caption: str = ""

    @property
    def heading(self) -> str:
        """Its title, with its number in the paper."""
        return f"{self.title} ({self.paper})" if self.paper else self.title


_WORDS = pathlib.Path(__file__).with_name("figures.yaml").read_text(encoding="utf-8")
WORDS = {name: Words(**fields) for name, fields in yaml.safe_load(_WORDS).items()}


class Kind(NamedTuple):
    """One kind of figure.

    Attributes:
      name: Of the files, and in `WORDS`.
      data: A table of what it shows, with a column `algorithm`; empty or None without it.
      draw: Takes the data, the comparison, and the styles of the series.
      numbers: Returns the rows of the table beside it.
    """

    name: str
    data: Callable[[Comparison], pd.DataFrame | None]
    draw: Callable[[Any, Comparison, style.Styles], Figure]
    numbers: Callable[[Any, Comparison], Sequence[Mapping[str, Any]]]

    @property
    def words(self) -> Words:
        """What it is called and shows."""
        return WORDS[self.name]


def _of(name: str, data: Callable[[Comparison], Any], module: Any) -> Kind:
    return Kind(name, data, module.draw, getattr(module, "numbers", _rows))


def _rows(data: pd.DataFrame, comparison: Comparison) -> Sequence[Mapping[str, Any]]:
    """Returns what is drawn, as means over seeds."""
    return data[[name for name in data if not name.endswith("_std")]].to_dict("records")


KINDS = (
    _of("box_plots", box_plots.data, box_plots),
    _of("delta_by_rank", deltas.by_rank, deltas),
    _of("delta_by_examples", deltas.by_examples, deltas),
    _of("rate_curves", candidate_curves.rates, candidate_curves),
    _of("rate_deltas", candidate_curves.rate_deltas, deltas),
    _of("epoch_curves", candidate_curves.epochs, candidate_curves),
    _of("sweep_curves", sweep_curves.data, sweep_curves),
    _of("distribution_shift", distribution_shift.data, distribution_shift),
    Kind("collapse", clusters.collapse, clusters.draw_collapse, clusters.collapse_numbers),
    _of("communication", communication.data, communication),
    Kind("composition", clusters.composition, clusters.draw_composition,
         clusters.composition_numbers),
    _of("coefficient_curves", candidate_curves.coefficients, candidate_curves),
    _of("size_curves", candidate_curves.sizes, candidate_curves),
    _of("tuning", tuning.data, tuning),
    _of("acceptance", acceptance.data, acceptance),
    _of("improvement", improvement.data, improvement),
)  # fmt: skip


class Folder(NamedTuple):
    """Where a report's figures go, and which vector files they are: `svg` or `pdf`."""

    path: pathlib.Path
    vector: str

    def add(
        self, drawn: style.Drawn, stem: str, source: str, title: str = "", better: str = ""
    ) -> page.Image:
        """Writes a figure; returns it for the page. `source` says what it is drawn from."""
        files, svg = style.save(drawn.figure, self.path, stem, self.vector)
        words = WORDS[drawn.name]
        caption = words.caption.format(better=better)
        title = title or words.heading
        return page.Image(f"figure-{stem}", title, caption, source, svg, drawn.numbers, files)


def draw_all(
    comparison: Comparison, stem: str, folder: Folder
) -> tuple[list[page.Image], list[Kind]]:
    """Draws all figures into files whose names begin with `stem`; returns (those drawn, the kinds
    for which there are no data).
    """
    images, absent = [], []
    labels = [series.label for series in comparison.series]
    labels += [sweep_curves.name_of(a) for s in comparison.sweeps for a in s.rows["algorithm"]]
    styles = style.styles(list(dict.fromkeys(labels)))
    for kind in KINDS:
        data = kind.data(comparison)
        if data is None or data.empty:
            absent.append(kind)
            continue
        with style.settings():
            figure = kind.draw(data, comparison, styles)
            drawn = style.Drawn(kind.name, figure, kind.numbers(data, comparison))
            source = _source(kind, data, comparison)
            images.append(
                folder.add(drawn, f"{stem}_{kind.name}", source, better=comparison.better)
            )
    return images, absent


def _source(kind: Kind, data: pd.DataFrame, comparison: Comparison) -> str:
    """Returns which tables a figure is of, and whose: of the series that it shows."""
    tables = kind.words.tables
    if tables == "sweep.csv":
        return f"{tables} of {page.listed([str(sweep.path) for sweep in comparison.sweeps])}"
    shown = set(data["algorithm"])
    series = [s for s in comparison.series if s.label in shown] or comparison.series
    return f"{tables} of {page.listed([run.run_id for s in series for run in s.runs])}"
