"""All scores of generated sets in the all and the avg form, with the ranks they give.

A row is a generated set. Distances are better the lower, the others the higher.
A score that some client's few examples leave undefined is not-a-number, and a note says which.

How far a score would be another with other examples of the same generator, its standard deviation,
is that over random halves of the set, drawn without replacement (the delete-half jackknife: Shao
and Wu 1989). Drawn with replacement, examples would be their own neighbours.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.metrics.generative import frechet, kernel, neighbors
from motley_tff.metrics.generative.client_features import ClientFeatures

DISTANCES = ("fid", "kid", "kid_biased")
NEIGHBORS = neighbors.Scores._fields
FORMS = ("all", "avg")
COLUMNS = (
    "generated",
    "num_examples",
    "features",
    "num_features",
    "examples_per_feature",
    "client_examples_per_feature",
    *(f"{s}_{form}{r}" for r in ("", "_rank") for s in (*DISTANCES, *NEIGHBORS) for form in FORMS),
)
# Where halves were asked for.
DEVIATIONS = tuple(f"{s}_{form}_std" for s in (*DISTANCES, *NEIGHBORS) for form in FORMS)
# Relative; sums over millions of pairs keep more digits than these.
_ROUNDING = 1e-10
# Fewer examples a feature estimate a covariance badly.
_FEW = 10


class Table(NamedTuple):
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
) -> Table:
    """Scores generated sets, [num_examples, num_features] each, by name.

    `features_are` says what they are of. `num_neighbors` is k of precision, recall, density and
    coverage; 0 leaves them out. `num_resamples` halves of each set, from 2, give the standard
    deviations; 0 none. `on_set` is called `num_steps` times. Too few examples of all clients
    together or of a set are a UserError.
    """
    _check_sizes(clients, generated, num_neighbors, is_halved=num_resamples > 0)
    scored = _WithHalves(generated, num_resamples, seed, on_set)
    parts = [_frechet(clients, scored), _kernel(clients, scored)]
    if num_neighbors:
        parts.append(_neighbors(clients, scored, num_neighbors))
    num_real, width = clients.features.shape
    smallest = min(part.stop - part.start for part in clients.parts)
    rows: list[dict[str, str | int | float]] = [
        {
            "generated": name, "num_examples": len(features), "features": features_are,
            "num_features": width, "examples_per_feature": min(len(features), num_real) / width,
            "client_examples_per_feature": min(len(features), smallest) / width,
        }
        for name, features in generated.items()
    ]  # fmt: skip
    for scores in parts:
        for column, all_values in scores.items():
            values, of_halves = np.split(all_values, [len(rows)])
            if num_resamples:
                deviations = of_halves.reshape(len(rows), num_resamples).std(axis=1, ddof=1)
                for row, deviation in zip(rows, deviations.tolist(), strict=True):
                    row[f"{column}_std"] = deviation
            given = ranks(values if column.startswith(DISTANCES) else -values)
            for row, value, rank in zip(rows, values, given, strict=True):
                row[column], row[f"{column}_rank"] = float(value), float(rank)
    # Of one example fid_avg is undefined.
    few = few_examples(clients, generated, has_average=not _too_small(clients, 1))
    return Table(rows, [*_notes(clients, num_neighbors), *few])


def num_steps(num_sets: int, num_neighbors: int, num_resamples: int) -> int:
    """Returns how often `table` takes a set, or a half of one, to score it."""
    return num_sets * (1 + num_resamples) * (3 if num_neighbors else 2)


class _WithHalves(Mapping[str, np.ndarray]):
    """Generated sets, and after them `number` random halves of each, made when they are asked
    for, which each kind of score does once.
    """

    def __init__(
        self,
        generated: Mapping[str, np.ndarray],
        number: int,
        seed: int,
        on_set: Callable[[], None],
    ):
        self._generated, self._seed, self._on_set = generated, seed, on_set
        self._halves = {f"{n} half {i}": (n, i) for n in generated for i in range(number)}

    def __getitem__(self, name: str) -> np.ndarray:
        self._on_set()
        if name in self._generated:
            return self._generated[name]
        whole, i = self._halves[name]
        features = self._generated[whole]
        rng = np.random.default_rng([self._seed, i])
        return features[rng.permutation(len(features))[: len(features) // 2]]

    def __iter__(self) -> Iterator[str]:
        yield from self._generated
        yield from self._halves

    def __len__(self) -> int:
        return len(self._generated) + len(self._halves)


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


def _frechet(clients: ClientFeatures, generated: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    pooled, each = _fitted(clients)
    scores: dict[str, list[float]] = {"fid_all": [], "fid_avg": []}
    # One at a time: with halves there are many, and each has a root [num_features, num_features].
    for array in generated.values():
        model = frechet.fit(array, frechet.moments(array))
        average = 0.0
        for share, real in zip(clients.shares, each, strict=True):
            average += share * (frechet.distance(real, model) if real else float("nan"))
        scores["fid_all"].append(frechet.distance(pooled, model))
        scores["fid_avg"].append(average)
    return {name: np.array(values) for name, values in scores.items()}


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


def _kernel(clients: ClientFeatures, generated: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    pooled = kernel.within(clients.features)
    clients_within = [kernel.within(clients.features[part]) for part in clients.parts]
    scores: dict[str, list[float]] = {}
    for array in generated.values():
        fake = kernel.within(array)
        totals = [kernel.total(clients.features[part], array) for part in clients.parts]
        for name, unbiased in (("kid", True), ("kid_biased", False)):
            whole = kernel.distance(pooled, fake, sum(totals), unbiased)
            distances = [
                kernel.distance(within, fake, total, unbiased)
                for within, total in zip(clients_within, totals, strict=True)
            ]
            scores.setdefault(f"{name}_all", []).append(whole)
            scores.setdefault(f"{name}_avg", []).append(float(np.dot(clients.shares, distances)))
    return {name: np.array(values) for name, values in scores.items()}


def _neighbors(
    clients: ClientFeatures, generated: Mapping[str, np.ndarray], num_neighbors: int
) -> dict[str, np.ndarray]:
    centre = clients.features.mean(axis=0, dtype=np.float64)
    parts_of: dict[str, Sequence[slice]] = {"all": [slice(0, len(clients.features))]}
    if not _too_small(clients, num_neighbors):
        parts_of["avg"] = clients.parts
    forms = {
        form: (parts, neighbors.balls(clients.features, centre, parts, num_neighbors))
        for form, parts in parts_of.items()
    }
    scores: dict[str, list[float]] = {}
    for features in generated.values():
        fake = neighbors.balls(features, centre, [slice(0, len(features))], num_neighbors)
        for form, (parts, balls) in forms.items():
            values = neighbors.scores(balls, parts, fake, num_neighbors)
            for name, value in zip(NEIGHBORS, values, strict=True):
                scores.setdefault(f"{name}_{form}", []).append(value)
    if "avg" not in forms:  # Recall needs no neighbours among a client's own.
        undefined = [float("nan")] * len(generated)
        scores |= {f"{name}_avg": undefined for name in NEIGHBORS}
        scores["recall_avg"] = scores["recall_all"]
    return {name: np.array(values) for name, values in scores.items()}


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
    of = f"fewer than {_FEW} examples a feature, of {width}"
    notes = []
    if few := [name for name, features in generated.items() if len(features) < _FEW * width]:
        listed = ", ".join(few[:3]) + (", ..." if len(few) > 3 else "")
        notes.append(f"fid of {listed} is too high: {of}")
    if len(clients.features) < _FEW * width:
        notes.append(f"fid_all is too high: the clients together are of {of}")
    few = _too_small(clients, _FEW * width - 1)
    if few and has_average:
        notes.append(f"fid_avg is too high: {_some(few)} of {of}")
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
