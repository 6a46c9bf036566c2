"""Which method wins by which metric of the quantum of improvement, and how methods rank.

The tables and the figure of Divi et al. 2021 (https://arxiv.org/abs/2107.13173; Tables 3 and 4,
Figure 2): each client's gain over the global model G, as their numbers are, and over the better of
the global and the local model, max(G, L), as their equation 1 says. G is one model for all methods:
that of the FedAvg run, if there is one. Gains in accuracy are in
percentage points. Metrics are computed for each seed, then averaged over seeds.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from motley_tff.metrics.quantum_of_improvement import QUANTUM
from motley_tff.report import improvement, page, style
from motley_tff.report.comparisons import Comparison, Series, Value

G, BETTER = "G", "max(G, L)"
# Where nobody loses, nothing is lost.
_LOSSES = ("mpd", "apd")
_MAX_CLIENTS = 20
# In percent. Equal gains of a few clients beside many that lose are not fair.
_LEAST_IMPROVED = 50.0


class Kind(NamedTuple):
    """A metric of gains: its name in `QUANTUM`, for people, and whether lower is better."""

    name: str
    title: str
    lower: bool


PERFORMANCE = (
    Kind("pui", "% improved (PUI)", False),
    Kind("mpi", "median gain (MPI)", False),
    Kind("api", "average gain (API)", False),
    Kind("mpd", "median loss (MPD)", True),
    Kind("apd", "average loss (APD)", True),
)
FAIRNESS = (
    Kind("average_variance_improved", "average variance", True),
    Kind("cosine_similarity_improved", "cosine similarity", False),
    Kind("entropy_improved", "entropy", False),
    Kind("jain_index_improved", "Jain's index", False),
)
KINDS = (*PERFORMANCE, *FAIRNESS)

# {method: {name of a metric: value}}
Scores = Mapping[str, Mapping[str, float]]


class Split(NamedTuple):
    """One data set under one partition.

    Attributes:
      scores: `{G or max(G, L): scores}`; without a run of local training G alone.
      clients: Header and rows of the table of clients under the first seed; none of many.
    """

    name: str
    scores: Mapping[str, Scores]
    clients: Sequence[Sequence[str]]


def scores(gains: np.ndarray) -> dict[str, float]:
    """Returns the nine metrics of some clients' gains F, [clients]; not-a-number of nobody's gains,
    0 of nobody's losses.
    """
    values = {kind.name: QUANTUM[kind.name](gains) for kind in KINDS}
    nobody = {name: 0.0 for name in _LOSSES if np.isnan(values[name])}
    return values | nobody


def winners(of_methods: Scores, kind: Kind) -> list[str]:
    """Returns the methods that are best by a metric: several if they are equal. One that improves
    fewer than half of the clients is not the best by a metric of fairness.
    """
    places = ranks(of_methods, kind)
    has_value = {m for m, values in of_methods.items() if not np.isnan(_ranked(values, kind))}
    return [method for method, place in places.items() if place == 1 and method in has_value]


def ranks(of_methods: Scores, kind: Kind) -> dict[str, int]:
    """Returns each method's rank by a metric, 1 the best; equal ones have the same, and one that
    has no value is last.
    """
    keys = {}
    for method, values in of_methods.items():
        value = _ranked(values, kind)
        keys[method] = np.inf if np.isnan(value) else (value if kind.lower else -value)
    return {method: 1 + sum(k < key for k in keys.values()) for method, key in keys.items()}


def _ranked(values: Mapping[str, float], kind: Kind) -> float:
    """Returns a method's value by a metric, not-a-number where it has no place by it."""
    has_place = kind not in FAIRNESS or values["pui"] >= _LEAST_IMPROVED
    return values[kind.name] if has_place else np.nan


def split(comparison: Comparison) -> Split | None:
    """Returns the metrics of the methods of a comparison that has FedAvg and two methods."""
    references = improvement.references(comparison)
    series = [s for s in comparison.series if any(r.seed in references.fedavg for r in s.runs)]
    series = [s for s in series if s.algorithm != "fedavg"]
    if len(series) < 2:
        return None
    factor = 100.0 if comparison.is_share else 1.0
    which = [G, *([BETTER] if references.local else [])]
    by_reference: dict[str, Scores] = {}
    for name in which:
        # Local training does not improve on itself.
        shown = [s for s in series if name == G or s.algorithm != "local"]
        of_series = {s.label: _means(s, references, name == BETTER, factor) for s in shown}
        by_reference[name] = {label: means for label, means in of_series.items() if means}
    by_reference = {name: methods for name, methods in by_reference.items() if len(methods) > 1}
    if G not in by_reference:
        return None  # They have no clients in common.
    return Split(comparison.dataset, by_reference, _clients(series, references, factor))


def _means(
    series: Series, references: improvement.References, with_local: bool, factor: float
) -> dict[str, float]:
    """Returns the metrics over seeds, nothing without clients who are in the references, too."""
    gains = [
        (run.seed, factor * references.gains(run, with_local, own_global=False))
        for run in series.runs
        if references.knows(run, with_local)
    ]
    of_runs = [(seed, scores(values)) for seed, values in gains if values.size]
    seeds = [seed for seed, _ in of_runs]
    return {
        kind.name: Value.of([values[kind.name] for _, values in of_runs], seeds).mean
        for kind in KINDS
        if of_runs
    }


def _clients(
    series: Sequence[Series], references: improvement.References, factor: float
) -> list[list[str]]:
    seed = min(references.fedavg)
    fedavg = references.fedavg[seed].values
    if len(fedavg.client_ids) > _MAX_CLIENTS:
        return []
    columns = {"FedAvg": dict(zip(fedavg.client_ids, fedavg.baseline, strict=True))}
    for one in series:
        run = next((run for run in one.runs if run.seed == seed), None)
        if run is not None:
            values = zip(run.values.client_ids, run.values.personalized, strict=True)
            columns[one.label] = dict(values)
    header = ["client", *columns]
    rows = [
        [i.partition(":")[2] or i, *(_number(factor * c.get(i, np.nan)) for c in columns.values())]
        for i in fedavg.client_ids
    ]
    every = [np.array([v for v in c.values() if np.isfinite(v)]) * factor for c in columns.values()]
    means = ["mean", *(_number(float(np.mean(c))) if len(c) else "" for c in every)]
    stds = [
        "sample std",
        *(_number(float(np.std(c, ddof=min(1, len(c) - 1)))) if len(c) else "" for c in every),
    ]
    return [header, *rows, means, stds]


def _number(value: float) -> str:
    return f"{value:.4g}" if np.isfinite(value) else ""


def section(title: str, splits: Sequence[Split], images: Sequence[page.Image]) -> page.Section:
    """Returns the page's section: sentences, winners, ranks, clients and figures."""
    parts = [page.paragraph(" ".join(map(sentence, splits)))]
    for reference in (G, BETTER):
        having = [s for s in splits if reference in s.scores]
        if having:
            header = ["metric", *(s.name for s in having)]
            rows = [[k.title, *(_winner(s.scores[reference], k) for s in having)] for k in KINDS]
            parts.append(page.table(f"Best by gains over {reference}", header, rows))
            parts.append(_rank_table(having, reference))
    parts.append(page.figures(images))
    for one in splits:
        if one.clients:
            of_clients = f"Test clients of {one.name}, first seed"
            parts.append(page.table(of_clients, one.clients[0], one.clients[1:]))
    return page.Section("winners", title, "\n".join(parts), images)


def sentence(one: Split) -> str:
    """Returns what a split's tables say, in words."""
    reference = BETTER if BETTER in one.scores else G
    best = {kind: winners(one.scores[reference], kind) for kind in KINDS}
    count = {m: sum(m in b for b in best.values()) for m in one.scores[reference]}
    first = max(count, key=lambda method: count[method])
    others = [
        f"{' and '.join(b)} by {k.title}{_among(one.scores[reference], b, k)}"
        for k, b in best.items()
        if b and first not in b
    ]
    text = f"{one.name}: over {reference} {first} is best, or as good as the best, by "
    text += f"{count[first]} of {len(KINDS)} metrics"
    text += f"; {', '.join(others)}." if others else "."
    if reference == BETTER:
        improved = {m: (one.scores[G][m]["pui"], s["pui"]) for m, s in one.scores[BETTER].items()}
        falls = max(improved, key=lambda m: improved[m][0] - improved[m][1])
        before, after = improved[falls]
        text += (
            f" Counting local training, the share of clients that {falls} improves goes from "
            f"{before:.0f}% to {after:.0f}%, the largest change."
        )
    return text


def _winner(of_methods: Scores, kind: Kind) -> str:
    names = winners(of_methods, kind)
    if not names:
        return ""
    value = of_methods[names[0]][kind.name]
    return f"{', '.join(names)} ({value:.4g}{_among(of_methods, names, kind, ', ')})"


def _among(of_methods: Scores, names: Sequence[str], kind: Kind, before: str = ", where ") -> str:
    """Returns how many clients a metric of fairness is of: among a few little can be unequal."""
    return f"{before}{of_methods[names[0]]['pui']:.0f}% gain" if kind in FAIRNESS else ""


def _rank_table(splits: Sequence[Split], reference: str) -> str:
    header = ["data", "method", *(kind.title for kind in KINDS), "mean rank"]
    rows = []
    for one in splits:
        of_metric = [ranks(one.scores[reference], kind) for kind in KINDS]
        for method in one.scores[reference]:
            places = [of[method] for of in of_metric]
            rows.append([one.name, method, *map(str, places), f"{np.mean(places):.1f}"])
    return page.table(f"Ranks by gains over {reference}, 1 the best", header, rows, grouped=True)


def draw(splits: Sequence[Split], reference: str) -> Figure:
    """Draws a panel for each fairness metric: methods side by side, a bar for each split."""
    methods = list(dict.fromkeys(m for s in splits for m in s.scores[reference]))
    looks = style.styles([s.name for s in splits])
    figure, axes = style.grid(len(FAIRNESS), height=1.1 + 0.09 * max(map(len, methods)))
    width = 0.8 / len(splits)
    for ax, kind in zip(axes, FAIRNESS, strict=True):
        for place, one in enumerate(splits):
            values = [one.scores[reference].get(m, {}).get(kind.name, np.nan) for m in methods]
            at = np.arange(len(methods)) + (place + 0.5) * width - 0.4
            look = looks[one.name]
            ax.bar(at, values, width, color=look.colour, hatch=look.hatch, edgecolor="white")
        ax.set_xticks(range(len(methods)), methods, rotation=90)
        ax.set_title(kind.title + (" (lower: fairer)" if kind.lower else ""))
    if len(splits) > 1:
        style.legend_of(
            figure,
            {n: Patch(facecolor=s.colour, hatch=s.hatch) for n, s in looks.items()},
        )
    return figure


def caption(splits: Sequence[Split], reference: str) -> str:
    """Returns the figure's caption."""
    best = "; ".join(f"{s.name} {_fairest(s.scores[reference])}" for s in splits)
    return (
        f"Fairness of the gains over {reference} among the clients that gain. A low average "
        "variance means equal gains, as do a high cosine similarity, entropy and Jain's index; a "
        "method that improves fewer than half of the clients has no place by them. "
        f"Lowest average variance: {best}."
    )


def _fairest(of_methods: Scores) -> str:
    names = winners(of_methods, FAIRNESS[0])
    return "/".join(names) + _among(of_methods, names, FAIRNESS[0]) if names else "none"
