"""How all figures look: one column wide, legible there, never told apart by colour alone.

Colours are Okabe's and Ito's, which people see apart with any kind of colour vision; every line has
its own marker and dash pattern as well, every filled shape a hatch.
"""

import functools
import io
import itertools
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from motley_tff.files import csv_files

# Inches: a column of a two-column paper.
COLUMN_WIDTH = 3.3
DPI = 300
# More points than these make a vector file that no viewer likes: they become pixels in it.
MAX_VECTOR_POINTS = 4000
# Above this many points, error bars touch.
_MAX_BARS = 25
_ERRORS: dict[str, Any] = {"linestyle": "", "capsize": 1.5, "elinewidth": 0.6}

GREY, KEPT, HURT, BLACK = "#666666", "#0072B2", "#D55E00", "#000000"
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", BLACK, "#B8A800")
# As many as no multiple of the colours, so that pairs of both repeat late.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---", "|||")
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (8, 2)))
# Characters of a legend's whole width, inches of one of its lines.
_LEGEND_WIDTH, _LEGEND_LINE = 46, 0.16
_NO_BREAK = "\u00a0"


class Drawn(NamedTuple):
    """A figure, its name in `figures.yaml`, and rows of numbers that stand beside it."""

    name: str
    figure: Figure
    numbers: Sequence[Mapping[str, Any]] = ()


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
    def filled(self) -> dict[str, Any]:
        """A filled shape's options, for bars and patches."""
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": "white"}


# {label of a series: its style}, the same in all figures of a data set.
Styles = Mapping[str, Style]


# A context that applies the style to what is drawn and saved inside.
_SHEET = pathlib.Path(__file__).with_name("report.mplstyle")
settings = functools.partial(matplotlib.style.context, ["default", _SHEET])


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


def lines(ax: Axes, table: pd.DataFrame, x: str, y: str, looks: Styles, **options: Any) -> None:
    """Draws a line for each `algorithm` of a table, with the column `{y}_std` as its spread."""
    for label, curve in table.groupby("algorithm", sort=False):
        spread = curve.get(f"{y}_std", 0.0)
        line(ax, label, curve[x], curve[y], looks[label], spread, **options)


def line(
    ax: Axes,
    label: str,
    x: ArrayLike,
    y: ArrayLike,
    look: Style,
    spread: ArrayLike = 0.0,
    **options: Any,
) -> None:
    """Draws a line with at most some ten markers.

    `spread` is what error bars reach to, or a band where bars would touch: [points], or below and
    above the line, [2, points]; not-a-number has none.
    """
    x, y = np.asarray(x), np.asarray(y)
    ax.plot(x, y, label=label, markevery=max(1, len(y) // 10), **look.options, **options)
    below, above = np.broadcast_to(np.maximum(np.nan_to_num(spread), 0.0), (2, len(y)))
    if not (below.any() or above.any()):
        return
    if len(y) > _MAX_BARS:
        ax.fill_between(x, y - below, y + above, color=look.colour, alpha=0.2, linewidth=0)
    else:
        ax.errorbar(x, y, (below, above), color=look.colour, **_ERRORS)


def point(ax: Axes, x: float, y: float, look: Style, label: str = "", **errors: float) -> None:
    """Draws a marker with an error bar, `xerr` or `yerr`; not-a-number has none."""
    options: dict[str, Any] = {n: np.nan_to_num(value) or None for n, value in errors.items()}
    options |= {"color": look.colour, "marker": look.marker, "label": label}
    ax.errorbar(x, y, **options, **_ERRORS)


def density(
    ax: Axes, label: str, values: np.ndarray, limits: tuple[float, float], look: Style
) -> None:
    """Draws the density of values, [n], by Gaussian kernels (Scott's width); none of fewer than
    three values, or of equal ones.
    """
    if len(values) < 3 or np.ptp(values) == 0:
        return
    from scipy import stats  # Takes 0.4 s.

    x = np.linspace(*limits, 200)
    line(ax, label, x, stats.gaussian_kde(values)(x), look)


def legend_below(figure: Figure, ax: Axes) -> None:
    """Puts a legend of the labelled lines in `ax` under all axes, where it hides no data."""
    handles, labels = ax.get_legend_handles_labels()
    legend_of(figure, dict(zip(labels, handles, strict=True)))


def legend_of_bars(figure: Figure, looks: Styles) -> None:
    """Puts a legend of filled shapes under all axes."""
    legend_of(figure, {name: Patch(**look.filled) for name, look in looks.items()})


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


def save_picture(figure: Figure, path: pathlib.Path, **options: Any) -> None:
    """Writes a figure as one picture; the suffix says which kind."""
    with csv_files.replacing(path, "wb") as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150, **options)


def rendered(figure: Figure, kind: str) -> bytes:
    """Returns a figure as the bytes of a file of some kind, without a date in it."""
    buffer = io.BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=dates[kind])
    return buffer.getvalue()
