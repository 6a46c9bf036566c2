"""Metric over the size of the personalization set (Motley's Figure 6(c))."""

from typing import NamedTuple

from matplotlib.figure import Figure

from motley_tff.report import style
from motley_tff.report.candidate_curves import Curve, curve_through, two_panels
from motley_tff.report.comparisons import Comparison, Series


class Data(NamedTuple):
    """Curves over the share of the personalization set that is used."""

    curves: list[Curve]
    metric_label: str


def data(comparison: Comparison) -> Data | None:
    """Returns a curve for each algorithm that was scored with several sizes."""
    curves = [curve for s in comparison.series if (curve := _curve(s)) is not None]
    return Data(curves, comparison.metric_label) if curves else None


def _curve(series: Series) -> Curve | None:
    points: dict[float, list[tuple[int, float, float]]] = {}
    for run in series.runs:
        rows = run.reported("sizes")
        if rows is not None:
            columns = ("personalization_fraction", "personalized_mean", "pct_clients_hurt")
            for fraction, mean, hurt in zip(*(rows[c] for c in columns), strict=True):
                points.setdefault(100.0 * fraction, []).append((run.seed, mean, hurt))
    return curve_through(series.label, points) if len(points) > 1 else None


def draw(data: Data, styles: style.Styles) -> Figure:
    """Draws the metric above and % hurt below."""
    return two_panels(
        data.curves, styles, data.metric_label, "share of the personalization set used (%)"
    )


def caption(data: Data, comparison: Comparison) -> str:
    """Returns the figure's caption."""
    del data
    return (
        f"Mean over test clients ({comparison.better}) and share of them that are hurt when each "
        "client personalizes on a part of its personalization set only. Bars: a standard deviation "
        "over seeds."
    )
