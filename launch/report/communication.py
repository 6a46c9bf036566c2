"""Metric against bytes sent so far (Motley's Figures 5(b) and 5(c)).

Bytes are the totals of `summary.csv`: down and up, all clients, warm starts included.
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from launch.report import style
from launch.report.comparisons import Comparison
from launch.report.runs import ReportedRun, mean_of_all

_BYTES = ["bytes_down_total", "bytes_up_total"]
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def data(comparison: Comparison) -> pd.DataFrame:
    """Returns `bytes` and the `mean` over test clients of each algorithm by `round`, averaged over
    seeds; nothing where no run was evaluated twice.
    """
    curves = comparison.over_seeds(_points, "round", shared=True)
    is_curve = len(curves) and curves.groupby("algorithm").size().max() > 1
    return curves if is_curve else pd.DataFrame()


def _points(run: ReportedRun) -> pd.DataFrame | None:
    summary = run.table("summary")
    if summary is None or not {*_BYTES, "personalized_mean"} <= set(summary):
        return None
    rows = summary[(summary["split"] == "test") & (summary["run_id"] == run.run_id)]
    means = mean_of_all(rows, "personalized")
    return pd.DataFrame({"round": rows["round"], "bytes": rows[_BYTES].sum(axis=1), "mean": means})


def unit(largest: float) -> tuple[float, str]:
    """Returns (bytes, name) of the unit in which a number of bytes is at least 1."""
    return next((size, name) for size, name in _UNITS if largest >= size or size == 1.0)


def draw(curves: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a line for each algorithm."""
    figure, [[ax]] = style.panels(1, height=2.1)
    size, name = unit(curves["bytes"].max())
    shown = curves.assign(bytes=curves["bytes"] / size)
    style.lines(ax, shown, "bytes", "mean", styles, clip_on=False)
    sent = f"sent so far, down and up, all clients ({name})"
    ax.set(xlabel=sent, ylabel=comparison.metric_label, xlim=(0, None))
    style.legend_below(figure, ax)
    return figure


def numbers(curves: pd.DataFrame, comparison: Comparison) -> list[dict[str, Any]]:
    """Returns where the curves end."""
    size, name = unit(curves["bytes"].max())
    ends = curves.groupby("algorithm", sort=False).tail(1)
    sent = {f"sent in all ({name})": ends["bytes"] / size}
    return ends[["algorithm", "mean"]].assign(**sent).to_dict("records")
