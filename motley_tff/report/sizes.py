"""Metric over the size of the personalization set (Motley's Figure 6(c))."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from motley_tff.report import style
from motley_tff.report.candidate_curves import Curve, curve_through, two_panels
from motley_tff.report.comparisons import Comparison, Series


def data(comparison: Comparison) -> list[Curve]:
    """Returns a curve for each algorithm that was scored with several sizes."""
    return comparison.of_series(_curve)


def _curve(series: Series) -> Curve | None:
    points: dict[float, list[tuple[int, float, float]]] = {}
    for run in series.runs:
        rows = run.reported("sizes")
        if rows is not None:
            columns = ("personalization_fraction", "personalized_mean", "pct_clients_hurt")
            for fraction, mean, hurt in zip(*(rows[c] for c in columns), strict=True):
                points.setdefault(100.0 * fraction, []).append((run.seed, mean, hurt))
    return curve_through(series.label, points) if len(points) > 1 else None


def draw(curves: Sequence[Curve], comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws the metric above and % hurt below."""
    label = "share of the personalization set used (%)"
    return two_panels(curves, styles, comparison.metric_label, label)


def caption(curves: Sequence[Curve], comparison: Comparison) -> str:
    """Returns the figure's caption."""
    return (
        f"Mean over test clients ({comparison.better}) and share of them that are hurt when each "
        "client personalizes on a part of its personalization set only. Bars: a standard deviation "
        "over seeds."
    )
