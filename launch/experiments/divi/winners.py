"""Which method wins by which metric of the quantum of improvement, and how methods rank.

    ./launch/run python launch/experiments/divi/winners.py results --output_dir=DIR

The tables and the figure of Divi et al. 2021 (https://arxiv.org/abs/2107.13173; Tables 3 and 4,
Figure 2): each client's gain over the global model G, as their numbers are, and over the better of
the global and the local model, max(G, L), as their equation 1 says. G is one model for all methods:
that of the FedAvg run, if there is one. Gains in accuracy are in percentage points. Metrics are
computed for each seed, then averaged over seeds. It prints each metric with its rank in brackets, 1
the best, and the clients of the first seed where they are few, and draws the fairness of the gains:
a low average variance means equal gains, as do a high cosine similarity, entropy and Jain's index;
a method that improves fewer than half of the clients has no place by them.
"""

import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from absl import flags
from matplotlib.figure import Figure

from launch.report import comparisons, improvement, page, runs as runs_lib, style
from launch.report.comparisons import Comparison, Value
from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import text_tables
from motley_tff.metrics.quantum_of_improvement import QUANTUM

FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", None, "Directory of the figures.", required=True)
flags.register_validator("output_dir", lambda name: name != "", "expected a directory's name")

G, BETTER = "G", "max(G, L)"
# Where nobody loses, nothing is lost.
_LOSSES = ("mpd", "apd")
_MAX_CLIENTS = 20
# In percent. Equal gains of a few clients beside many that lose are not fair.
_LEAST_IMPROVED = 50.0


class MetricKind(NamedTuple):
    """A metric of gains: its name for people, and whether lower is better."""

    title: str
    lower: bool


# By their names in `QUANTUM`.
PERFORMANCE = {
    "pui": MetricKind("% improved (PUI)", False),
    "mpi": MetricKind("median gain (MPI)", False),
    "api": MetricKind("average gain (API)", False),
    "mpd": MetricKind("median loss (MPD)", True),
    "apd": MetricKind("average loss (APD)", True),
}
FAIRNESS = {
    "average_variance_improved": MetricKind("average variance", True),
    "cosine_similarity_improved": MetricKind("cosine similarity", False),
    "entropy_improved": MetricKind("entropy", False),
    "jain_index_improved": MetricKind("Jain's index", False),
}
KINDS = PERFORMANCE | FAIRNESS


def main(*paths: str) -> None:
    """Prints the tables and draws the figures."""
    folder = pathlib.Path(os.path.expanduser(FLAGS.output_dir))
    compared = comparisons.compare(runs_lib.find(paths))
    splits = pd.concat([table(comparison) for comparison in compared])
    if splits.empty:
        expected = "FedAvg and two other methods on the same clients"
        raise UserError(", ".join(paths), "no methods to compare", expected)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output_dir={folder}", error.strerror, "a folder to write") from error
    for (over, shown), stem in zip(splits.groupby("over"), ("global", "better"), strict=False):
        print(f"Gains over {over}, with their ranks", *text_tables.aligned(_cells(shown)), sep="\n")
        with style.settings():
            files, _ = style.save(draw(shown), folder, f"fairness_over_{stem}", "svg")
        print(*files, sep="\n")
    for comparison in compared:
        if comparison.dataset in set(splits["data"]) and (cells := _clients(comparison)):
            print(f"Test clients of {comparison.dataset}, first seed")
            print(*text_tables.aligned(cells), sep="\n")


def scores(gains: np.ndarray) -> dict[str, float]:
    """Returns the nine metrics of some clients' gains F, [clients]; not-a-number of nobody's gains,
    0 of nobody's losses.
    """
    values = {name: QUANTUM[name](gains) for name in KINDS}
    return values | {name: 0.0 for name in _LOSSES if np.isnan(values[name])}


def table(comparison: Comparison) -> pd.DataFrame:
    """Returns the metrics of each `method` `over` G and max(G, L), without a run of local training
    over G alone: nothing unless there are FedAvg and two methods on the same clients.
    """
    rows = [row for over in (G, BETTER) for row in _rows(comparison, over)]
    table = pd.DataFrame(rows, columns=["data", "over", "method", *KINDS])
    table = table.groupby("over", sort=False).filter(lambda methods: len(methods) > 1)
    return table if (table["over"] == G).any() else table[:0]


def _rows(comparison: Comparison, over: str) -> Iterator[dict[str, Any]]:
    references = improvement.references(comparison)
    factor = 100.0 if comparison.is_share else 1.0
    with_local = over == BETTER
    # Local training does not improve on itself.
    compared = {"fedavg", "local"} if with_local else {"fedavg"}
    for series in comparison.series:
        if series.algorithm in compared:
            continue
        local = references.local if with_local else dict.fromkeys(references.fedavg)
        runs = [r for r in series.runs if r.seed in references.fedavg and r.seed in local]
        gains = [
            factor * improvement.quantum(run, references.fedavg[run.seed], local[run.seed])
            for run in runs
        ]
        of_runs = [
            (r.seed, scores(of_run)) for r, of_run in zip(runs, gains, strict=True) if of_run.size
        ]
        if of_runs:
            seeds = [seed for seed, _ in of_runs]
            means = {n: Value.of([values[n] for _, values in of_runs], seeds).mean for n in KINDS}
            yield {"data": comparison.dataset, "over": over, "method": series.label, **means}


def _placed(methods: pd.DataFrame) -> pd.DataFrame:
    """Returns the metrics of methods so that lower is better, not-a-number where one has no place:
    that improves fewer than half of the clients has none by a metric of fairness.
    """
    values = methods[[*KINDS]] * [1.0 if kind.lower else -1.0 for kind in KINDS.values()]
    values.loc[~(methods["pui"] >= _LEAST_IMPROVED), [*FAIRNESS]] = np.nan
    return values


def ranks(methods: pd.DataFrame) -> pd.DataFrame:
    """Returns each method's rank by each metric, 1 the best; equal ones have the same, and one that
    has no place is last, with the number of methods if nobody has one.
    """
    placed = _placed(methods)
    ranks = placed.rank(method="min", na_option="bottom")
    ranks.loc[:, placed.isna().all()] = len(methods)
    return ranks.astype(int)


def _cells(splits: pd.DataFrame) -> list[list[str]]:
    """Returns a row for each data set and method, the header first."""
    rows = [["data", "method", *(kind.title for kind in KINDS.values()), "mean rank"]]
    for data, methods in splits.groupby("data", sort=False):
        for places, values in zip(ranks(methods).values, methods.to_dict("records"), strict=True):
            cells = [
                f"{page.number(values[name])} ({place})"
                for name, place in zip(KINDS, places, strict=True)
            ]
            rows.append([data, values["method"], *cells, f"{places.mean():.1f}"])
    return rows


def _clients(comparison: Comparison) -> list[list[str]]:
    """Returns each client's metric by method under the first seed, the header first; none of many
    clients.
    """
    references = improvement.references(comparison)
    seed = min(references.fedavg)
    fedavg = references.fedavg[seed].values
    if len(fedavg.client_ids) > _MAX_CLIENTS:
        return []
    columns = {"FedAvg": pd.Series(fedavg.baseline, fedavg.client_ids)}
    for series in comparison.series:
        run = next((run for run in series.runs if run.seed == seed), None)
        if run is not None and series.algorithm != "fedavg":
            columns[series.label] = pd.Series(run.values.personalized, run.values.client_ids)
    clients = pd.DataFrame(columns, index=fedavg.client_ids)
    clients = clients.where(np.isfinite).dropna(axis=1, how="all")
    clients *= 100.0 if comparison.is_share else 1.0
    clients.index = [i.partition(":")[2] or i for i in clients.index]
    clients = pd.concat([clients, clients.agg(["mean", "std"])]).rename({"std": "sample std"})
    rows = [[name, *map(page.number, values)] for name, *values in clients.itertuples()]
    return [["client", *clients], *rows]


def draw(splits: pd.DataFrame) -> Figure:
    """Draws a panel for each fairness metric: methods side by side, a bar for each data set."""
    methods, looks = splits["method"].unique(), style.styles(splits["data"].unique())
    figure, axes = style.grid(len(FAIRNESS), height=1.1 + 0.09 * max(map(len, methods)))
    width = 0.8 / len(looks)
    for ax, (name, kind) in zip(axes, FAIRNESS.items(), strict=True):
        values = splits.pivot(index="method", columns="data", values=name).loc[methods]
        for place, (data, look) in enumerate(looks.items()):
            at = np.arange(len(methods)) + (place + 0.5) * width - 0.4
            ax.bar(at, values[data], width, linewidth=0.5, **look.filled)
        ax.set_xticks(range(len(methods)), methods, rotation=90)
        ax.set_title(kind.title + (" (low: fair)" if kind.lower else ""))
    if len(looks) > 1:
        style.legend_of_bars(figure, looks)
    return figure


if __name__ == "__main__":
    commandline.run_main(main, ("PATH...",))
