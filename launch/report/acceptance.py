"""Rules by which a client keeps the global model (Motley section 3.1's open remark)."""

import pandas as pd
from matplotlib.figure import Figure

from launch.report import style
from launch.report.comparisons import Comparison
from launch.report.runs import ReportedRun

_SHOWN = ("mean", "hurt (%)", "truly hurt (%)", "accepting (%)")


def data(comparison: Comparison) -> pd.DataFrame:
    """Returns the metric, % hurt, % truly hurt and % accepting of every rule, an algorithm's rows
    together.
    """
    return comparison.over_seeds(_table, "rule", sort=False)


def _table(run: ReportedRun) -> pd.DataFrame | None:
    rows = run.reported("acceptance")
    if rows is None:
        return None
    share = 100.0 * rows["num_accepted"] / rows["num_clients"]
    # Runs of an earlier version do not say how many are truly hurt.
    hurt, truly_hurt = (rows.get(f"pct_{n}", float("nan")) for n in ("clients_hurt", "truly_hurt"))
    columns = (rows["rule"], rows["personalized_mean"], hurt, truly_hurt, share)
    return pd.DataFrame(dict(zip(("rule", *_SHOWN), columns, strict=True)))


def draw(rows: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a line of dots for each rule: metric, % hurt and truly hurt, % accepting."""
    number = len(rows)
    height = 0.75 + 0.17 * number
    shown = [name for name in _SHOWN if rows[name].notna().any()]
    ratios = (1.7, *[1] * (len(shown) - 1))
    figure, [axes] = style.panels(1, len(shown), height=height, sharey=True, width_ratios=ratios)
    for ax, name in zip(axes, shown, strict=True):
        for place, row in enumerate(rows.to_dict("records")):
            label = row["algorithm"]
            style.point(ax, row[name], place, styles[label], label, xerr=row[f"{name}_std"])
        label = comparison.metric_label if name == "mean" else style.wrapped(name, 10)
        ax.set_xlabel(label, fontsize=7)
        ax.grid(axis="y")
        ax.tick_params(axis="x", labelsize=6)
    axes[0].set_yticks(range(number), map(style.plain, rows["rule"]), fontsize=6)
    axes[0].set_ylim(number - 0.5, -0.5)
    # Markers at an end of their panel would be cut in half.
    axes[0].margins(x=0.1)
    for ax in axes[1:-1]:
        ax.set_xlim(0, 1.1 * max(1.0, ax.dataLim.x1))
    axes[-1].set_xlim(0, 110)
    style.legend_below(figure, axes[0])
    return figure
