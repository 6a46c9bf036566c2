"""Metric and % hurt over a hyperparameter of a sweep (Motley's Figures 3(c) and 9(c)).

For every value of a hyperparameter the others take the setting of best validation metric; what is
shown is that setting's test metric.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from motley_tff import algorithms
from motley_tff.report import findings, names, style
from motley_tff.report.candidate_curves import Curve, best_of, from_zero, plot
from motley_tff.report.comparisons import Comparison, Value

_RESULT = "test_personalized_mean"


class Panel(NamedTuple):
    """Curves over one hyperparameter; `log_x` where its values spread over a decade or more."""

    name: str
    curves: Sequence[Curve]
    log_x: bool


def data(comparison: Comparison) -> list[Panel]:
    """Returns curves over every hyperparameter that sweeps tried with more than one value."""
    if not comparison.sweeps:
        return []
    rows = pd.concat([sweep.rows for sweep in comparison.sweeps], ignore_index=True)
    names = list(dict.fromkeys(n for sweep in comparison.sweeps for n in sweep.hyperparameters))
    panels = []
    for name in filter(lambda name: pd.api.types.is_numeric_dtype(rows[name]), names):
        others = [other for other in names if other != name]
        by_algorithm = (
            curve_over(runs, name, others, str(algorithm), comparison.higher_is_better)
            for algorithm, runs in rows.groupby("algorithm", sort=False)
        )
        if curves := [curve for curve in by_algorithm if curve]:
            x = np.array([v for c in curves for v in c.x if v > 0])
            positive = all(v > 0 for c in curves for v in c.x)
            panels.append(Panel(name, curves, bool(positive and x.max() >= 10 * x.min())))
    return panels


def curve_over(
    rows: pd.DataFrame, name: str, others: list[str], algorithm: str, higher_is_better: bool
) -> Curve | None:
    """Returns the curve of an algorithm's runs over a hyperparameter, None below two values."""
    points = [
        (float(x), _best_setting(runs, others, higher_is_better))
        for x, runs in rows.dropna(subset=[name, _RESULT]).groupby(name)
    ]
    if len(points) < 2:
        return None
    return Curve(
        name_of(algorithm),
        [x for x, _ in points],
        [Value.of(best[_RESULT]) for _, best in points],
        [Value.of(best["test_pct_clients_hurt"]) for _, best in points],
    )


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


def draw(panels: Sequence[Panel], comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a row a hyperparameter: the metric on the left, % hurt on the right."""
    figure, axes = style.panels(len(panels), 2, height=1.3)
    for [left, right], panel in zip(axes, panels, strict=True):
        for curve in panel.curves:
            plot(left, curve, curve.metric, styles[curve.label])
            plot(right, curve, curve.pct_hurt, styles[curve.label])
        for ax in (left, right):
            ax.set_xlabel(panel.name.replace("_", " "), fontsize=7)
            if panel.log_x:
                ax.set_xscale("log")
        from_zero(right)
    axes[0][0].set_title(comparison.metric_label, fontsize=7)
    axes[0][1].set_title("clients hurt (%)", fontsize=7)
    style.legend_below(figure, axes[0][0])
    return figure


def caption(panels: Sequence[Panel], comparison: Comparison) -> str:
    """Returns the figure's caption."""
    failed = sum(sweep.num_failed for sweep in comparison.sweeps)
    left_out = f" {failed} runs that did not finish are left out." if failed else ""
    best = [_best(curve, panel, comparison) for panel in panels for curve in panel.curves]
    return (
        f"Best means: {findings.listed(best)}. "
        f"Test clients over each hyperparameter of the sweep; for every value the others take the "
        f"setting of best validation metric ({comparison.better}). Bars: a standard deviation over "
        f"seeds.{left_out}"
    )


def _best(curve: Curve, panel: Panel, comparison: Comparison) -> str:
    value = best_of(curve, comparison)
    if value is None:
        return f"{curve.label} at no {panel.name}, as no mean is finite"
    return f"{curve.label} at {panel.name} {value:g}"
