"""In-distribution against out-of-distribution metric (Motley's Figure 4).

A run with `--evaluate_ood` scores every candidate also on examples pooled from other clients: the
points of a curve are its candidates (fine-tuning epochs, kNN-Per's coefficients), the global model
first.
"""

import pandas as pd
from matplotlib.figure import Figure

from launch.report import style
from launch.report.candidate_curves import group
from launch.report.comparisons import Comparison
from launch.report.runs import ReportedRun

# The epochs that the paper's figure shows.
_EPOCHS = (1.0, 3.0, 5.0, 10.0, 15.0)
_GLOBAL = "global model"
_OWN, _OTHERS = "own examples", "others' examples"


def data(comparison: Comparison) -> pd.DataFrame:
    """Returns the means over test clients, averaged over seeds, of each model of the algorithms
    that were scored out of distribution, in the order of the first run.
    """
    return comparison.over_seeds(_points, "model", sort=False, shared=True)


def _points(run: ReportedRun) -> pd.DataFrame | None:
    """Returns the models of a run, None if it was not scored outside."""
    rows, valid = run.reported("candidates"), run.reported("candidates", "valid")
    if rows is None or valid is None or "ood_value" not in rows or rows["ood_value"].isna().all():
        return None
    means = rows.groupby("candidate", sort=False)[["value", "ood_value"]].mean()
    labels = selection(valid.groupby("candidate", sort=False)["value"].mean(), run.higher_is_better)
    if not run.has_trained_baseline:
        labels.pop(_GLOBAL, None)
    points = means.loc[list(labels.values())].set_axis([_OWN, _OTHERS], axis=1)
    return points.assign(model=list(labels))


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
    shown = {_GLOBAL: "0"} if "0" in labels else {}
    epochs = {epoch: of_epoch[0] for epoch, of_epoch in group(labels, "epoch").items()}
    if len(epochs) > len(_EPOCHS):
        return shown | {f"epoch {e:g}": label for e, label in epochs.items() if e in _EPOCHS}
    return shown | {label: label for label in labels if label != "0"}


def draw(curves: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a curve for each algorithm; the global model is a hollow marker."""
    figure, [[ax]] = style.panels(1, height=2.3)
    style.lines(ax, curves.drop(columns=f"{_OTHERS}_std"), _OWN, _OTHERS, styles)
    for row in curves[curves["model"] == _GLOBAL].to_dict("records"):
        look = styles[row["algorithm"]]
        ax.plot(
            row[_OWN], row[_OTHERS], marker=look.marker, markersize=7, markerfacecolor="white",
            markeredgecolor=look.colour, linestyle="",
        )  # fmt: skip
    ax.margins(0.08)
    ax.set_xlabel(f"{comparison.metric_label}, own examples")
    ax.set_ylabel(f"{comparison.metric_label},\nother clients' examples")
    style.legend_below(figure, ax)
    return figure
