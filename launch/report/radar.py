"""A radar chart of scores on a few axes, one closed line a method (FedEval's).

An axis that a method was not measured on has no point: the line is open there. One that nobody was
measured on is hatched and says so; it is never drawn as zero.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes

from launch.report import style
from motley_tff.tables import columns

# Points at the centre would hide each other.
_HOLE = 0.08
# What an axis of a scorecard has at the rim.
_MOST_POINTS = 5.0


def chart(axes: Sequence[str], scores: Mapping[str, Sequence[float | None]], most: float) -> Figure:
    """Returns a figure with a line a method, and its legend.

    Three axes or more, the first on top, the others clockwise; by method a score from 0 to `most`,
    at the rim, for each, None where there is none.
    """
    figure = Figure(figsize=(style.COLUMN_WIDTH, 2.7), layout="constrained")
    ax = figure.add_subplot(projection="polar")
    assert isinstance(ax, PolarAxes)
    angles = np.linspace(0.0, 2.0 * np.pi, len(axes), endpoint=False)
    table = pd.DataFrame(scores, index=axes, dtype=float)  # None becomes nan.
    _frame(ax, angles, axes, most)
    for name, look in style.styles(list(table)).items():
        closed = np.append(table[name], table[name].iloc[0])
        style.line(ax, name, np.append(angles, angles[0]), closed, look, clip_on=False)
    for angle in angles[table.isna().all(axis=1)]:
        _hatch(ax, angle, np.pi / len(axes), most)
    style.legend_below(figure, ax)
    return figure


def _frame(ax: PolarAxes, angles: np.ndarray, axes: Sequence[str], most: float) -> None:
    ax.set_theta_zero_location("N")
    ax.set_theta_direction(-1)
    ax.set_thetagrids(np.degrees(angles), [""] * len(axes))
    for angle, name in zip(angles, axes, strict=True):
        # Beside the circle, whichever side.
        side = {-1: "right", 0: "center", 1: "left"}[int(np.sign(np.round(np.sin(angle), 6)))]
        ax.text(angle, 1.06 * most, style.plain(name), ha=side, va="center")
    ax.set_rorigin(-_HOLE * most)
    ax.set_ylim(0.0, most)
    ticks = np.arange(1, int(most) + 1)
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    # Between two axes, where no line has its points.
    ax.set_rlabel_position(np.degrees(angles[1]) / 2)
    ax.grid(True)
    ax.spines[:].set_color("#999999")


def _hatch(ax: PolarAxes, angle: float, half_width: float, most: float) -> None:
    """Marks an axis on which no method was measured."""
    ax.bar(
        angle, most, width=half_width, facecolor="none", edgecolor="#aaaaaa", hatch="////",
        linewidth=0, zorder=0,
    )  # fmt: skip
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"}
    ax.text(
        angle, 0.62 * most, "not measured", ha="center", va="center", color=style.GREY,
        fontsize=6.5, bbox=box,
    )  # fmt: skip


def drawn(path: pathlib.Path) -> Iterator[style.Drawn]:
    """Yields the chart of a `scorecard.csv`, with its numbers."""
    from launch.report import runs

    table = runs.read(path, ("method", *columns.SCORECARD_AXES))[
        ["method", *columns.SCORECARD_AXES]
    ]
    scores = {method: values for method, *values in table.itertuples(index=False)}
    figure = chart(columns.SCORECARD_AXES, scores, _MOST_POINTS)
    yield style.Drawn("scorecards", figure, table.to_dict("records"))
