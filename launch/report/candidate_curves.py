"""Metric and % hurt over what one run tries: rates, coefficients, epochs, sizes.

Motley's Figures 3(c) and 9(c) (fine-tuning rate), 6(a-b) (interpolation coefficient) and 6(c) (size
of the personalization set). A run scores every candidate on every client, so that no candidate
needs a run of its own. Where candidates have two hyperparameters, the other one is chosen, for each
value of the first, by the mean over validation clients.

A table of curves has `algorithm`, the hyperparameter, ascending, under the name that its axis has,
and `mean` (over test clients) and `hurt (%)`, each with its deviation over seeds (`_std`).
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from launch.report import deltas, style
from launch.report.comparisons import Comparison
from launch.report.runs import ReportedRun
from motley_tff.core import candidate_labels, candidates as candidates_lib
from motley_tff.core.candidate_labels import Kind
from motley_tff.metrics import hurt, statistics
from motley_tff.metrics.client_values import ClientValues

AXES: dict[Kind, str] = {
    "rate": "fine-tuning learning rate",
    "coefficient": "weight of the neighbours (0 = global model)",
    "epoch": "fine-tuning epochs",
}
SIZE = "share of the personalization set used (%)"


def _curves(comparison: Comparison, kind: Kind, split: str = "test") -> pd.DataFrame:
    def table(run: ReportedRun) -> pd.DataFrame:
        rows = [
            (x, statistics.mean_of_all(values, "personalized"), hurt.pct_clients_hurt(values))
            for x, values in values_at(run, kind, split).items()
        ]
        return pd.DataFrame(rows, columns=[AXES[kind], "mean", "hurt (%)"])

    # The global model and one candidate make no curve.
    return of_length(comparison.over_seeds(table, AXES[kind]), 3)


def of_length(curves: pd.DataFrame, least: int) -> pd.DataFrame:
    """Returns the curves that have so many points."""
    return curves.groupby("algorithm", sort=False).filter(lambda curve: len(curve) >= least)


# The curves over fine-tuning rates, and over kNN-Per's coefficients and fine-tuning epochs, which
# have the global model at 0.
rates = functools.partial(_curves, kind="rate")
coefficients = functools.partial(_curves, kind="coefficient")
epochs = functools.partial(_curves, kind="epoch")


def sizes(comparison: Comparison) -> pd.DataFrame:
    """Returns the curves over the percentage of the personalization set that is used."""

    def table(run: ReportedRun) -> pd.DataFrame | None:
        rows = run.reported("sizes")
        if rows is None:
            return None
        rows = rows[["personalization_fraction", "personalized_mean", "pct_clients_hurt"]]
        rows = rows.set_axis([SIZE, "mean", "hurt (%)"], axis=1)
        return rows.assign(**{SIZE: 100.0 * rows[SIZE]})

    return of_length(comparison.over_seeds(table, SIZE), 2)


def values_at(run: ReportedRun, kind: Kind, split: str = "test") -> dict[float, ClientValues]:
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
    first, higher = (table.index.to_numpy(), baseline), run.higher_is_better
    return {x: ClientValues(*first, column, higher, None) for x, column in columns.items()}


def group(labels: Sequence[str], kind: Kind) -> dict[float, list[str]]:
    """Returns the labels that have each value of a hyperparameter; the baseline is in none."""
    groups: dict[float, list[str]] = {}
    for label in labels:
        value = candidate_labels.value(label, kind)
        if value is not None:
            groups.setdefault(value, []).append(label)
    return groups


def _pivot(run: ReportedRun, split: str) -> pd.DataFrame | None:
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


def draw(curves: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws the metric above and % hurt below, with a std over seeds."""
    figure, [[above], [below]] = style.panels(2, height=1.45, sharex=True)
    x = curves.columns[1]
    plot(above, below, curves, x, styles)
    above.set_ylabel(comparison.metric_label)
    below.set(xlabel=x, ylabel="clients hurt (%)")
    style.legend_below(figure, above)
    if x == AXES["rate"]:
        below.set_xscale("log")
    if x == AXES["epoch"]:
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def plot(above: Axes, below: Axes, curves: pd.DataFrame, x: str, styles: style.Styles) -> None:
    """Draws curves on two axes, of which percentages begin at 0, and end above where all are 0."""
    style.lines(above, curves, x, "mean", styles)
    style.lines(below, curves, x, "hurt (%)", styles)
    below.set_ylim(0.0, max(1.0, below.get_ylim()[1]))


def numbers(curves: pd.DataFrame, comparison: Comparison) -> list[dict[str, Any]]:
    """Returns where each curve is best."""
    x = curves.columns[1]
    return [
        {"algorithm": label, **best(curve, x, comparison.higher_is_better)}
        for label, curve in curves.groupby("algorithm", sort=False)
    ]


def best(curve: pd.DataFrame, x: str, higher_is_better: bool) -> dict[str, Any]:
    """Returns a curve's best mean and fewest hurt, and where they are, as far as they are finite.

    The global model, at 0, hurts nobody, so it does not count as fewest hurt. The range that was
    tried shows whether the best value is at its end.
    """
    points: dict[str, Any] = {"tried": f"{curve[x].min():g} to {curve[x].max():g}"}
    personalized = curve[curve[x] > 0]
    for name, column, rows, ascending in (
        ("best mean", "mean", curve, not higher_is_better),
        ("fewest hurt", "hurt (%)", personalized, True),
    ):
        ordered = rows.dropna(subset=column).sort_values(column, ascending=ascending, kind="stable")
        if len(ordered):
            points |= {name: ordered[column].iloc[0], f"{name} at": ordered[x].iloc[0]}
    return points


def rate_deltas(comparison: Comparison) -> pd.DataFrame | None:
    """Returns each client's gain at the rate of best mean and at that of fewest hurt.

    Both are chosen on validation clients, and shown on test clients. Motley's Figure 9(a-b); of the
    first series for which the two differ.
    """
    shown, chosen = rates(comparison), rates(comparison, split="valid")
    for series in comparison.series:
        if series.label not in {*shown.get("algorithm", ())} & {*chosen.get("algorithm", ())}:
            continue
        curve = chosen[chosen["algorithm"] == series.label]
        bests = best(curve, AXES["rate"], comparison.higher_is_better)
        mean, least = bests.get("best mean at"), bests.get("fewest hurt at")
        if mean is not None and least is not None and mean != least:
            pairs = {f"rate {mean:g} (best mean in validation)": mean,
                     f"rate {least:g} (fewest hurt in validation)": least}  # fmt: skip
            curves = [values_at(run, "rate") for run in series.runs]
            return deltas.ranked({label: [c[x] for c in curves] for label, x in pairs.items()})
    return None
