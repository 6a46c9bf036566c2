"""Density of the quantum of improvement F = P - max(G, L) over clients.

Personalized, global and local values of the same client and seed, joined by client id; local ones
are those of a run of local training, global ones the baseline of the run itself where that is
FedAvg's model, else of another run of the seed. Constant F has no density and is left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from motley_tff.metrics import quantum_of_improvement
from motley_tff.report import names, style
from motley_tff.report.comparisons import Comparison
from motley_tff.report.runs import Run

_POINTS = 200


class Curve(NamedTuple):
    """One algorithm: F of each client and seed, positive is better also for errors, [clients]."""

    label: str
    values: np.ndarray

    @property
    def pct_improved(self) -> float:
        """Percentage of clients with F > 0 (PUI)."""
        return 100.0 * float(np.mean(self.values > 0))


def data(comparison: Comparison) -> list[Curve]:
    """Returns F of every algorithm, nothing without runs of local training and of FedAvg."""
    runs = [run for series in comparison.series for run in series.runs]
    local = {run.seed: run for run in runs if run.algorithm == "local"}
    fedavg_runs = [run for run in runs if names.has_fedavg_baseline(run.algorithm)]
    fedavg = {run.seed: run for run in reversed(fedavg_runs) if run.has_trained_baseline}
    curves = []
    for series in comparison.series:
        has_fedavg = names.has_fedavg_baseline(series.algorithm)
        parts = [
            quantum(run, run if has_fedavg else fedavg[run.seed], local[run.seed])
            for run in series.runs
            if series.algorithm != "local" and run.seed in fedavg and run.seed in local
        ]
        values = np.concatenate([np.zeros(0), *parts])
        values = values[np.isfinite(values)]
        if values.size > 2 and np.ptp(values) > 0:
            curves.append(Curve(series.label, values))
    return curves


def quantum(personal: Run, fedavg: Run, local: Run) -> np.ndarray:
    """Returns F of the test clients that are in all three runs, [clients]."""
    columns = (
        (personal.values, personal.values.personalized),
        (fedavg.values, fedavg.values.baseline),
        (local.values, local.values.personalized),
    )
    by_client = [dict(zip(v.client_ids, numbers, strict=True)) for v, numbers in columns]
    ids = [i for i in by_client[0] if all(i in numbers for numbers in by_client)]
    p, g, l_ = (np.array([numbers[i] for i in ids]) for numbers in by_client)
    return quantum_of_improvement.quantum(p, g, l_, personal.higher_is_better)


def draw(curves: Sequence[Curve], comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a density for each algorithm, and a line at zero."""
    import scipy.stats  # Takes 0.4 s.

    figure, [[ax]] = style.panels(1, height=2.1)
    values = np.concatenate([curve.values for curve in curves])
    low, high = np.percentile(values, [0.5, 99.5])
    x = np.linspace(low, high, _POINTS)
    for curve in curves:
        density, line = scipy.stats.gaussian_kde(curve.values)(x), styles[curve.label].options
        ax.plot(x, density, markevery=_POINTS // 8, label=curve.label, **line)
    ax.axvline(0.0, color="black", linewidth=0.7, linestyle="--")
    gain = f"F = P − max(G, L), gain in {comparison.metric_name}"
    ax.set(xlabel=gain, ylabel="density of clients", ylim=(0, None))
    style.legend_below(figure, ax)
    return figure


def caption(curves: Sequence[Curve], comparison: Comparison) -> str:
    """Returns the figure's caption."""
    shares = "; ".join(f"{c.label} {c.pct_improved:.1f}%" for c in curves)
    return (
        "Quantum of improvement: what a test client's personalized model is better by than the "
        "better one of the global and its local model; to the right of the dashed line it is the "
        "best of the three. Gaussian kernels (Scott's width); the outermost 1% of clients is not "
        f"shown. Clients with F > 0: {shares}."
    )
