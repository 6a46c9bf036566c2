"""Hyperparameters chosen by each silo against one choice for all (Motley's Figures 7 and 11)."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from motley_tff.metrics import statistics
from motley_tff.report import findings, style
from motley_tff.report.comparisons import Comparison, Series, Value

WAYS = ("before", "global", "per client")

_COLUMNS = (
    "candidate_global", "candidate_per_client", "personalized_global", "personalized_per_client"
)  # fmt: skip


class Panel(NamedTuple):
    """One algorithm: the means over silos in each of `WAYS`; gains [silos] and % hurt in two."""

    label: str
    means: Sequence[Value]
    gain_global: np.ndarray
    gain_per_client: np.ndarray
    pct_hurt: tuple[float, float]


def data(comparison: Comparison) -> list[Panel]:
    """Returns a panel for each algorithm in which the two ways choose differently."""
    return comparison.of_series(_panel)


def _panel(series: Series) -> Panel | None:
    runs = [r for r in series.runs if set(_COLUMNS) <= set(r.rows) and r.has_trained_baseline]
    if not any((r.rows["candidate_global"] != r.rows["candidate_per_client"]).any() for r in runs):
        return None
    ways = [
        [dataclasses.replace(r.values, personalized=r.rows[column].to_numpy(float)) for r in runs]
        for column in _COLUMNS[2:]
    ]
    gains = [np.concatenate([values.delta for values in way]) for way in ways]
    shown = np.isfinite(gains).all(axis=0)
    if not shown.any():
        return None
    scored = np.concatenate([r.values.is_scored for r in runs])
    hurt = [
        100.0 * float(np.mean(np.concatenate([v.is_hurt for v in way])[scored])) for way in ways
    ]
    means = [
        [statistics.mean_of_all(run.values, "baseline") for run in runs],
        *([statistics.mean_of_all(values, "personalized") for values in way] for way in ways),
    ]
    gain_global, gain_per_client = (gain[shown] for gain in gains)
    values = [Value.of(m, [run.seed for run in runs]) for m in means]
    return Panel(series.label, values, gain_global, gain_per_client, (hurt[0], hurt[1]))


def draw(panels: Sequence[Panel], comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws for each algorithm the means on the left and the silos' gains on the right."""
    figure, axes = style.panels(len(panels), 2, height=1.6, width_ratios=(1, 1.3))
    for [left, right], panel in zip(axes, panels, strict=True):
        _means(left, panel)
        _silos(right, panel)
        left.set_ylabel(comparison.metric_label, fontsize=7)
    return figure


def _means(ax: Axes, panel: Panel) -> None:
    styles = style.styles(WAYS)
    for place, (way, value) in enumerate(zip(WAYS, panel.means, strict=True)):
        ax.errorbar(
            place, value.mean, yerr=np.nan_to_num(value.std) or None, capsize=2, linestyle="",
            color=styles[way].colour, marker=styles[way].marker, elinewidth=0.6,
        )  # fmt: skip
    ax.set_xticks(range(len(WAYS)), ["before", "one\nfor all", "own"], fontsize=6)
    ax.set_xlim(-0.5, len(WAYS) - 0.5)
    ax.set_title(style.wrapped(panel.label, 21), fontsize=7)


def _silos(ax: Axes, panel: Panel) -> None:
    raster = len(panel.gain_global) > style.MAX_VECTOR_POINTS
    ax.scatter(panel.gain_global, panel.gain_per_client, s=5, alpha=0.6, rasterized=raster)
    ends = np.concatenate([panel.gain_global, panel.gain_per_client, [0.0]])
    margin = 0.06 * (np.ptp(ends) or 1.0)
    limits = (ends.min() - margin, ends.max() + margin)
    ax.set(xlim=limits, ylim=limits)
    ax.locator_params(axis="x", nbins=2)
    ax.tick_params(labelsize=6)
    ax.plot(limits, limits, color=style.GREY, linewidth=0.7)
    for line in (ax.axhline, ax.axvline):
        line(0.0, color="black", linewidth=0.6, linestyle="--")
    ax.set_xlabel("gain, one for all", fontsize=7)
    ax.set_ylabel("gain, own", fontsize=7)
    pct_global, pct_per_client = panel.pct_hurt
    ax.set_title(f"{pct_global:.1f}% → {pct_per_client:.1f}% hurt", fontsize=7)


def caption(panels: Sequence[Panel], comparison: Comparison) -> str:
    """Returns the figure's caption."""
    sign = 1.0 if comparison.higher_is_better else -1.0
    better = {p.label: sign * (p.means[2].mean - p.means[1].mean) for p in panels}
    own = [label for label, by in better.items() if by > 0]
    shared = [label for label, by in better.items() if by <= 0]
    neither = [label for label, by in better.items() if np.isnan(by)]
    unknown = f"; not both means are finite for {findings.listed(neither)}" if neither else ""
    hurt = [
        f"{panel.label} {panel.pct_hurt[0]:.1f}% and {panel.pct_hurt[1]:.1f}%" for panel in panels
    ]
    return (
        f"On average each silo's own choice is better for {findings.listed(own) or 'none'}, one "
        f"for all is as good or better for {findings.listed(shared) or 'none'}{unknown}; hurt "
        f"under one choice for all and under each its own: {findings.listed(hurt)}. "
        f"Left: mean over silos' test data ({comparison.better}) before personalization, with one "
        "choice of candidate for all silos, and with each silo's own, both on validation data; "
        "bars: a standard deviation over seeds. Right: each silo's gain under both, a dot a silo "
        "and seed; above the slanted line its own choice is better."
    )
