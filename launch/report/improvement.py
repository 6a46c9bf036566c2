"""Density of the quantum of improvement F = P - max(G, L) over clients.

Personalized, global and local values of the same client and seed, joined by client id; local ones
are those of a run of local training, global ones the baseline of the run itself where that is
FedAvg's model and no run is FedAvg alone, else of another run of the seed. Constant F has no
density and is left out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from launch.report import names, style
from launch.report.comparisons import Comparison
from launch.report.runs import ReportedRun
from motley_tff.metrics import quantum_of_improvement


class References(NamedTuple):
    """The runs whose models others are compared with, `{seed: run}`."""

    fedavg: Mapping[int, ReportedRun]
    local: Mapping[int, ReportedRun]


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


def data(comparison: Comparison) -> pd.DataFrame:
    """Returns F of each client and seed by `algorithm`, positive is better also for errors, nothing
    without runs of local training and of FedAvg.
    """
    (fedavg, local), tables = references(comparison), []
    for series in comparison.series:
        parts = [np.zeros(0)]
        for run in series.runs if series.algorithm != "local" else ():
            if run.seed in fedavg and run.seed in local:
                has_own = names.has_fedavg_baseline(run.algorithm) and run.has_trained_baseline
                is_own = has_own and fedavg[run.seed].algorithm != "fedavg"
                base = run if is_own else fedavg[run.seed]
                parts.append(quantum(run, base, local[run.seed]))
        values = np.concatenate(parts)
        values = values[np.isfinite(values)]
        if values.size > 2 and np.ptp(values) > 0:
            tables.append(pd.DataFrame({"algorithm": series.label, "F": values}))
    return pd.concat(tables) if tables else pd.DataFrame()


def quantum(personal: ReportedRun, fedavg: ReportedRun, local: ReportedRun | None) -> np.ndarray:
    """Returns F of the test clients that are in all these runs, [clients]: over the local model,
    too, where there is one.
    """
    models = [(personal, "personalized"), (fedavg, "baseline"), (local, "personalized")]
    columns = [
        pd.Series(getattr(run.values, model), run.values.client_ids)
        for run, model in models
        if run is not None
    ]
    table = pd.concat(columns, axis=1, join="inner").to_numpy(float)
    local_model = table[:, 2] if local is not None else None
    higher = personal.higher_is_better
    return quantum_of_improvement.quantum(table[:, 0], table[:, 1], local_model, higher)


def draw(clients: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a density for each algorithm, and a line at zero."""
    figure, [[ax]] = style.panels(1, height=2.1)
    low, high = np.percentile(clients["F"], [0.5, 99.5])
    for label, values in clients.groupby("algorithm", sort=False)["F"]:
        style.density(ax, label, values.to_numpy(), (low, high), styles[label])
    ax.axvline(0.0, color="black", linewidth=0.7, linestyle="--")
    gain = f"F = P − max(G, L), gain in {comparison.metric_name}"
    ax.set(xlabel=gain, ylabel="density of clients", ylim=(0, None))
    style.legend_below(figure, ax)
    return figure


def numbers(clients: pd.DataFrame, comparison: Comparison) -> list[dict[str, Any]]:
    """Returns how many clients have F > 0 (PUI)."""
    groups = (clients["F"] > 0).groupby(clients["algorithm"], sort=False)
    table = pd.DataFrame({"clients": groups.size(), "F > 0 (%)": 100.0 * groups.mean()})
    return table.reset_index().to_dict("records")
