"""Which clients are in which learned cluster (Motley's Figure 5(d))."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from motley_tff.report import findings, style
from motley_tff.report.comparisons import Comparison, Series

_UNKNOWN = "clients"


class Panel(NamedTuple):
    """One series' first seed: clusters of another seed have other numbers.

    `num_clusters` were learned, `clusters` are the numbers of those that a client is in, `counts`
    is `{group: number of test clients in each of these}`.
    """

    label: str
    num_clusters: int
    clusters: np.ndarray
    counts: dict[str, np.ndarray]


def data(comparison: Comparison) -> list[Panel]:
    """Returns how many test clients of each known group are in each cluster."""
    return comparison.of_series(_panel)


def _panel(series: Series) -> Panel | None:
    rows = series.runs[0].reported("clusters")
    if rows is None:
        return None
    group = rows["group"].replace("", _UNKNOWN)
    table = rows["num_clients"].groupby([rows["cluster_id"], group]).sum().unstack(fill_value=0)
    counts = {str(name): table[name].to_numpy(float) for name in table}
    clusters = table.index.to_numpy(int)
    # A copy of the tables without run.json does not say.
    number = int(series.runs[0].flags.get("num_clusters", clusters.max()))
    return Panel(series.label, number, clusters, counts)


def groups(panels: Sequence[Panel]) -> list[str]:
    """Returns the names of all groups."""
    return sorted({name for panel in panels for name in panel.counts})


def draw(panels: Sequence[Panel], comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws stacked bars, a bar a cluster; colours are those of groups, not of algorithms."""
    figure, axes = style.grid(len(panels), height=1.6)
    group_styles = style.styles(groups(panels))
    for ax, panel in zip(axes, panels, strict=True):
        bottom = np.zeros(len(panel.clusters))
        for group, counts in panel.counts.items():
            bar = group_styles[group]
            ax.bar(
                panel.clusters, counts, 0.65, bottom=bottom, color=bar.colour, hatch=bar.hatch,
                edgecolor="white", linewidth=0.5,
            )  # fmt: skip
            bottom += counts
        ax.set_xticks(range(1, panel.num_clusters + 1))
        ax.set_xlim(0.4, panel.num_clusters + 0.6)
        ax.set_xlabel("cluster")
        ax.set_title(style.wrapped(panel.label, 21), fontsize=7)
    figure.supylabel("test clients", fontsize=8)
    if groups(panels) != [_UNKNOWN]:
        patches = {
            name: Patch(facecolor=bar.colour, hatch=bar.hatch, edgecolor="white")
            for name, bar in group_styles.items()
        }
        style.legend_of(figure, patches)
    return figure


def caption(panels: Sequence[Panel], comparison: Comparison) -> str:
    """Returns the figure's caption."""
    known = "of each known group " if groups(panels) != [_UNKNOWN] else ""
    counts = [(panel.label, np.sum(list(panel.counts.values()), axis=0)) for panel in panels]
    largest = [f"{label} {100.0 * n.max() / n.sum():.0f}%" for label, n in counts]
    return (
        f"In the largest cluster: {findings.listed(largest)} of the clients. "
        f"How many test clients {known}choose each learned cluster, in the first seed's run; a "
        "cluster that none chose has no bar."
    )
