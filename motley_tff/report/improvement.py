"""Density of the quantum of improvement F = P - max(G, L) over clients.

Personalized, global and local values of the same client and seed, joined by client id; local ones
are those of a run of local training, global ones the baseline of the run itself where that is
FedAvg's model, else of another run of the seed. Constant F has no density and is left out.
"""

from collections.abc import Mapping, Sequence
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


class References(NamedTuple):
    """The runs whose models others are compared with, `{seed: run}`."""

    fedavg: Mapping[int, Run]
    local: Mapping[int, Run]

    def knows(self, run: Run, with_local: bool) -> bool:
        """Returns whether there is what a run's gains are over."""
        return run.seed in self.fedavg and (run.seed in self.local or not with_local)

    def gains(self, run: Run, with_local: bool = True, own_global: bool = True) -> np.ndarray:
        """Returns F of the test clients that are in all runs that it is of, [clients].

        Args:
          with_local: Whether F is over the local model, too, not the global one alone.
          own_global: Whether the global model is the run's own, if that is FedAvg's and no run is
            FedAvg alone; else it is the same one for all runs of a seed.
        """
        has_fedavg = names.has_fedavg_baseline(run.algorithm) and run.has_trained_baseline
        fedavg = self.fedavg[run.seed]
        if has_fedavg and own_global and fedavg.algorithm != "fedavg":
            fedavg = run
        return quantum(run, fedavg, self.local[run.seed] if with_local else None)


def references(comparison: Comparison) -> References:
    """Returns the runs of FedAvg and local training, of several of a seed the first."""
    runs = [run for series in comparison.series for run in series.runs]
    local = {run.seed: run for run in reversed(runs) if run.algorithm == "local"}
    fedavg_runs = [run for run in runs if names.has_fedavg_baseline(run.algorithm)]
    # First FedAvg itself, then those whose settings are FedAvg's own.
    fedavg_runs.sort(
        key=lambda run: (run.algorithm != "fedavg", not run.algorithm.startswith("fedavg"))
    )
    fedavg = {run.seed: run for run in reversed(fedavg_runs) if run.has_trained_baseline}
    return References(fedavg, local)


def data(comparison: Comparison) -> list[Curve]:
    """Returns F of every algorithm, nothing without runs of local training and of FedAvg."""
    known = references(comparison)
    curves = []
    for series in comparison.series:
        parts = [
            known.gains(run)
            for run in series.runs
            if series.algorithm != "local" and known.knows(run, with_local=True)
        ]
        values = np.concatenate([np.zeros(0), *parts])
        values = values[np.isfinite(values)]
        if values.size > 2 and np.ptp(values) > 0:
            curves.append(Curve(series.label, values))
    return curves


def quantum(personal: Run, fedavg: Run, local: Run | None) -> np.ndarray:
    """Returns F of the test clients that are in all these runs, [clients]."""
    columns = [
        (personal.values, personal.values.personalized),
        (fedavg.values, fedavg.values.baseline),
    ]
    if local is not None:
        columns.append((local.values, local.values.personalized))
    by_client = [dict(zip(v.client_ids, numbers, strict=True)) for v, numbers in columns]
    ids = [i for i in by_client[0] if all(i in numbers for numbers in by_client)]
    p, g, *l_ = (np.array([numbers[i] for i in ids]) for numbers in by_client)
    higher = personal.higher_is_better
    return quantum_of_improvement.quantum(p, g, l_[0] if l_ else None, higher)


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
