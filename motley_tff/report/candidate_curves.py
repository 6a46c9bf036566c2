"""Metric and % hurt over the candidates of one run: rates, coefficients, epochs.

Motley's Figures 3(c) and 9(c) (fine-tuning rate) and 6(a-b) (interpolation coefficient). A run
scores every candidate on every client, so that no candidate needs a run of its own. Where
candidates have two hyperparameters, the other one is chosen, for each value of the first, by the
mean over validation clients.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from motley_tff.core import candidate_labels
from motley_tff.core import candidates as candidates_lib
from motley_tff.metrics import client_values
from motley_tff.report import deltas, style
from motley_tff.report.comparisons import Comparison, Series, Value
from motley_tff.report.runs import Run

_X_LABELS = {
    "rate": "fine-tuning learning rate",
    "coefficient": "weight of the neighbours (0 = global model)",
    "epoch": "fine-tuning epochs",
}
# Above this many points, error bars touch.
_MAX_BARS = 25


class Curve(NamedTuple):
    """One series over values of a hyperparameter, ascending, [points] each.

    The metric is a mean over test clients; hurt are those worse off than with the global model.
    """

    label: str
    x: Sequence[float]
    metric: Sequence[Value]
    pct_hurt: Sequence[Value]


class Data(NamedTuple):
    """Curves over one hyperparameter."""

    kind: candidate_labels.Kind
    curves: Sequence[Curve]


def rates(comparison: Comparison) -> Data | None:
    """Returns the curves over fine-tuning rates."""
    return _data(comparison, "rate")


def coefficients(comparison: Comparison) -> Data | None:
    """Returns the curves over kNN-Per's coefficients, the global model at 0."""
    return _data(comparison, "coefficient")


def epochs(comparison: Comparison) -> Data | None:
    """Returns the curves over fine-tuning epochs, the global model at 0."""
    return _data(comparison, "epoch")


def _data(comparison: Comparison, kind: candidate_labels.Kind) -> Data | None:
    curves = comparison.of_series(lambda series: _curve(series, kind))
    return Data(kind, curves) if curves else None


def _curve(series: Series, kind: candidate_labels.Kind, split: str = "test") -> Curve | None:
    points: dict[float, list[tuple[int, float, float]]] = {}
    for run in series.runs:
        for x, (personalized, baseline) in values_at(run, kind, split).items():
            hurt = client_values.is_hurt(baseline, personalized, run.higher_is_better)
            mean = float(np.mean(personalized))
            points.setdefault(x, []).append((run.seed, mean, 100.0 * float(np.mean(hurt))))
    # The global model and one candidate make no curve.
    return curve_through(series.label, points) if len(points) > 2 else None


def curve_through(label: str, points: Mapping[float, Sequence[tuple[int, float, float]]]) -> Curve:
    """Returns the curve through `{x: (seed, metric, % hurt) of each run}`."""
    x = sorted(points)
    columns = [list(zip(*points[value], strict=True)) for value in x]
    metric, hurt = ([Value.of(c[column], c[0]) for c in columns] for column in (1, 2))
    return Curve(label, x, metric, hurt)


def values_at(
    run: Run, kind: candidate_labels.Kind, split: str = "test"
) -> dict[float, tuple[np.ndarray, np.ndarray]]:
    """Returns `{x: (personalized, baseline)}` of a split, each [clients], {} without candidates.

    What is not `kind` is chosen on validation clients in any case. Coefficients and epochs have the
    global model at 0.
    """
    valid, table = _pivot(run, "valid"), _pivot(run, split)
    if valid is None or table is None or not run.has_trained_baseline:
        return {}
    baseline, values = candidate_labels.BASELINE, {}
    for x, labels in group(list(valid.columns), kind).items():
        chosen = candidates_lib.choose(valid[labels].to_numpy(), run.higher_is_better)
        values[x] = (table[labels[int(chosen)]].to_numpy(), table[baseline].to_numpy())
    if values and kind != "rate":
        values[0.0] = (table[baseline].to_numpy(), table[baseline].to_numpy())
    return values


def group(labels: Sequence[str], kind: candidate_labels.Kind) -> dict[float, list[str]]:
    """Returns the labels that have each value of a hyperparameter; the baseline is in none."""
    groups: dict[float, list[str]] = {}
    for label in labels:
        value = candidate_labels.value(label, kind)
        if value is not None:
            groups.setdefault(value, []).append(label)
    return groups


def _pivot(run: Run, split: str):
    """Returns a table [clients, candidates] of the metric, candidates in the file's order."""
    rows = run.reported("candidates", split)
    if rows is None:
        return None
    table = rows.pivot(index="client_id", columns="candidate", values="value")
    return table[list(dict.fromkeys(rows["candidate"]))]


def draw(data: Data, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws the metric above and % hurt below."""
    figure = two_panels(data.curves, styles, comparison.metric_label, _X_LABELS[data.kind])
    if data.kind == "rate":
        figure.axes[-1].set_xscale("log")
    if data.kind == "epoch":
        figure.axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def two_panels(
    curves: Sequence[Curve], styles: style.Styles, metric_label: str, x_label: str
) -> Figure:
    """Draws curves of the metric above and of % hurt below, with a std over seeds."""
    figure, [[above], [below]] = style.panels(2, height=1.45, sharex=True)
    for curve in curves:
        plot(above, curve, curve.metric, styles[curve.label])
        plot(below, curve, curve.pct_hurt, styles[curve.label])
    above.set_ylabel(metric_label)
    below.set_ylabel("clients hurt (%)")
    from_zero(below)
    below.set_xlabel(x_label)
    style.legend_below(figure, above)
    return figure


def plot(ax: Axes, curve: Curve, values: Sequence[Value], line: style.Style) -> None:
    """Draws a line with error bars, or with a band where bars would touch."""
    means, stds = (np.array(column) for column in zip(*values, strict=True))
    stds = np.nan_to_num(stds)
    every = max(1, len(curve.x) // 10)
    ax.plot(curve.x, means, markevery=every, label=curve.label, **line.options)
    if len(curve.x) > _MAX_BARS:
        band = {"color": line.colour, "alpha": 0.2, "linewidth": 0}
        ax.fill_between(curve.x, means - stds, means + stds, **band)
    elif stds.any():
        bars = {"color": line.colour, "linestyle": "", "capsize": 1.5, "elinewidth": 0.6}
        ax.errorbar(curve.x, means, stds, **bars)


def from_zero(ax: Axes) -> None:
    """Makes an axis of percentages begin at 0, and not end there where all are 0."""
    ax.set_ylim(0.0, max(1.0, ax.get_ylim()[1]))


def caption(data: Data, comparison: Comparison) -> str:
    """Returns the caption, with the best value under either metric of each curve."""
    best = "; ".join(_preferences(curve, comparison) for curve in data.curves)
    chosen = {
        "rate": "At each rate, the number of epochs is the best on validation clients. ",
        "epoch": "Where several rates were tried, each epoch has its best on validation clients. ",
    }.get(data.kind, "")
    return (
        f"Mean over test clients ({comparison.better}) and share of them that are worse off than "
        f"with the global model. {chosen}On these clients: {best}. Bars or bands: a standard "
        "deviation over seeds."
    )


def _best(curve: Curve, comparison: Comparison) -> float:
    """Returns where the mean is best; a value that makes a client diverge is not it."""
    sign = 1.0 if comparison.higher_is_better else -1.0
    means = sign * np.array([v.mean for v in curve.metric])
    return curve.x[int(np.argmax(np.nan_to_num(means, nan=-np.inf)))]


def _preferences(curve: Curve, comparison: Comparison) -> str:
    hurt = np.array([v.mean for v in curve.pct_hurt])
    best = _best(curve, comparison)
    moved = np.flatnonzero(np.array(curve.x) > 0)
    least = int(moved[np.argmin(hurt[moved])])
    return f"{curve.label}: best mean at {best:g}, fewest hurt at {curve.x[least]:g}"


def rate_deltas(comparison: Comparison) -> deltas.Data | None:
    """Returns each client's gain at the rate of best mean and at that of fewest hurt.

    Both are chosen on validation clients, and shown on test clients. Motley's Figure 9(a-b); of the
    first series for which the two differ.
    """
    for series in comparison.series:
        chosen = _curve(series, "rate", "valid")
        if chosen is None or _curve(series, "rate") is None:
            continue
        best = _best(chosen, comparison)
        least = chosen.x[int(np.argmin([v.mean for v in chosen.pct_hurt]))]
        if best != least:
            panels = [_panel(series, best, "best mean"), _panel(series, least, "fewest hurt")]
            return deltas.ranked(panels)
    return None


def _panel(series: Series, rate: float, why: str) -> deltas.Deltas:
    pairs = [values_at(run, "rate")[rate] for run in series.runs]
    personalized, baseline = (np.concatenate(column) for column in zip(*pairs, strict=True))
    higher = series.runs[0].higher_is_better
    gain = client_values.gain(baseline, personalized, higher)
    hurt = client_values.is_hurt(baseline, personalized, higher)
    return deltas.Deltas(f"rate {rate:g}: {why}", gain, gain, hurt)
