"""All scores of generated sets in the all and the avg form, with the ranks they give.

A row is a generated set. Distances are better the lower, the others the higher.
A score that some client's few examples leave undefined is not-a-number, and a note says which.

How far a score would be another with other examples of the same generator, its standard deviation,
is that over random halves of the set, drawn without replacement (the delete-half jackknife: Shao
and Wu 1989). Drawn with replacement, examples would be their own neighbours.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.metrics.generative import frechet, kernel, neighbors
from motley_tff.metrics.generative.client_features import ClientFeatures

DISTANCES = ("fid", "kid", "kid_biased")
NEIGHBORS = neighbors.NeighborScores._fields
FORMS = ("all", "avg")
COLUMNS = (
    "generated", "num_examples", "features", "num_features", "examples_per_feature",
    "client_examples_per_feature",
    *(f"{s}_{form}{r}" for r in ("", "_rank") for s in (*DISTANCES, *NEIGHBORS) for form in FORMS),
)  # fmt: skip
# Where halves were asked for.
DEVIATIONS = tuple(f"{s}_{form}_std" for s in (*DISTANCES, *NEIGHBORS) for form in FORMS)
# Relative; sums over millions of pairs keep more digits than these.
_ROUNDING = 1e-10
# Fewer examples a feature estimate a covariance badly.
_FEW = 10


# Scores of a set, [num_examples, num_features], by column.
Scorer = Callable[[np.ndarray], dict[str, float]]


class ScoreTable(NamedTuple):
    """Scores of generated sets, `COLUMNS` as far as asked for, and notes on what is undefined."""

    rows: list[dict[str, str | int | float]]
    notes: list[str]


def table(
    clients: ClientFeatures,
    generated: Mapping[str, np.ndarray],
    num_neighbors: int,
    features_are: str = "",
    num_resamples: int = 0,
    seed: int = 0,
    on_set: Callable[[], None] = lambda: None,
) -> ScoreTable:
    """Scores generated sets, [num_examples, num_features] each, by name.

    `features_are` is the cell that says which features these are. `num_neighbors` is k of
    precision, recall, density and coverage; 0 leaves them out. `num_resamples` halves of each set,
    from 2, give the standard deviations; 0 none. `on_set` is called before each set and half. Too
    few examples of all clients together or of a set are a UserError.
    """
    _check_sizes(clients, generated, num_neighbors, is_halved=num_resamples > 0)
    scorers = [_frechet(clients), _kernel(clients)]
    scorers += [_neighbors(clients, num_neighbors)] if num_neighbors else []

    def score(features: np.ndarray) -> dict[str, float]:
        on_set()
        return {name: value for scorer in scorers for name, value in scorer(features).items()}

    num_real, width = clients.features.shape
    smallest = min(part.stop - part.start for part in clients.parts)
    rows: list[dict[str, str | int | float]] = []
    for name, features in generated.items():
        row: dict[str, str | int | float] = {
            "generated": name, "num_examples": len(features), "features": features_are,
            "num_features": width, "examples_per_feature": min(len(features), num_real) / width,
            "client_examples_per_feature": min(len(features), smallest) / width,
        }  # fmt: skip
        of_halves = [score(_half(features, [seed, i])) for i in range(num_resamples)]
        row.update(score(features))
        rows.append(row)
        for column in of_halves[0] if of_halves else ():
            row[f"{column}_std"] = float(np.std([h[column] for h in of_halves], ddof=1))
    for column in [c for c in COLUMNS if c.endswith(FORMS) and c in rows[0]]:
        values = np.array([row[column] for row in rows], np.float64)
        order = ranks(values if column.startswith(DISTANCES) else -values)
        for row, rank in zip(rows, order.tolist(), strict=True):
            row[f"{column}_rank"] = rank
    # Of one example fid_avg is undefined.
    few = few_examples(clients, generated, has_average=not _too_small(clients, 1))
    return ScoreTable(rows, [*_notes(clients, num_neighbors), *few])


def _half(features: np.ndarray, seed: Sequence[int]) -> np.ndarray:
    order = np.random.default_rng(seed).permutation(len(features))
    return features[order[: len(features) // 2]]


def num_disagreements(first: Sequence[float], second: Sequence[float]) -> int:
    """Returns how many pairs of sets two scores put in opposite orders."""
    a, b = (np.sign(_differences(np.asarray(values))) for values in (first, second))
    return int((a * b < 0).sum()) // 2


def _check_sizes(
    clients: ClientFeatures,
    generated: Mapping[str, np.ndarray],
    num_neighbors: int,
    is_halved: bool,
) -> None:
    needed = max(2, num_neighbors + 1)
    sizes = {"all clients together": len(clients.features)}
    for name, array in generated.items():
        label = f"half of {name}, as {errors.name('resamples')} takes" if is_halved else name
        sizes[label] = len(array) // 2 if is_halved else len(array)
    for name, size in sizes.items():
        if size < needed:
            advice = f"give a lower {errors.name('num_neighbors')}, or 0" if needed > 2 else ""
            raise UserError(name, f"{size} examples", f"at least {needed}", advice)


def _frechet(clients: ClientFeatures) -> Scorer:
    pooled, each = _fitted(clients)

    def score(features: np.ndarray) -> dict[str, float]:
        model = frechet.fit(features, frechet.moments(features))
        average = 0.0
        for share, real in zip(clients.shares, each, strict=True):
            average += share * (frechet.distance(real, model) if real else float("nan"))
        return {"fid_all": frechet.distance(pooled, model), "fid_avg": float(average)}

    return score


def _fitted(clients: ClientFeatures) -> tuple[frechet.Gaussian, list[frechet.Gaussian | None]]:
    """Returns the normal distributions of all examples and of each client's, None of one example:
    together about as large as the examples in float64.
    """
    each: list[frechet.Gaussian | None] = []
    pooled: frechet.Moments | None = None
    for part in clients.parts:
        features = clients.features[part]
        moments = frechet.moments(features)
        pooled = moments if pooled is None else frechet.merged(pooled, moments)
        each.append(frechet.fit(features, moments) if moments.num > 1 else None)
    assert pooled is not None
    return frechet.fit(clients.features, pooled), each


def _kernel(clients: ClientFeatures) -> Scorer:
    parts = [clients.features[part] for part in clients.parts]
    pooled, each = kernel.within(clients.features), list(map(kernel.within, parts))

    def score(features: np.ndarray) -> dict[str, float]:
        fake = kernel.within(features)
        totals = [kernel.total(part, features) for part in parts]
        scores = {}
        for name, unbiased in (("kid", True), ("kid_biased", False)):
            distances = [
                kernel.distance(within, fake, total, unbiased)
                for within, total in zip(each, totals, strict=True)
            ]
            scores[f"{name}_all"] = kernel.distance(pooled, fake, sum(totals), unbiased)
            scores[f"{name}_avg"] = float(np.dot(clients.shares, distances))
        return scores

    return score


def _neighbors(clients: ClientFeatures, num_neighbors: int) -> Scorer:
    centre = clients.features.mean(axis=0, dtype=np.float64)
    parts_of = {"all": [slice(0, len(clients.features))], "avg": list(clients.parts)}
    if is_undefined := bool(_too_small(clients, num_neighbors)):
        del parts_of["avg"]
    forms = {
        form: (parts, neighbors.balls(clients.features, centre, parts, num_neighbors))
        for form, parts in parts_of.items()
    }

    def score(features: np.ndarray) -> dict[str, float]:
        fake = neighbors.balls(features, centre, [slice(0, len(features))], num_neighbors)
        scores: dict[str, float] = {}
        for form, (parts, balls) in forms.items():
            values = neighbors.scores(balls, parts, fake, num_neighbors)._asdict()
            scores |= {f"{name}_{form}": value for name, value in values.items()}
        if is_undefined:  # Recall needs no neighbours among a client's own.
            scores |= {f"{name}_avg": float("nan") for name in NEIGHBORS}
            scores["recall_avg"] = scores["recall_all"]
        return scores

    return score


def _too_small(clients: ClientFeatures, least: int) -> list[str]:
    """Returns the clients with at most `least` examples."""
    named = zip(clients.ids, clients.parts, strict=True)
    return [name for name, part in named if part.stop - part.start <= least]


def _notes(clients: ClientFeatures, num_neighbors: int) -> list[str]:
    notes = []
    if single := _too_small(clients, 1):
        notes.append(
            f"fid_avg and kid_avg are undefined: {_some(single)} of one example; kid_biased_avg "
            "is not"
        )
    if num_neighbors and (few := _too_small(clients, num_neighbors)):
        notes.append(
            f"precision_avg, density_avg and coverage_avg are undefined: {_some(few)} of at most "
            f"{num_neighbors} examples, which have no {num_neighbors} neighbours each"
        )
    return notes


def few_examples(
    clients: ClientFeatures, generated: Mapping[str, np.ndarray], has_average: bool = True
) -> list[str]:
    """Returns notes on what has too few examples for a covariance of so many features; on clients
    if FID-avg is to be had.
    """
    width = clients.features.shape[1]
    few_of = f"fewer than {_FEW} examples a feature, of {width}"
    notes = []
    if few := [name for name, features in generated.items() if len(features) < _FEW * width]:
        listed = ", ".join(few[:3]) + (", ..." if len(few) > 3 else "")
        notes.append(f"fid of {listed} is too high: {few_of}")
    if len(clients.features) < _FEW * width:
        notes.append(f"fid_all is too high: the clients together are of {few_of}")
    few = _too_small(clients, _FEW * width - 1)
    if few and has_average:
        notes.append(f"fid_avg is too high: {_some(few)} of {few_of}")
    return notes


def _some(names: Sequence[str]) -> str:
    """Returns how many clients there are and the first three of them."""
    more = ", ..." if len(names) > 3 else ""
    return f"{len(names)} client{'s' * (len(names) > 1)} ({', '.join(names[:3])}{more})"


def ranks(values: np.ndarray) -> np.ndarray:
    """Returns ranks from 1, the lowest value; equal values share the better rank."""
    return np.where(np.isnan(values), np.nan, 1.0 + (_differences(values) > 0).sum(axis=1))


def _differences(values: np.ndarray) -> np.ndarray:
    """Returns row minus column, 0 where that is rounding: the forms add up in other orders."""
    apart = np.subtract.outer(values, values)
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    return np.where(np.abs(apart) > _ROUNDING * largest, apart, 0.0)
