"""Learned clusters: how many clients choose the largest, by round (Motley's Figure 5(a)), and which
clients choose which (Figure 5(d)).
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from launch.report import style
from launch.report.comparisons import Comparison
from launch.report.runs import ReportedRun

_UNKNOWN = "clients"


def collapse(comparison: Comparison) -> pd.DataFrame:
    """Returns the percentage of clients that train the largest cluster, `share`, by `round`, its
    mean over seeds and what it is less and more than under the others (`below`, `above`).
    """
    curves = []
    for series in comparison.series:
        parts = [table for run in series.runs if (table := _shares(run)) is not None]
        if parts:
            of_rounds = pd.concat(parts, axis=1, join="inner").to_dict("split")
            shares = np.array(of_rounds["data"])
            mean = shares.mean(axis=1)
            columns = {"algorithm": series.label, "round": of_rounds["index"], "share": mean}
            columns |= {"below": mean - shares.min(axis=1), "above": shares.max(axis=1) - mean}
            curves.append(pd.DataFrame(columns))
    return pd.concat(curves) if curves else pd.DataFrame()


def _shares(run: ReportedRun) -> pd.Series | None:
    """Returns the largest cluster's share by round, None without clusters."""
    table = run.table("rounds")
    if table is None:
        return None
    shares = table.set_index("round").filter(regex="^cluster_.*_share$")
    return None if shares.empty else pd.Series(largest_share(shares.to_numpy()), shares.index)


def largest_share(shares: np.ndarray) -> np.ndarray:
    """Returns the percentage of clients in the cluster that is largest in the last tenth of rounds.

    The largest of each round by itself would be more than its share also where clients choose at
    random; the largest over all rounds can be one that clients have left for another, which would
    show a collapse as its opposite. `shares` are [rounds, clusters], rows add up to 1.
    """
    last = shares[-math.ceil(len(shares) / 10) :]
    return 100.0 * shares[:, int(np.argmax(last.sum(axis=0)))]


def draw_collapse(curves: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws the mean over seeds as a line, and their range."""
    figure, [[ax]] = style.panels(1, height=1.9)
    for label, curve in curves.groupby("algorithm", sort=False):
        reach = curve[["below", "above"]].T
        style.line(ax, label, curve["round"], curve["share"], styles[label], reach)
    ax.set(xlabel="round", ylabel="clients in the\nlargest cluster (%)", ylim=(0, 103))
    style.legend_below(figure, ax)
    return figure


def collapse_numbers(curves: pd.DataFrame, comparison: Comparison) -> list[dict[str, Any]]:
    """Returns where the curves end."""
    ends = curves.groupby("algorithm", sort=False).tail(1)[["algorithm", "round", "share"]]
    return ends.rename(columns={"share": "in the largest cluster (%)"}).to_dict("records")


def composition(comparison: Comparison) -> pd.DataFrame:
    """Returns the number of test `clients` by `cluster` and `group`, and how many clusters were
    `learned`, of each series' first seed: under another seed clusters have other numbers.
    """
    panels = []
    for series in comparison.series:
        run = series.runs[0]
        rows = run.reported("clusters")
        if rows is not None:
            # A copy of the tables without run.json does not say.
            number = int(run.flags.get("num_clusters", rows["cluster_id"].max()))
            table = rows[["cluster_id", "group", "num_clients"]].replace({"group": {"": _UNKNOWN}})
            table = table.set_axis(["cluster", "group", "clients"], axis=1)
            panels.append(table.assign(algorithm=series.label, learned=number))
    return pd.concat(panels) if panels else pd.DataFrame()


def draw_composition(rows: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws stacked bars, a bar a cluster; colours are those of groups, not of algorithms."""
    panels = dict(iter(rows.groupby("algorithm", sort=False)))
    figure, axes = style.grid(len(panels), height=1.6)
    looks = style.styles(sorted(set(rows["group"])))
    for ax, (label, panel) in zip(axes, panels.items(), strict=True):
        table = panel.pivot_table("clients", "cluster", "group", "sum", fill_value=0)
        bottom = np.zeros(len(table))
        for group in table:
            ax.bar(table.index, table[group], 0.65, bottom, linewidth=0.5, **looks[group].filled)
            bottom += table[group]
        number = panel["learned"].iloc[0]
        ax.set_xticks(range(1, number + 1))
        ax.set(xlim=(0.4, number + 0.6), xlabel="cluster")
        ax.set_title(style.wrapped(label, 21), fontsize=7)
    figure.supylabel("test clients", fontsize=8)
    if [*looks] != [_UNKNOWN]:
        style.legend_of_bars(figure, looks)
    return figure


def composition_numbers(rows: pd.DataFrame, comparison: Comparison) -> list[dict[str, Any]]:
    """Returns how large the largest clusters are."""
    sizes = rows.groupby(["algorithm", "cluster"], sort=False)["clients"].sum()
    groups = sizes.groupby("algorithm", sort=False)
    table = pd.DataFrame({"clients": groups.sum(), "largest cluster": groups.max()})
    return table.reset_index().to_dict("records")
