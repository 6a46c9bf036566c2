"""What each client gains, in scatter plots (Motley's Figures 3(b), 8(b), 8(c), 9(a), 9(b))."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from motley_tff.report import findings, style
from motley_tff.report.comparisons import Comparison

_SIZES = "personalization examples"


class Deltas(NamedTuple):
    """One panel: x, gain and whether it lost of each client, [clients].

    A gain is positive where a client is better off, also for errors; it is not-a-number where a
    model diverged, which is counted and not drawn.
    """

    label: str
    x: np.ndarray
    delta: np.ndarray
    is_hurt: np.ndarray

    @property
    def pct_hurt(self) -> float:
        """Percentage of these clients that lost."""
        return 100.0 * float(np.mean(self.is_hurt))


class Data(NamedTuple):
    """Panels and their horizontal axis."""

    panels: Sequence[Deltas]
    x_label: str
    log_x: bool


def by_rank(comparison: Comparison) -> Data | None:
    """Returns the test clients of each algorithm, from the one that lost most to the best."""
    return ranked(_panels(comparison))


def ranked(panels: Sequence[Deltas]) -> Data | None:
    """Returns panels, whatever their `x` is, with their clients in the order of what they gain."""
    ordered = []
    for panel in panels:
        diverged = np.isnan(panel.delta)
        order = np.argsort(np.where(diverged & panel.is_hurt, -np.inf, panel.delta), kind="stable")
        share = 100.0 * (np.arange(len(order)) + 0.5) / len(order)
        ordered.append(Deltas(panel.label, share, panel.delta[order], panel.is_hurt[order]))
    return Data(ordered, "test clients, worst first (%)", False) if ordered else None


def by_examples(comparison: Comparison) -> Data | None:
    """Returns the test clients of each algorithm over how many examples they personalize on."""
    panels = _panels(comparison, "num_personalization_examples")
    spread = [p.x.max() / max(1.0, p.x.min()) for p in panels]
    return Data(panels, _SIZES, max(spread) > 20) if panels else None


def _panels(comparison: Comparison, column: str | None = None) -> list[Deltas]:
    """Returns a panel an algorithm, of the clients that have a number in a column where that is x;
    those that begin with a random model have no gain to show.
    """
    panels = []
    for series in comparison.series:
        runs = [run for run in series.runs if run.has_trained_baseline]
        if not runs or any(column and column not in run.rows for run in runs):
            continue
        delta = np.concatenate([run.values.delta for run in runs])
        hurt = np.concatenate([run.values.is_hurt for run in runs])
        x = np.zeros(len(delta))
        if column:
            x = np.concatenate([run.rows[column].to_numpy(float) for run in runs])
        known = np.isfinite(x) & np.concatenate([run.values.is_scored for run in runs])
        delta = np.where(np.isfinite(delta), delta, np.nan)
        if np.isfinite(delta[known]).any():
            panels.append(Deltas(series.label, x[known], delta[known], hurt[known]))
    return panels


def draw(data: Data, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a small panel for each algorithm, each with limits of its own."""
    lines = max(_title(panel).count("\n") for panel in data.panels)
    # A single row is as high as the name of its axis is long.
    height = 1.3 if len(data.panels) > 2 else 1.9
    figure, axes = style.grid(len(data.panels), height=height + 0.13 * lines)
    for ax, panel in zip(axes, data.panels, strict=True):
        scatter(ax, panel)
        if data.log_x:
            ax.set_xscale("log")
    figure.supxlabel(data.x_label, fontsize=8)
    sign = "" if comparison.higher_is_better else "less "
    figure.supylabel(f"gain ({sign}{comparison.metric_name})", fontsize=8)
    return figure


def scatter(ax: Axes, panel: Deltas) -> Axes:
    """Draws one panel: a dot a client, a cross for one that is hurt, and a line at zero."""
    raster = len(panel.delta) > style.MAX_VECTOR_POINTS
    for chosen, marker, size, colour in (
        (~panel.is_hurt, "o", 5, style.KEPT), (panel.is_hurt, "x", 9, style.HURT),
    ):  # fmt: skip
        ax.scatter(
            panel.x[chosen], panel.delta[chosen], size, colour, marker=marker, alpha=0.7,
            linewidths=0.7, rasterized=raster,
        )  # fmt: skip
    ax.axhline(0.0, color="black", linewidth=0.7, linestyle="--")
    ax.set_title(_title(panel), fontsize=7)
    return ax


def _title(panel: Deltas) -> str:
    return f"{style.wrapped(panel.label, 21)}\n{panel.pct_hurt:.1f}% hurt"


def caption(data: Data, comparison: Comparison) -> str:
    """Returns the figure's caption."""
    counts = {len(panel.delta) for panel in data.panels}
    diverged = sum(int(np.isnan(panel.delta).sum()) for panel in data.panels)
    note = f" Diverged and counted, not drawn: {diverged:,}." if diverged else ""
    number = f"{min(counts):,}" if len(counts) == 1 else f"{min(counts):,} to {max(counts):,}"
    return (
        f"{_finding(data)} "
        "What each test client gains over the global model; above the dashed line is better. "
        f"A dot a client and seed, a cross for one that is hurt ({number} a panel); every panel "
        f"has its own scale.{note}"
    )


def _finding(data: Data) -> str:
    """Returns how many are hurt; over sizes, whether those are the small clients."""
    if data.x_label != _SIZES:
        return findings.hurt([(panel.label, panel.pct_hurt) for panel in data.panels])
    thirds = []
    for panel in data.panels:
        if (ends := _thirds(panel.x)) is not None:
            few, many = (100.0 * np.mean(panel.is_hurt[of]) for of in ends)
            thirds.append(f"{panel.label} {few:.1f}% and {many:.1f}%")
    if not thirds:
        return "Clients are too few to compare, or too many personalize on equally many examples."
    return (
        "Hurt in the third of the clients (and those tied) with fewest personalization examples, "
        f"and with most: {findings.listed(thirds)}."
    )


def _thirds(x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns who is in the lowest and the highest third, [num_clients], all that tie with its last
    one included; None if there are none or both share a value. `explorer.js` has the same rule.
    """
    size, ordered = len(x) // 3, np.sort(x)
    if not size or ordered[size - 1] >= ordered[-size]:
        return None
    return x <= ordered[size - 1], x >= ordered[-size]
