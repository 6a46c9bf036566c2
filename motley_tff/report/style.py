"""How all figures look: one column wide, legible there, never told apart by colour alone.

Colours are Okabe's and Ito's, which people see apart with any kind of colour vision; every line has
its own marker and dash pattern as well, every filled shape a hatch.
"""

import contextlib
import io
import itertools
import pathlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from motley_tff.files import csv_files

# Inches: a column of a two-column paper.
COLUMN_WIDTH = 3.3
DPI = 300
# More points than these make a vector file that no viewer likes: they become pixels in it.
MAX_VECTOR_POINTS = 4000

GREY, KEPT, HURT, BLACK = "#666666", "#0072B2", "#D55E00", "#000000"
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", BLACK, "#B8A800")
# As many as no multiple of the colours, so that pairs of both repeat late.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---", "|||")
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (8, 2)))
# Characters of a legend's whole width, inches of one of its lines.
_LEGEND_WIDTH, _LEGEND_LINE = 46, 0.16
_NO_BREAK = "\u00a0"
_SETTINGS = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.formatter.limits": (-5, 5),
    "axes.formatter.useoffset": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "grid.linewidth": 0.4,
    "grid.color": "#cccccc",
    # The same input gives the same bytes.
    "svg.hashsalt": "motley-tff",
    "pdf.fonttype": 42,
}


class Drawn(NamedTuple):
    """A figure, what its file and it are called, and what it shows."""

    name: str
    title: str
    figure: Figure
    caption: str


class Style(NamedTuple):
    """How a series is drawn in all figures."""

    colour: str
    marker: str
    hatch: str
    dashes: Any

    @property
    def options(self) -> dict[str, Any]:
        """A line's options, for `Axes.plot`."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dashes}

    @property
    def band(self) -> dict[str, Any]:
        """A band's options, for `Axes.fill_between`."""
        return {"color": self.colour, "alpha": 0.2, "linewidth": 0}


# {label of a series: its style}, the same in all figures of a data set.
Styles = Mapping[str, Style]


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Applies the style to what is drawn and saved inside."""
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS}):
        yield


def styles(names: Sequence[str]) -> dict[str, Style]:
    """Returns a style for each name, by its place."""
    looks = zip(*map(itertools.cycle, (_COLOURS, _MARKERS, _HATCHES, _DASHES)), strict=True)
    return {name: Style(*look) for name, look in zip(names, looks, strict=False)}


def panels(
    rows: int, columns: int = 1, height: float = 1.5, **options: Any
) -> tuple[Figure, list[list[Axes]]]:
    """Returns a figure of a column's width and its axes [rows][columns].

    `height` is in inches a row, with its labels; `options` are those of `Figure.subplots`.
    """
    figure = Figure(figsize=(COLUMN_WIDTH, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        # Numbers such as -0.0005 are wider than Matplotlib counts on.
        ax.xaxis.set_major_locator(MaxNLocator(6 // columns, steps=[1, 2, 2.5, 5, 10]))
    return figure, [list(row) for row in axes]


def grid(number: int, height: float = 1.5) -> tuple[Figure, list[Axes]]:
    """Returns a figure with `number` small axes, two in a row where there are several."""
    columns = min(2, number)
    figure, axes = panels(-(-number // columns), columns, height)
    flat = [ax for row in axes for ax in row]
    for ax in flat[number:]:
        ax.remove()
    return figure, flat[:number]


def legend_below(figure: Figure, ax: Axes) -> None:
    """Puts a legend of the labelled lines in `ax` under all axes, where it hides no data."""
    handles, labels = ax.get_legend_handles_labels()
    legend_of(figure, dict(zip(labels, handles, strict=True)))


def legend_of(figure: Figure, entries: Mapping[str, Any]) -> None:
    """Puts a legend of `{label: what Matplotlib shows of it}` under all axes; the figure grows."""
    labels = [wrapped(label, _LEGEND_WIDTH) for label in entries]
    columns = min(len(labels), _LEGEND_WIDTH // (max(map(len, entries)) + 6) or 1)
    lines = -(-sum(label.count("\n") + 1 for label in labels) // columns)
    figure.set_figheight(figure.get_figheight() + lines * _LEGEND_LINE)
    figure.legend(entries.values(), labels, loc="outside lower center", ncols=columns)


def plain(text: str) -> str:
    """Returns text in which no dollar sign begins a formula."""
    return text.replace("$", r"\$")


def wrapped(text: str, width: int) -> str:
    """Returns text on lines of at most `width` characters, broken after commas if that will do."""
    parts = [part.replace(" ", _NO_BREAK) for part in text.split(", ")]
    if max(map(len, parts)) < width:
        text = ", ".join(parts)
    return plain(textwrap.fill(text, width).replace(_NO_BREAK, " "))


def save(
    figure: Figure, folder: pathlib.Path, stem: str, vector: str
) -> tuple[list[pathlib.Path], bytes]:
    """Writes a figure as vector file (`svg`, `pdf`) and PNG; returns (paths, the SVG's bytes)."""
    drawn = {kind: rendered(figure, kind) for kind in dict.fromkeys((vector, "png", "svg"))}
    paths = [folder / f"{stem}.{kind}" for kind in (vector, "png")]
    for path in paths:
        with csv_files.replacing(path, "wb") as file:
            file.write(drawn[path.suffix[1:]])
    return paths, drawn["svg"]


def rendered(figure: Figure, kind: str) -> bytes:
    """Returns a figure as the bytes of a file of some kind, without a date in it."""
    buffer = io.BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=dates[kind])
    return buffer.getvalue()
