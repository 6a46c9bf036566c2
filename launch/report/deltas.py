"""What each client gains, in scatter plots (Motley's Figures 3(b), 8(b), 8(c), 9(a), 9(b)).

A table has a row for each client and seed: `algorithm`, x, under the name that its axis has, `gain`
and `is_hurt`. A gain is positive where a client is better off, also for errors; it is not-a-number
where a model diverged, which is counted and not drawn.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from launch.report import style
from launch.report.comparisons import Comparison
from motley_tff.metrics.client_values import ClientValues

SIZES, RANKS = "personalization examples", "test clients, worst first (%)"


def by_rank(comparison: Comparison) -> pd.DataFrame | None:
    """Returns the test clients of each algorithm, from the one that lost most to the best; those
    that begin with a random model have no gain to show.
    """
    trained = {s.label: [r for r in s.runs if r.has_trained_baseline] for s in comparison.series}
    return ranked({label: [run.values for run in runs] for label, runs in trained.items()})


def ranked(values: Mapping[str, Sequence[ClientValues]]) -> pd.DataFrame | None:
    """Returns the clients of several runs under each label, in the order of what they gain."""
    panels = []
    for label, of_runs in values.items():
        panel = _gains(label, of_runs)
        order = panel["gain"].mask(panel["gain"].isna() & panel["is_hurt"], -np.inf)
        panel = panel.loc[order.sort_values(kind="stable").index]
        panel.insert(1, RANKS, 100.0 * (np.arange(len(panel)) + 0.5) / max(1, len(panel)))
        panels.append(panel)
    return _together(panels)


def by_examples(comparison: Comparison) -> pd.DataFrame | None:
    """Returns the test clients of each algorithm over how many examples they personalize on, of
    those of which that is known.
    """
    column, panels = "num_personalization_examples", []
    for series in comparison.series:
        runs = [run for run in series.runs if run.has_trained_baseline]
        if all(column in run.rows for run in runs):
            x = [run.rows[column].to_numpy(float)[run.values.is_scored] for run in runs]
            panel = _gains(series.label, [run.values for run in runs])
            panel.insert(1, SIZES, np.concatenate([np.zeros(0), *x]))
            panels.append(panel.dropna(subset=SIZES))
    return _together(panels)


def _gains(label: str, values: Sequence[ClientValues]) -> pd.DataFrame:
    """Returns the scored clients of several runs."""
    gain, is_hurt = (
        np.concatenate([np.zeros(0), *(getattr(v, name)[v.is_scored] for v in values)])
        for name in ("delta", "is_hurt")
    )
    gain = np.where(np.isfinite(gain), gain, np.nan)
    return pd.DataFrame({"algorithm": label, "gain": gain, "is_hurt": is_hurt.astype(bool)})


def _together(panels: Sequence[pd.DataFrame]) -> pd.DataFrame | None:
    shown = [panel for panel in panels if panel["gain"].notna().any()]
    return pd.concat(shown, ignore_index=True) if shown else None


def draw(clients: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a small panel for each algorithm, each with limits of its own."""
    x = clients.columns[1]
    panels = dict(iter(clients.groupby("algorithm", sort=False)))
    titles = {
        label: f"{style.wrapped(label, 21)}\n{100.0 * panel['is_hurt'].mean():.1f}% hurt"
        for label, panel in panels.items()
    }
    # A single row is as high as the name of its axis is long.
    height = 1.3 if len(panels) > 2 else 1.9
    lines = max(title.count("\n") for title in titles.values())
    figure, axes = style.grid(len(panels), height=height + 0.13 * lines)
    spreads = [panel[x].max() / max(1.0, panel[x].min()) for panel in panels.values()]
    for ax, (label, panel) in zip(axes, panels.items(), strict=True):
        _scatter(ax, panel, x)
        ax.set_title(titles[label], fontsize=7)
        if x == SIZES and max(spreads) > 20:
            ax.set_xscale("log")
    figure.supxlabel(x, fontsize=8)
    sign = "" if comparison.higher_is_better else "less "
    figure.supylabel(f"gain ({sign}{comparison.metric_name})", fontsize=8)
    return figure


def _scatter(ax: Axes, panel: pd.DataFrame, x: str) -> None:
    """Draws a dot a client, a cross for one that is hurt, and a line at zero."""
    for is_hurt, marker, size, colour in (
        (False, "o", 5, style.KEPT), (True, "x", 9, style.HURT),
    ):  # fmt: skip
        shown = panel[panel["is_hurt"] == is_hurt]
        ax.scatter(
            shown[x], shown["gain"], size, colour, marker=marker, alpha=0.7, linewidths=0.7,
            rasterized=len(panel) > style.MAX_VECTOR_POINTS,
        )  # fmt: skip
    ax.axhline(0.0, color="black", linewidth=0.7, linestyle="--")


def numbers(clients: pd.DataFrame, comparison: Comparison) -> list[dict[str, Any]]:
    """Returns how many clients there are and are hurt; over sizes, whether the small ones are."""
    rows = []
    for label, panel in clients.groupby("algorithm", sort=False):
        is_hurt = panel["is_hurt"]
        row = {"algorithm": label, "clients": len(panel), "diverged": panel["gain"].isna().sum()}
        row["hurt (%)"] = 100.0 * is_hurt.mean()
        if SIZES in panel and (ends := thirds(panel[SIZES].to_numpy())) is not None:
            row["hurt with fewest examples (%)"] = 100.0 * is_hurt[ends[0]].mean()
            row["hurt with most examples (%)"] = 100.0 * is_hurt[ends[1]].mean()
        rows.append(row)
    return rows


def thirds(x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns masks of the clients in the lowest and in the highest third, [num_clients] each, with
    all that tie at its border; None if there are too few clients or the thirds share a value.
    """
    size, ordered = len(x) // 3, np.sort(x)
    if not size or ordered[size - 1] >= ordered[-size]:
        return None
    return x <= ordered[size - 1], x >= ordered[-size]
