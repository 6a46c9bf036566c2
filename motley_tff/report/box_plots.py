"""Per-client metric in box plots, global against personalized model (Motley's Figure 2)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from motley_tff.report import findings, style
from motley_tff.report.comparisons import Comparison, Series

# Boxes further away than so many spans of the others would flatten them.
_FAR = 2.0


class Boxes(NamedTuple):
    """One algorithm's values, a number per client and seed; no baseline where that is random."""

    label: str
    baseline: np.ndarray
    personalized: np.ndarray


def data(comparison: Comparison) -> list[Boxes]:
    """Returns the test clients' values of every algorithm, all seeds together."""
    return comparison.of_series(_boxes)


def _boxes(series: Series) -> Boxes | None:
    personalized = _finite([run.values.personalized for run in series.runs])
    trained = [run.values.baseline for run in series.runs if run.has_trained_baseline]
    return Boxes(series.label, _finite(trained), personalized) if personalized.size else None


def _finite(parts: Sequence[np.ndarray]) -> np.ndarray:
    values = np.concatenate([np.zeros(0), *parts])
    return values[np.isfinite(values)]


def whiskers(values: np.ndarray) -> tuple[float, float]:
    """Returns the ends of a box plot's whiskers: the last values within 1.5 box lengths."""
    low, high = np.percentile(values, [25, 75])
    reach = 1.5 * (high - low)
    inside = values[(values >= low - reach) & (values <= high + reach)]
    return float(inside.min()), float(inside.max())


def _limits(boxes: Sequence[Boxes]) -> tuple[float, float]:
    """Returns limits that show all personalized boxes, and baselines that are not far from them."""
    ends = [whiskers(b.personalized) for b in boxes]
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    span = (high - low) or abs(high) or 1.0
    for box in boxes:
        if box.baseline.size:
            bottom, top = whiskers(box.baseline)
            if bottom > low - _FAR * span and top < high + _FAR * span:
                ends.append((bottom, top))
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    margin = 0.06 * ((high - low) or span)
    return low - margin, high + margin


def draw(boxes: Sequence[Boxes], comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws two boxes for each algorithm."""
    number, limits = len(boxes), _limits(boxes)
    names = [style.wrapped(box.label, 16) for box in boxes]
    lines = max(name.count("\n") + 1 for name in names)
    figure, [[ax]] = style.panels(1, height=0.6 + max(0.38, 0.13 * lines) * number)
    for place, box in enumerate(boxes):
        if box.baseline.size:
            _box(ax, box.baseline, place - 0.19, "white", "////")
            _say_if_outside(ax, limits, float(np.median(box.baseline)), place - 0.19)
        _box(ax, box.personalized, place + 0.19, styles[box.label].colour, "")
    ax.set_yticks(range(number), names)
    label = f"{comparison.metric_label}, a test client each"
    ax.set(xlabel=label, xlim=limits, ylim=(number - 0.5, -0.5))
    kinds = {
        "global model": Patch(facecolor="white", edgecolor="black", hatch="////"),
        "personalized": Patch(facecolor=style.GREY, edgecolor="black"),
    }
    style.legend_of(figure, kinds)
    return figure


def _box(ax, values: np.ndarray, place: float, colour: str, hatch: str) -> None:
    dots = {"marker": ".", "markersize": 2, "markeredgecolor": style.GREY}
    drawn = ax.boxplot(
        values, positions=[place], widths=0.3, vert=False, patch_artist=True, flierprops=dots,
        showmeans=True, manage_ticks=False,
        medianprops={"color": "white" if colour == style.BLACK else "black", "linewidth": 1.4},
        meanprops={"marker": "D", "markersize": 2.5, "markerfacecolor": "white",
                   "markeredgecolor": "black", "markeredgewidth": 0.6},
        boxprops={"linewidth": 0.6}, whiskerprops={"linewidth": 0.6}, capprops={"linewidth": 0.6},
    )  # fmt: skip
    drawn["boxes"][0].set(facecolor=colour, hatch=hatch)
    if values.size > style.MAX_VECTOR_POINTS:
        drawn["fliers"][0].set_rasterized(True)


def _say_if_outside(ax, limits: tuple[float, float], median: float, place: float) -> None:
    if median > limits[1]:
        ax.text(limits[1], place, f"median {median:.3g} →", ha="right", va="center", fontsize=6)
    elif median < limits[0]:
        ax.text(limits[0], place, f"← median {median:.3g}", ha="left", va="center", fontsize=6)


def caption(boxes: Sequence[Boxes], comparison: Comparison) -> str:
    """Returns the figure's caption."""
    values = np.concatenate([np.concatenate([b.baseline, b.personalized]) for b in boxes])
    low, high = _limits(boxes)
    outside = int(np.sum((values < low) | (values > high)))
    hidden = f" {outside} of {values.size} values lie outside the axis." if outside else ""
    note = comparison.baseline_note.replace(" it is", ", the global model is")
    shown = {of.label for of in boxes}
    measured = [findings.of_clients(s) for s in comparison.series if s.label in shown]
    return (
        f"{findings.leading(measured, comparison.higher_is_better)} "
        f"Each test client's {comparison.metric_name} ({comparison.better}) under the "
        "global model (hatched) and its personalized one (filled): box = quartiles, line = median, "
        f"diamond = mean, whiskers = 1.5 box lengths; clients of all seeds together.{hidden}{note}"
    )
