"""Methods on the same clients: mean differences, their intervals, and tests of them.

The unit is the client. A client's difference is the mean of its differences under the seeds in
which it was tested, of values of the same client and seed; positive is better, for errors too:

    d_i = mean_s (a_is - b_is),   D = mean_i d_i,   t = D / (s / sqrt(n))

with s of n - 1 (Student's paired t-test, 1908): two-sided, n - 1 degrees of freedom, and the
interval of 95% of the same t. It says whether the clients' mean differs beyond the clients' own
spread. Whether another seed would say the same is asked of the seeds: the mean over clients is one
number a seed, and t has as many degrees of freedom as there are seeds, less one. (Errors that are
clustered by three seeds would call a fifth of true nulls significant.)

- A pair of client and seed counts if every method has a finite value of it. Others are left out of
  all methods, counted and named: a value that is not a number passes through no test.
- What two float32 may be off by is no difference. Where nothing differs p is 1.
- Where all clients differ by as much there is no spread, and t is infinite however few they are:
  the sign test's p, 2^(1 - n), stands in its place, without an interval.
- p-values of several tests are Holm's (1979): of m tests the k-th smallest times m - k + 1, and
  none below that of a smaller one.

Rows are sorted before anything is added up, so no number depends on their order.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from motley_tff.metrics import statistics

# Of the larger value: what two float32 may be off by, with room.
_ROUNDING = 2.0**-22

# One method's values by (seed, client id); not finite where its model diverged or nothing was
# scored.
Values = Mapping[tuple[int, str], float]


class Aligned(NamedTuple):
    """Methods' values of the same clients under the same seeds.

    Attributes:
      methods: Their names.
      seeds: The seed of each pair, int [pairs].
      clients: The client of each pair, str [pairs]; pairs are sorted by client, then seed.
      values: float64 [pairs, methods], all finite.
      left_out: `{method: the pairs (seed, client) of which it has no value and some other method
        has a row}`, sorted.
    """

    methods: tuple[str, ...]
    seeds: np.ndarray
    clients: np.ndarray
    values: np.ndarray
    left_out: Mapping[str, list[tuple[int, str]]]

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return len(set(self.clients.tolist()))


class PairedTest(NamedTuple):
    """A mean difference and its test.

    Attributes:
      difference: Its mean, positive is better; not-a-number of nothing.
      low: Where its interval of 95% begins; not-a-number of fewer than two, or without spread.
      high: Where it ends.
      p: Two-sided; not-a-number of fewer than two, unless nothing differs.
      num: How many units, clients or seeds, it is of.
      is_identical: Whether nothing differs.
    """

    difference: float
    low: float
    high: float
    p: float
    num: int
    is_identical: bool

    @property
    def degrees_of_freedom(self) -> int:
        """Of t, 0 where there is no test."""
        return max(0, self.num - 1)


def align(methods: Mapping[str, Values]) -> Aligned:
    """Returns the pairs of client and seed that all methods have a finite value of."""
    pairs = sorted({pair for values in methods.values() for pair in values}, key=lambda p: p[::-1])
    left_out = {
        name: [pair for pair in pairs if not math.isfinite(values.get(pair, math.nan))]
        for name, values in methods.items()
    }
    absent = {pair for of_method in left_out.values() for pair in of_method}
    pairs = [pair for pair in pairs if pair not in absent]
    table = [[values[pair] for values in methods.values()] for pair in pairs]
    return Aligned(
        tuple(methods),
        np.array([seed for seed, _ in pairs], np.int64),
        np.array([client for _, client in pairs], str),
        np.array(table, np.float64).reshape(len(pairs), len(methods)),
        {name: sorted(of_method) for name, of_method in left_out.items()},
    )


def means_by(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns the mean of the values [pairs] of each key, in the order of sorted keys."""
    _, which = np.unique(keys, return_inverse=True)
    counts = np.bincount(which)
    return np.bincount(which, values) / counts


def client_means(aligned: Aligned, method: str) -> np.ndarray:
    """Returns each client's mean over its seeds, [clients], in the order of sorted ids."""
    return means_by(aligned.clients, _column(aligned, method))


def seed_means(aligned: Aligned, method: str) -> np.ndarray:
    """Returns each seed's mean over its clients, [seeds], in the order of seeds."""
    return means_by(aligned.seeds, _column(aligned, method))


def _column(aligned: Aligned, method: str) -> np.ndarray:
    return aligned.values[:, aligned.methods.index(method)]


def differences(
    aligned: Aligned, method: str, reference: str, higher_is_better: bool
) -> np.ndarray:
    """Returns what each pair of client and seed gains by a method over a reference, [pairs]."""
    own, other = _column(aligned, method), _column(aligned, reference)
    difference = own - other if higher_is_better else other - own
    larger = np.maximum(np.abs(own), np.abs(other))
    return np.where(np.abs(difference) <= _ROUNDING * larger, 0.0, difference)


def over_clients(
    aligned: Aligned, method: str, reference: str, higher_is_better: bool
) -> PairedTest:
    """Returns the test whose unit is the client."""
    return _test(aligned, aligned.clients, method, reference, higher_is_better)


def over_seeds(aligned: Aligned, method: str, reference: str, higher_is_better: bool) -> PairedTest:
    """Returns the test whose unit is the seed."""
    return _test(aligned, aligned.seeds, method, reference, higher_is_better)


def _test(
    aligned: Aligned, units: np.ndarray, method: str, reference: str, higher_is_better: bool
) -> PairedTest:
    gains = differences(aligned, method, reference, higher_is_better)
    both = np.stack([_column(aligned, method), _column(aligned, reference)])
    largest = float(np.max(np.abs(both), initial=0.0))
    return t_test(means_by(units, gains), _ROUNDING * largest, bool(np.any(gains)))


def t_test(gains: np.ndarray, rounding: float = 0.0, differs: bool | None = None) -> PairedTest:
    """Returns the test of units' gains, [units], all finite.

    Args:
      rounding: Gains that differ by no more are equal.
      differs: Whether anything that they are means of differs; by default whether they do.
    """
    if not np.all(np.isfinite(gains)):
        raise ValueError(f"Expected finite gains, found {gains[~np.isfinite(gains)][0]}.")
    nan, count = math.nan, len(gains)
    if not count:
        return PairedTest(nan, nan, nan, nan, 0, False)
    if not (np.any(gains) if differs is None else differs):
        return PairedTest(0.0, 0.0, 0.0, 1.0, count, True)
    mean = float(np.mean(gains))
    if count == 1:
        return PairedTest(mean, nan, nan, nan, 1, False)
    if np.ptp(gains) <= rounding:
        p = 1.0 if abs(mean) <= rounding else 2.0 ** (1 - count)
        return PairedTest(mean, nan, nan, p, count, False)
    from scipy import special  # Takes 70 ms.

    half_width = statistics.t_half_width(gains)
    error = float(np.std(gains, ddof=1)) / math.sqrt(count)
    p = 2.0 * float(special.stdtr(count - 1, -abs(mean) / error))
    return PairedTest(mean, mean - half_width, mean + half_width, min(1.0, p), count, False)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values under Holm's correction; those that are not-a-number are of no test."""
    adjusted = [math.nan] * len(p_values)
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    largest = 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        adjusted[i] = largest
    return adjusted
