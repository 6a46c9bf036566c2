"""Mode collapse: how many clients choose the largest cluster, by round (Motley's Figure 5(a))."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from motley_tff.report import style
from motley_tff.report.comparisons import Comparison, Series
from motley_tff.report.runs import Run


class Curve(NamedTuple):
    """One series: smallest, mean and largest share over seeds, percent, [rounds] each."""

    label: str
    rounds: np.ndarray
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray
    num_clusters: int


def data(comparison: Comparison) -> list[Curve]:
    """Returns a curve for each way in which HypCluster was trained."""
    return comparison.of_series(_curve)


def _curve(series: Series) -> Curve | None:
    shares = [pair for run in series.runs if (pair := _shares(run)) is not None]
    if not shares:
        return None
    length = min(len(rounds) for rounds, _ in shares)
    rounds, first = shares[0]
    largest = np.array([largest_share(table)[:length] for _, table in shares])
    ranges = (largest.min(axis=0), largest.mean(axis=0), largest.max(axis=0))
    return Curve(series.label, rounds[:length], *ranges, num_clusters=first.shape[1])


def _shares(run: Run) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns (rounds [rounds], shares [rounds, clusters]) of a run, None without clusters."""
    table = run.table("rounds")
    if table is None:
        return None
    shares = table.filter(regex="^cluster_.*_share$").to_numpy(float)
    return (table["round"].to_numpy(int), shares) if shares.size else None


def largest_share(shares: np.ndarray) -> np.ndarray:
    """Returns the percentage of clients in the cluster that is largest in the last tenth of rounds.

    The largest of each round by itself would be more than its share also where clients choose at
    random; the largest over all rounds can be one that clients have left for another, which would
    show a collapse as its opposite. `shares` are [rounds, clusters], rows add up to 1.
    """
    last = shares[-math.ceil(len(shares) / 10) :]
    return 100.0 * shares[:, int(np.argmax(last.sum(axis=0)))]


def draw(curves: Sequence[Curve], comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws the mean over seeds as a line, their range as a band."""
    figure, [[ax]] = style.panels(1, height=1.9)
    for curve in curves:
        line, every = styles[curve.label], max(1, len(curve.rounds) // 8)
        ax.plot(curve.rounds, curve.mean, markevery=every, label=curve.label, **line.options)
        ax.fill_between(curve.rounds, curve.low, curve.high, **line.band)
    ax.set(xlabel="round", ylabel="clients in the\nlargest cluster (%)", ylim=(0, 103))
    style.legend_below(figure, ax)
    return figure


def caption(curves: Sequence[Curve], comparison: Comparison) -> str:
    """Returns the figure's caption."""
    ends = "; ".join(
        f"{c.label} ({c.num_clusters} clusters): {c.mean[-1]:.0f}% in the last round"
        for c in curves
    )
    return (
        "Share of the cohort that trains the cluster that is the largest in the end (over the last "
        "tenth of the rounds); near 100% the clusters have collapsed into one. Line: mean over "
        f"seeds, band: their range. {ends}."
    )
