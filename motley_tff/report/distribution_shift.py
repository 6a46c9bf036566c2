"""In-distribution against out-of-distribution metric (Motley's Figure 4).

A run with `--evaluate_ood` scores every candidate also on examples pooled from other clients: the
points of a curve are its candidates (fine-tuning epochs, kNN-Per's coefficients), the global model
first.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from motley_tff.report import findings, style
from motley_tff.report.candidate_curves import group
from motley_tff.report.comparisons import Comparison, Series
from motley_tff.report.runs import Run

# The epochs that the paper's figure shows.
_EPOCHS = (1.0, 3.0, 5.0, 10.0, 15.0)


class Curve(NamedTuple):
    """One series: means over test clients, averaged over seeds, the global model first, [points].

    `inside` is on the clients' own evaluation sets, `outside` on other clients' examples.
    """

    label: str
    names: Sequence[str]
    inside: np.ndarray
    outside: np.ndarray


def data(comparison: Comparison) -> list[Curve]:
    """Returns a curve for each algorithm that was scored out of distribution."""
    return comparison.of_series(_curve)


def _curve(series: Series) -> Curve | None:
    points = [pairs for run in series.runs if (pairs := _points(run))]
    if not points:
        return None
    names = [name for name in points[0] if all(name in pairs for pairs in points)]
    means = np.array([[pairs[name] for name in names] for pairs in points]).mean(axis=0)
    return Curve(series.label, names, means[:, 0], means[:, 1])


def _points(run: Run) -> dict[str, tuple[float, float]]:
    """Returns `{candidate: (inside, outside)}` of a run, empty if it was not scored outside."""
    rows, valid = run.reported("candidates"), run.reported("candidates", "valid")
    if rows is None or valid is None or "ood_value" not in rows or rows["ood_value"].isna().all():
        return {}
    means = rows.groupby("candidate", sort=False)[["value", "ood_value"]].mean()
    labels = selection(valid.groupby("candidate", sort=False)["value"].mean(), run.higher_is_better)
    if not run.has_trained_baseline:
        labels.pop("global model", None)
    return {
        name: (means["value"][label], means["ood_value"][label]) for name, label in labels.items()
    }


def selection(validation: pd.Series, higher_is_better: bool) -> dict[str, str]:
    """Returns `{name: label}` of the candidates to show, the global model first.

    Of several fine-tuning rates that of the best candidate on validation clients, of many epochs
    those of the paper; `validation` are means over validation clients by label.
    """
    labels = list(validation.index)
    personalized = validation.drop(index="0", errors="ignore").dropna()
    if personalized.empty:
        return {}
    best = personalized.idxmax() if higher_is_better else personalized.idxmin()
    for of_rate in group(labels, "rate").values():
        if best in of_rate:
            labels = ["0", *of_rate]
    shown = {"global model": "0"} if "0" in labels else {}
    epochs = {epoch: of_epoch[0] for epoch, of_epoch in group(labels, "epoch").items()}
    if len(epochs) > len(_EPOCHS):
        return shown | {f"epoch {e:g}": label for e, label in epochs.items() if e in _EPOCHS}
    return shown | {label: label for label in labels if label != "0"}


def draw(curves: Sequence[Curve], comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a curve for each algorithm; the global model is a hollow marker."""
    figure, [[ax]] = style.panels(1, height=2.3)
    for curve in curves:
        line = styles[curve.label]
        ax.plot(curve.inside, curve.outside, label=curve.label, **line.options)
        if curve.names[0] == "global model":
            ax.plot(
                curve.inside[:1], curve.outside[:1], marker=line.marker, markersize=7,
                markerfacecolor="white", markeredgecolor=line.colour, linestyle="",
            )  # fmt: skip
    ax.margins(0.08)
    ax.set_xlabel(f"{comparison.metric_label}, own examples")
    ax.set_ylabel(f"{comparison.metric_label},\nother clients' examples")
    style.legend_below(figure, ax)
    return figure


def caption(curves: Sequence[Curve], comparison: Comparison) -> str:
    """Returns the figure's caption."""
    changes = [
        f"{c.label} {c.inside[-1] - c.inside[0]:+.3g} and {c.outside[-1] - c.outside[0]:+.3g}"
        for c in curves
    ]
    points = "; ".join(f"{c.label}: {', '.join(c.names)}" for c in curves)
    return (
        "From the first to the last point, on own and on others' examples: "
        f"{findings.listed(changes)}. "
        "Test clients' models on their own evaluation sets (across) and on examples of other "
        f"clients (up), means over clients and seeds ({comparison.better}); hollow: the global "
        f"model.{comparison.baseline_note} Points in order: {points}."
    )
