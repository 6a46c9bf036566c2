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
    """One algorithm.

    Attributes:
      label: For the legend.
      values: F of each client and seed, positive is better also for errors, [clients].
    """

    label: str
    values: np.ndarray

    @property
    def pct_improved(self) -> float:
        """Percentage of clients with F > 0 (PUI)."""
        return 100.0 * float(np.mean(self.values > 0))


class Data(NamedTuple):
    """The curves."""

    curves: Sequence[Curve]
    metric_name: str


def data(comparison: Comparison) -> Data | None:
    """Returns F of every algorithm, None without runs of local training and of FedAvg."""
    local = {run.seed: run for run in comparison.runs if run.algorithm == "local"}
    fedavg_runs = [r for r in comparison.runs if names.has_fedavg_baseline(r.algorithm)]
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
    return Data(curves, comparison.metric.replace("_", " ")) if curves else None


def quantum(personal: Run, fedavg: Run, local: Run) -> np.ndarray:
    """Returns F of the test clients that are in all three runs, [clients]."""
    personalized = dict(zip(personal.values.client_ids, personal.values.personalized, strict=True))
    global_ = dict(zip(fedavg.values.client_ids, fedavg.values.baseline, strict=True))
    local_ = dict(zip(local.values.client_ids, local.values.personalized, strict=True))
    ids = [i for i in personalized if i in global_ and i in local_]
    p, g, l_ = (np.array([values[i] for i in ids]) for values in (personalized, global_, local_))
    return quantum_of_improvement.quantum(p, g, l_, personal.higher_is_better)


def draw(data: Data, styles: style.Styles) -> Figure:
    """Draws a density for each algorithm, and a line at zero."""
    import scipy.stats  # Takes 0.4 s.

    figure, [[ax]] = style.panels(1, height=2.1)
    values = np.concatenate([curve.values for curve in data.curves])
    low, high = np.percentile(values, [0.5, 99.5])
    x = np.linspace(low, high, _POINTS)
    for curve in data.curves:
        line = styles[curve.label]
        density = scipy.stats.gaussian_kde(curve.values)(x)
        ax.plot(
            x, density, color=line.colour, linestyle=line.dashes, marker=line.marker,
            markevery=_POINTS // 8, label=curve.label,
        )  # fmt: skip
    ax.axvline(0.0, color="black", linewidth=0.7, linestyle="--")
    ax.set_ylim(bottom=0)
    ax.set_xlabel(f"F = P − max(G, L), gain in {data.metric_name}")
    ax.set_ylabel("density of clients")
    style.legend_below(figure, ax)
    return figure


def caption(data: Data, comparison: Comparison) -> str:
    """Returns the figure's caption."""
    del comparison
    shares = "; ".join(f"{c.label} {c.pct_improved:.1f}%" for c in data.curves)
    return (
        "Quantum of improvement: what a test client's personalized model is better by than the "
        "better one of the global and its local model; to the right of the dashed line it is the "
        "best of the three. Gaussian kernels (Scott's width); the outermost 1% of clients is not "
        f"shown. Clients with F > 0: {shares}."
    )
