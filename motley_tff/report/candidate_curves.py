"""Metric and % hurt over what one run tries: rates, coefficients, epochs, sizes.

Motley's Figures 3(c) and 9(c) (fine-tuning rate), 6(a-b) (interpolation coefficient) and 6(c) (size
of the personalization set). A run scores every candidate on every client, so that no candidate
needs a run of its own. Where candidates have two hyperparameters, the other one is chosen, for each
value of the first, by the mean over validation clients.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from motley_tff.core import candidate_labels, candidates as candidates_lib
from motley_tff.metrics import client_values, hurt, statistics
from motley_tff.report import deltas, findings, style
from motley_tff.report.comparisons import Comparison, Series, Value
from motley_tff.report.runs import Run

_X_LABELS = {
    "rate": "fine-tuning learning rate",
    "coefficient": "weight of the neighbours (0 = global model)",
    "epoch": "fine-tuning epochs",
    "size": "share of the personalization set used (%)",
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

    kind: candidate_labels.Kind | Literal["size"]
    curves: Sequence[Curve]


def _data(comparison: Comparison, kind: candidate_labels.Kind) -> Data | None:
    curves = comparison.of_series(lambda series: _curve(series, kind))
    return Data(kind, curves) if curves else None


# The curves over fine-tuning rates, and over kNN-Per's coefficients and fine-tuning epochs, which
# have the global model at 0.
rates = functools.partial(_data, kind="rate")
coefficients = functools.partial(_data, kind="coefficient")
epochs = functools.partial(_data, kind="epoch")


def sizes(comparison: Comparison) -> Data | None:
    """Returns the curves over the percentage of the personalization set that is used."""
    curves = comparison.of_series(lambda series: _curve_through(series, _at_sizes, 2))
    return Data("size", curves) if curves else None


def _at_sizes(run: Run) -> dict[float, tuple[float, float]]:
    rows = run.reported("sizes")
    if rows is None:
        return {}
    means = zip(rows["personalized_mean"], rows["pct_clients_hurt"], strict=True)
    return dict(zip(100.0 * rows["personalization_fraction"], means, strict=True))


def _curve(series: Series, kind: candidate_labels.Kind, split: str = "test") -> Curve | None:
    def measures(run: Run) -> dict[float, tuple[float, float]]:
        return {
            x: (statistics.mean_of_all(values, "personalized"), hurt.pct_clients_hurt(values))
            for x, values in values_at(run, kind, split).items()
        }

    # The global model and one candidate make no curve.
    return _curve_through(series, measures, 3)


def _curve_through(
    series: Series, measures: Callable[[Run], Mapping[float, tuple[float, float]]], least: int
) -> Curve | None:
    """Returns the curve through `{x: (metric, % hurt)}` of each run, if it has `least` points."""
    values = series.each_over_seeds(measures)
    x = sorted(values)
    metric, hurt = ([values[place][column] for place in x] for column in (0, 1))
    return Curve(series.label, x, metric, hurt) if len(x) >= least else None


def values_at(
    run: Run, kind: candidate_labels.Kind, split: str = "test"
) -> dict[float, client_values.ClientValues]:
    """Returns `{x: the clients' values}` of a split, {} without candidates.

    What is not `kind` is chosen on validation clients in any case. Coefficients and epochs have the
    global model at 0.
    """
    valid, table = _pivot(run, "valid"), _pivot(run, split)
    if valid is None or table is None or not run.has_trained_baseline:
        return {}
    baseline = table[candidate_labels.BASELINE].to_numpy()
    columns = {}
    for x, labels in group(list(valid.columns), kind).items():
        chosen = candidates_lib.choose(valid[labels].to_numpy(), run.higher_is_better)
        columns[x] = table[labels[int(chosen)]].to_numpy()
    if columns and kind != "rate":
        columns[0.0] = baseline
    ids, higher = table.index.to_numpy(), run.higher_is_better
    return {
        x: client_values.ClientValues(ids, baseline, personalized, higher, None)
        for x, personalized in columns.items()
    }


def group(labels: Sequence[str], kind: candidate_labels.Kind) -> dict[float, list[str]]:
    """Returns the labels that have each value of a hyperparameter; the baseline is in none."""
    groups: dict[float, list[str]] = {}
    for label in labels:
        value = candidate_labels.value(label, kind)
        if value is not None:
            groups.setdefault(value, []).append(label)
    return groups


def _pivot(run: Run, split: str):
    """Returns a table [clients, candidates] of the metric, candidates in the file's order: the
    worst infinity where one diverged, not-a-number of a client without any value.
    """
    rows = run.reported("candidates", split)
    if rows is None:
        return None
    table = rows.pivot(index="client_id", columns="candidate", values="value")
    table = table[list(dict.fromkeys(rows["candidate"]))]
    is_scored = table.notna().any(axis=1).to_numpy()[:, None]
    return table.mask(table.isna() & is_scored, -np.inf if run.higher_is_better else np.inf)


def draw(data: Data, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws the metric above and % hurt below, with a std over seeds."""
    figure, [[above], [below]] = style.panels(2, height=1.45, sharex=True)
    for curve in data.curves:
        plot(above, curve, curve.metric, styles[curve.label])
        plot(below, curve, curve.pct_hurt, styles[curve.label])
    above.set_ylabel(comparison.metric_label)
    below.set(xlabel=_X_LABELS[data.kind], ylabel="clients hurt (%)")
    from_zero(below)
    style.legend_below(figure, above)
    if data.kind == "rate":
        below.set_xscale("log")
    if data.kind == "epoch":
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def plot(ax: Axes, curve: Curve, values: Sequence[Value], line: style.Style) -> None:
    """Draws a line with error bars, or with a band where bars would touch."""
    means, stds = (np.array(column) for column in zip(*values, strict=True))
    stds = np.nan_to_num(stds)
    every = max(1, len(curve.x) // 10)
    ax.plot(curve.x, means, markevery=every, label=curve.label, **line.options)
    if len(curve.x) > _MAX_BARS:
        ax.fill_between(curve.x, means - stds, means + stds, **line.band)
    elif stds.any():
        ax.errorbar(
            curve.x, means, stds, color=line.colour, linestyle="", capsize=1.5, elinewidth=0.6
        )


def from_zero(ax: Axes) -> None:
    """Makes an axis of percentages begin at 0, and not end there where all are 0."""
    ax.set_ylim(0.0, max(1.0, ax.get_ylim()[1]))


def caption(data: Data, comparison: Comparison) -> str:
    """Returns the caption, with the best value under either metric of each curve of candidates."""
    if data.kind == "size":
        ends = [
            f"{curve.label} {first.mean:.4g} at {curve.x[0]:g}, {last.mean:.4g} at {curve.x[-1]:g}"
            for curve in data.curves
            for first, last in [(curve.metric[0], curve.metric[-1])]
        ]
        return (
            f"{findings.listed(ends)}. "
            f"Mean over test clients ({comparison.better}) and share of them that are hurt when "
            "each client personalizes on a part of its personalization set only. Bars: a standard "
            "deviation over seeds."
        )
    best = "; ".join(_preferences(curve, comparison, data.kind) for curve in data.curves)
    chosen = {
        "rate": "At each rate, the number of epochs is the best on validation clients. ",
        "epoch": "Where several rates were tried, each epoch has its best on validation clients. ",
    }.get(data.kind, "")
    return (
        f"Mean over test clients ({comparison.better}) and share of them that are worse off than "
        f"with the global model. {chosen}On these clients: {best}. Bars or bands: a standard "
        "deviation over seeds."
    )


def best_of(curve: Curve, comparison: Comparison) -> float | None:
    """Returns where the mean is best; a value that makes a client diverge is not it. None if all
    do.
    """
    sign = 1.0 if comparison.higher_is_better else -1.0
    means = sign * np.array([v.mean for v in curve.metric])
    if np.isnan(means).all():
        return None
    return curve.x[int(np.argmax(np.nan_to_num(means, nan=-np.inf)))]


def _preferences(curve: Curve, comparison: Comparison, kind: str) -> str:
    pct_hurt = np.array([v.mean for v in curve.pct_hurt])
    best = best_of(curve, comparison)
    moved = np.flatnonzero(np.array(curve.x) > 0)
    least = int(moved[np.argmin(pct_hurt[moved])])
    # A coefficient ends at 1; beyond the last epoch or rate may lie a better one.
    end = " (the last one tried)" if best == curve.x[-1] and kind != "coefficient" else ""
    found = "no finite mean" if best is None else f"best mean at {best:g}{end}"
    return f"{curve.label}: {found}, fewest hurt at {curve.x[least]:g}"


def rate_deltas(comparison: Comparison) -> deltas.Data | None:
    """Returns each client's gain at the rate of best mean and at that of fewest hurt.

    Both are chosen on validation clients, and shown on test clients. Motley's Figure 9(a-b); of the
    first series for which the two differ.
    """
    for series in comparison.series:
        chosen = _curve(series, "rate", "valid")
        if chosen is None or _curve(series, "rate") is None:
            continue
        best = best_of(chosen, comparison)
        least = chosen.x[int(np.argmin([v.mean for v in chosen.pct_hurt]))]
        if best is not None and best != least:
            pairs = ((best, "best mean"), (least, "fewest hurt"))
            return deltas.ranked([_panel(series, rate, why) for rate, why in pairs])
    return None


def _panel(series: Series, rate: float, why: str) -> deltas.Deltas:
    each = [values_at(run, "rate")[rate] for run in series.runs]
    gain = np.concatenate([values.delta[values.is_scored] for values in each])
    gain = np.where(np.isfinite(gain), gain, np.nan)
    is_hurt = np.concatenate([values.is_hurt[values.is_scored] for values in each])
    return deltas.Deltas(f"rate {rate:g} ({why} in validation)", gain, gain, is_hurt)
