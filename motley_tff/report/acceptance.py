"""Rules by which a client keeps the global model (Motley section 3.1's open remark)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from motley_tff.report import findings, style
from motley_tff.report.comparisons import Comparison, Value
from motley_tff.report.runs import Run


class Row(NamedTuple):
    """One algorithm under one rule, over seeds."""

    series: str
    rule: str
    metric: Value
    pct_hurt: Value
    pct_accepted: Value


def data(comparison: Comparison) -> list[Row]:
    """Returns the metric, % hurt and % accepting of every rule, an algorithm's rows together."""
    return [
        Row(series.label, rule, *measures)
        for series in comparison.series
        for rule, measures in series.each_over_seeds(_measures).items()
    ]


def _measures(run: Run) -> dict[str, tuple[float, float, float]]:
    table = run.reported("acceptance")
    if table is None:
        return {}
    share = 100.0 * table["num_accepted"] / table["num_clients"]
    rows = zip(table["personalized_mean"], table["pct_clients_hurt"], share, strict=True)
    return dict(zip(table["rule"], rows, strict=True))


def draw(rows: Sequence[Row], comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a line of dots for each rule: metric, % hurt, % accepted."""
    number = len(rows)
    figure, [axes] = style.panels(
        1, 3, height=0.75 + 0.17 * number, sharey=True, width_ratios=(1.7, 1, 1)
    )
    for place, row in enumerate(rows):
        line = styles[row.series]
        for ax, value in zip(axes, (row.metric, row.pct_hurt, row.pct_accepted), strict=True):
            ax.errorbar(
                value.mean, place, xerr=np.nan_to_num(value.std) or None, color=line.colour,
                marker=line.marker, capsize=1.5, elinewidth=0.6, linestyle="",
                label=row.series,
            )  # fmt: skip
    axes[0].set_yticks(range(number), [style.plain(row.rule) for row in rows], fontsize=6)
    axes[0].set_ylim(number - 0.5, -0.5)
    for ax, label in zip(axes, (comparison.metric_label, "hurt (%)", "accepting (%)"), strict=True):
        ax.set_xlabel(label, fontsize=7)
        ax.grid(axis="y")
        ax.tick_params(axis="x", labelsize=6)
    # Markers at an end of their panel would be cut in half.
    axes[0].margins(x=0.1)
    axes[1].set_xlim(0, 1.1 * max(1.0, axes[1].dataLim.x1))
    axes[2].set_xlim(0, 110)
    style.legend_below(figure, axes[0])
    return figure


def caption(rows: Sequence[Row], comparison: Comparison) -> str:
    """Returns the figure's caption."""
    best = findings.leading(
        [findings.Measured(f"{row.series}, {row.rule}", row.metric.mean) for row in rows],
        comparison.higher_is_better,
    )
    hurt = findings.hurt([(f"{row.series}, {row.rule}", row.pct_hurt.mean) for row in rows])
    return (
        f"{best} {hurt} "
        "A client that does not accept its personalized model keeps the global one. For every rule "
        f"the mean over test clients ({comparison.better}), the share of them that are hurt, and "
        "the share that accept. Bars: a standard deviation over seeds."
    )
