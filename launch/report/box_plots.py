"""Per-client metric in box plots, global against personalized model (Motley's Figure 2)."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import cbook
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from launch.report import style
from launch.report.comparisons import Comparison, Series
from motley_tff.metrics import statistics

# Baselines further away than this many times the span of the personalized boxes are not shown.
_FAR = 2.0
MODELS = ["global", "personalized"]


def data(comparison: Comparison) -> pd.DataFrame:
    """Returns the test clients of all seeds: `algorithm`, `client`, and the metric under the
    `global` model, not-a-number where that is random, and the `personalized` one.
    """
    tables: list[pd.DataFrame] = comparison.of_series(_clients)
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _clients(series: Series) -> pd.DataFrame | None:
    tables = []
    for run in series.runs:
        before = run.values.baseline if run.has_trained_baseline else np.nan
        models = dict(zip(MODELS, (before, run.values.personalized), strict=True))
        columns = {"algorithm": series.label, "client": run.values.client_ids, **models}
        tables.append(pd.DataFrame(columns))
    table = pd.concat(tables, ignore_index=True)
    return table if np.isfinite(table["personalized"]).any() else None


def _finite(clients: pd.DataFrame, model: str) -> np.ndarray:
    values = clients[model].to_numpy(float)
    return values[np.isfinite(values)]


def limits(clients: pd.DataFrame) -> tuple[float, float]:
    """Returns limits that show all personalized boxes, and baselines that are not far from them."""
    groups = [group for _, group in clients.groupby("algorithm", sort=False)]
    [before, after] = (
        cbook.boxplot_stats([v for group in groups if len(v := _finite(group, model))])
        for model in MODELS
    )
    low, high = min(box["whislo"] for box in after), max(box["whishi"] for box in after)
    span = (high - low) or abs(high) or 1.0
    ends = (low - _FAR * span, high + _FAR * span)
    near = [box for box in before if ends[0] < box["whislo"] and box["whishi"] < ends[1]]
    low = min([low, *(box["whislo"] for box in near)])
    high = max([high, *(box["whishi"] for box in near)])
    margin = 0.06 * ((high - low) or span)
    return low - margin, high + margin


def draw(clients: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws two boxes for each algorithm."""
    groups = dict(iter(clients.groupby("algorithm", sort=False)))
    number, ends = len(groups), limits(clients)
    names = [style.wrapped(label, 16) for label in groups]
    lines = max(name.count("\n") + 1 for name in names)
    figure, [[ax]] = style.panels(1, height=0.6 + max(0.38, 0.13 * lines) * number)
    for place, (label, group) in enumerate(groups.items()):
        before, after = (_finite(group, model) for model in MODELS)
        if len(before):
            _box(ax, before, place - 0.19, "white", "////")
            median = float(np.median(before))
            if median > ends[1]:
                words = f"median {median:.3g} →"
                ax.text(ends[1], place - 0.19, words, ha="right", va="center", fontsize=6)
            elif median < ends[0]:
                words = f"← median {median:.3g}"
                ax.text(ends[0], place - 0.19, words, ha="left", va="center", fontsize=6)
        _box(ax, after, place + 0.19, styles[label].colour, "")
    ax.set_yticks(range(number), names)
    label = f"{comparison.metric_label}, a test client each"
    ax.set(xlabel=label, xlim=ends, ylim=(number - 0.5, -0.5))
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
    drawn["fliers"][0].set_rasterized(len(values) > style.MAX_VECTOR_POINTS)


def numbers(clients: pd.DataFrame, comparison: Comparison) -> list[dict[str, Any]]:
    """Returns means over clients, each averaged over its seeds, how far they are from the best
    method's, client by client, and how many of the drawn values are outside the axis.
    """
    groups = dict(iter(clients.groupby("algorithm", sort=False)))
    of_clients = {
        label: group.groupby("client", sort=False)["personalized"].mean()
        for label, group in groups.items()
    }
    means = pd.DataFrame(of_clients)
    best = means.mean().sort_values(ascending=not comparison.higher_is_better).index[0]
    low, high = limits(clients)
    rows = []
    for label, group in groups.items():
        drawn = np.concatenate([_finite(group, model) for model in MODELS])
        outside = int(np.sum((drawn < low) | (drawn > high)))
        row: dict[str, Any] = {"algorithm": label, "clients": means[label].count()}
        row["outside the axis"] = outside
        row |= _with_interval("mean", means[label])
        if label != best:
            row |= _with_interval(f"minus {best}", means[label] - means[best])
        rows.append(row)
    return rows


def _with_interval(name: str, values: pd.Series) -> dict[str, Any]:
    """Returns a mean over clients and its interval of 95%, nothing where one is not finite."""
    values = values.dropna().to_numpy()
    if not len(values) or not np.isfinite(values).all():
        return {}
    mean, half = values.mean(), statistics.t_half_width(values)
    interval = f"{mean - half:.4g} to {mean + half:.4g}" if np.isfinite(half) else ""
    return {name: mean, f"{name}, 95%": interval}
