"""Metric against bytes sent so far (Motley's Figures 5(b) and 5(c)).

Bytes are the totals of `summary.csv`: down and up, all clients, warm starts included.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from motley_tff.report import findings, style
from motley_tff.report.comparisons import Comparison, Series
from motley_tff.report.runs import Run, mean_of_all

_BYTES = ("bytes_down_total", "bytes_up_total")
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


class Curve(NamedTuple):
    """One series: bytes sent and mean over test clients, averaged over seeds, [evaluations]."""

    label: str
    bytes: np.ndarray
    metric: np.ndarray


def data(comparison: Comparison) -> list[Curve]:
    """Returns a curve for each algorithm; none where no run was evaluated twice."""
    curves = comparison.of_series(_curve)
    return curves if any(len(curve.bytes) > 1 for curve in curves) else []


def _curve(series: Series) -> Curve | None:
    runs = [by_round for run in series.runs if (by_round := _points(run)) is not None]
    rounds = set.intersection(*map(set, runs)) if runs else set()
    if not rounds:
        return None
    points = np.array([[by_round[n] for n in sorted(rounds)] for by_round in runs]).mean(axis=0)
    return Curve(series.label, points[:, 0], points[:, 1])


def _points(run: Run) -> dict[int, tuple[float, float]] | None:
    """Returns `{round: (bytes until then, metric)}` of the evaluated rounds."""
    summary = run.table("summary")
    if summary is None or not {*_BYTES, "personalized_mean"} <= set(summary):
        return None
    rows = summary[(summary["split"] == "test") & (summary["run_id"] == run.run_id)]
    sent = rows[list(_BYTES)].sum(axis=1)
    means = mean_of_all(rows, "personalized")
    values = zip(rows["round"].astype(int), sent, means, strict=True)
    return {number: (total, value) for number, total, value in values}


def unit(largest: float) -> tuple[float, str]:
    """Returns (bytes, name) of the unit in which a number of bytes is at least 1."""
    return next((size, name) for size, name in _UNITS if largest >= size or size == 1.0)


def draw(curves: Sequence[Curve], comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a line for each algorithm."""
    figure, [[ax]] = style.panels(1, height=2.1)
    size, name = unit(max(curve.bytes.max() for curve in curves))
    for curve in curves:
        line = styles[curve.label].options
        ax.plot(curve.bytes / size, curve.metric, label=curve.label, clip_on=False, **line)
    sent = f"sent so far, down and up, all clients ({name})"
    ax.set(xlabel=sent, ylabel=comparison.metric_label, xlim=(0, None))
    style.legend_below(figure, ax)
    return figure


def caption(curves: Sequence[Curve], comparison: Comparison) -> str:
    """Returns the figure's caption."""
    size, name = unit(max(curve.bytes.max() for curve in curves))
    ends = "; ".join(f"{c.label} {c.bytes[-1] / size:.3g} {name}" for c in curves)
    last = [findings.Measured(curve.label, float(curve.metric[-1])) for curve in curves]
    return (
        f"{findings.leading(last, comparison.higher_is_better)} "
        "Mean over the evaluated test clients of their personalized models "
        f"({comparison.better}) "
        "against all that the server and the clients have sent, warm starts included; means over "
        f"seeds. In all: {ends}."
    )
