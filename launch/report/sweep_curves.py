"""Metric and % hurt over a hyperparameter of a sweep (Motley's Figures 3(c) and 9(c)).

For every value of a hyperparameter the others take the setting of best validation metric; what is
shown is that setting's test metric.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from launch.report import candidate_curves, names, style
from launch.report.comparisons import Comparison, Value
from motley_tff import algorithms

_RESULTS = {"mean": "test_personalized_mean", "hurt (%)": "test_pct_clients_hurt"}


def data(comparison: Comparison) -> pd.DataFrame:
    """Returns curves as of `candidate_curves` over every hyperparameter, named in a column
    `hyperparameter`, its values in `x`, that sweeps tried with more than one value.
    """
    if not comparison.sweeps:
        return pd.DataFrame()
    rows = pd.concat([sweep.rows for sweep in comparison.sweeps], ignore_index=True)
    names = list(dict.fromkeys(n for sweep in comparison.sweeps for n in sweep.hyperparameters))
    curves = []
    for name in filter(lambda name: pd.api.types.is_numeric_dtype(rows[name]), names):
        others = [other for other in names if other != name]
        points: list[dict[str, Any]] = []
        finished = rows.dropna(subset=[name, _RESULTS["mean"]])
        for (algorithm, x), runs in finished.groupby(["algorithm", name], sort=False):
            best = _best_setting(runs, others, comparison.higher_is_better)
            points.append({"hyperparameter": name, "algorithm": name_of(algorithm), "x": float(x)})
            for result, column in _RESULTS.items():
                points[-1][result], points[-1][f"{result}_std"] = Value.of(best[column])
        if points:
            curves.append(candidate_curves.of_length(pd.DataFrame(points).sort_values("x"), 2))
    return pd.concat(curves) if curves else pd.DataFrame()


def name_of(algorithm: str) -> str:
    """Returns what the figures call the algorithm of a grid."""
    is_on_fedavg = algorithm in algorithms.PERSONALIZATIONS  # Grids are called by what they tune.
    return names.title(f"fedavg+{algorithm}" if is_on_fedavg else algorithm)


def _best_setting(rows: pd.DataFrame, others: list[str], higher_is_better: bool) -> pd.DataFrame:
    """Returns the rows (one a seed) of the setting that is best on validation data."""
    if not others:
        return rows
    settings = [runs for _, runs in rows.groupby(others, dropna=False)]
    # A setting that failed under some seeds stands for one that works only if there is no other.
    most = max(map(len, settings))
    settings = [runs for runs in settings if len(runs) == most]
    sign = 1.0 if higher_is_better else -1.0
    scores = [sign * runs["valid_personalized_mean"].mean(skipna=False) for runs in settings]
    return settings[int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))]


def draw(curves: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a row a hyperparameter: the metric on the left, % hurt on the right."""
    panels = dict(iter(curves.groupby("hyperparameter", sort=False)))
    figure, axes = style.panels(len(panels), 2, height=1.3)
    for [left, right], (name, panel) in zip(axes, panels.items(), strict=True):
        candidate_curves.plot(left, right, panel, "x", styles)
        for ax in (left, right):
            ax.set_xlabel(name.replace("_", " "), fontsize=7)
            # Where values are positive and spread over a decade or more.
            if 0 < 10 * panel["x"].min() <= panel["x"].max():
                ax.set_xscale("log")
    axes[0][0].set_title(comparison.metric_label, fontsize=7)
    axes[0][1].set_title("clients hurt (%)", fontsize=7)
    style.legend_below(figure, axes[0][0])
    return figure


def numbers(curves: pd.DataFrame, comparison: Comparison) -> list[dict[str, Any]]:
    """Returns where each curve is best."""
    failed = sum(sweep.num_failed for sweep in comparison.sweeps)
    return [
        {"hyperparameter": name, "algorithm": algorithm}
        | candidate_curves.best(curve, "x", comparison.higher_is_better)
        | ({"runs left out": failed} if failed else {})
        for (name, algorithm), curve in curves.groupby(["hyperparameter", "algorithm"], sort=False)
    ]
