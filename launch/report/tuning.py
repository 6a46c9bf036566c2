"""Candidates chosen per client against one global choice (Motley's Figures 7 and 11)."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from launch.report import style
from launch.report.comparisons import Comparison, Series, Value
from launch.report.runs import ReportedRun
from motley_tff.metrics import statistics
from motley_tff.metrics.client_values import ClientValues
from motley_tff.tables import columns

MODELS = ("before", *columns.WAYS)


def data(comparison: Comparison) -> pd.DataFrame:
    """Returns a row for each algorithm in which the two ways choose differently: of `MODELS` the
    mean over silos and its deviation over seeds (`_std`), of the ways how many are hurt, and
    `gains` in these, [2, silos].
    """
    return pd.DataFrame(comparison.of_series(_row))


def _row(series: Series) -> dict[str, Any] | None:
    chosen = [f"candidate_{way}" for way in columns.WAYS]
    runs = [r for r in series.runs if {*chosen} <= {*r.rows} and r.has_trained_baseline]
    if not any(run.rows[chosen].nunique(axis=1).gt(1).any() for run in runs):
        return None
    ways = {way: [_values(run, way) for run in runs] for way in columns.WAYS}
    gains = np.array([np.concatenate([values.delta for values in way]) for way in ways.values()])
    shown = np.isfinite(gains).all(axis=0)
    if not shown.any():
        return None
    row: dict[str, Any] = {"algorithm": series.label, "gains": gains[:, shown]}
    seeds = [run.seed for run in runs]
    means = [statistics.mean_of_all(run.values, "baseline") for run in runs]
    row["before"], row["before_std"] = Value.of(means, seeds)
    for way, values in ways.items():
        means = [statistics.mean_of_all(of_run, "personalized") for of_run in values]
        row[way], row[f"{way}_std"] = Value.of(means, seeds)
        is_hurt = np.concatenate([of_run.is_hurt[of_run.is_scored] for of_run in values])
        row[f"hurt, {way} (%)"] = 100.0 * is_hurt.mean()
    return row


def _values(run: ReportedRun, way: str) -> ClientValues:
    """Returns silos under one way to choose."""
    personalized = run.rows[f"personalized_{way}"].to_numpy(float)
    return dataclasses.replace(run.values, personalized=personalized)


def draw(rows: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws for each algorithm the means on the left and the silos' gains on the right."""
    figure, axes = style.panels(len(rows), 2, height=1.6, width_ratios=(1, 1.3))
    for [left, right], row in zip(axes, rows.to_dict("records"), strict=True):
        for place, (model, look) in enumerate(style.styles(MODELS).items()):
            style.point(left, place, row[model], look, yerr=row[f"{model}_std"])
        left.set_xticks(range(len(MODELS)), [m.replace("_", "\n") for m in MODELS], fontsize=6)
        left.set_xlim(-0.5, len(MODELS) - 0.5)
        left.set_title(style.wrapped(row["algorithm"], 21), fontsize=7)
        left.set_ylabel(comparison.metric_label, fontsize=7)
        _silos(right, row["gains"])
        hurt = " → ".join(f"{row[f'hurt, {way} (%)']:.1f}%" for way in columns.WAYS)
        right.set_title(f"{hurt} hurt", fontsize=7)
    return figure


def _silos(ax: Axes, gains: np.ndarray) -> None:
    ax.scatter(gains[0], gains[1], s=5, alpha=0.6, rasterized=gains.size > style.MAX_VECTOR_POINTS)
    ends = np.append(gains, 0.0)
    margin = 0.06 * (np.ptp(ends) or 1.0)
    limits = (ends.min() - margin, ends.max() + margin)
    ax.set(xlim=limits, ylim=limits)
    ax.locator_params(axis="x", nbins=2)
    ax.tick_params(labelsize=6)
    ax.plot(limits, limits, color=style.GREY, linewidth=0.7)
    for line in (ax.axhline, ax.axvline):
        line(0.0, color="black", linewidth=0.6, linestyle="--")
    ax.set_xlabel("gain, global", fontsize=7)
    ax.set_ylabel("gain, per_client", fontsize=7)


def numbers(rows: pd.DataFrame, comparison: Comparison) -> list[dict[str, Any]]:
    """Returns the means, and who is hurt."""
    return rows[[n for n in rows if n != "gains" and not n.endswith("_std")]].to_dict("records")
