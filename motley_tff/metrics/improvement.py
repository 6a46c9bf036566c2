"""The mean of what clients gain, its interval of 95%, and a paired test.

    delta_i = personalized_i - baseline_i, turned for error metrics: positive is better

The interval of fewer than 15 clients is Student's t's: the bootstrap's would hold the mean of
normal gains in 72% of all draws of three clients, 83% of five and 92% of ten. From 15 clients on it
holds the middle 95% of the means of resamples of the clients (percentile bootstrap, Efron 1979). A
resample's mean depends only on how often each client was drawn, which is multinomial. Above 1,024
clients, the 256 lowest and the 256 highest gains are still drawn one by one. Neighbours between
them are drawn as one block, and what c draws from a block add up to is normal, with c times the
block's mean and variance: at 400,000 clients that takes a tenth of a second in place of many.

The test is Wilcoxon's signed-rank test (1945), two-sided: whether delta is as likely above zero as
below, by as much. Clients that keep their value count for neither side, equal gains share their
ranks. Up to 50 clients p is counted over all 2^n signs that those ranks can have (four clients who
all gain as much are 2 of 16, p = 1/8), beyond it is that of the normal distribution.

Metrics are float32: the gains of 0.3 - 0.2 and 0.5 - 0.4 are not equal to the last digit. A gain is
uncertain by the rounding of its own client's two values, and equal to another that lies within. The
most exact gains are compared first, so that no client, however large its values, makes the gains of
two others equal.
"""

import functools
import math

import numpy as np

from motley_tff.metrics import client_values, statistics

_RESAMPLES, _SEED = 1000, 0
# Gains that are drawn one by one at either end, and blocks between them.
_EXTREMES, _BLOCKS = 256, 512
_TAIL = 0.025
# Up to here the distribution of the test's statistic is counted, beyond it is as good as normal.
_COUNTED = 50
# Of a client's larger value: what two float32 may be off by, with room.
_ROUNDING = 2.0**-22


def delta_mean(values: client_values.ClientValues) -> float:
    """Returns the mean gain, in units of the metric."""
    return statistics.mean(values, "delta")


def delta_mean_low(values: client_values.ClientValues) -> float:
    """Returns the lower end of the mean gain's interval, of few clients Student's t's."""
    return _interval(values.finite("delta"))[0]


def delta_mean_high(values: client_values.ClientValues) -> float:
    """Returns the upper end of the mean gain's interval, of few clients Student's t's."""
    return _interval(values.finite("delta"))[1]


def _interval(gains: np.ndarray) -> tuple[float, float]:
    """Returns both ends; undefined with fewer than two clients."""
    if len(gains) < statistics.FEW:
        mean = np.mean(gains) if len(gains) else math.nan
        half_width = statistics.t_half_width(gains)
        return float(mean - half_width), float(mean + half_width)
    count = len(gains)
    # Sorted: the same clients in another order give the same resamples.
    ordered = np.sort(gains)
    starts, sizes, draws, normals = _resamples(count)
    means = np.add.reduceat(ordered, starts) / sizes
    variances = np.add.reduceat((ordered - np.repeat(means, sizes)) ** 2, starts) / sizes
    sums = draws @ means + np.sqrt(draws @ variances) * normals
    low, high = np.quantile(sums / count, [_TAIL, 1 - _TAIL])
    return float(low), float(high)


@functools.lru_cache(maxsize=2)  # Both splits of an evaluation.
def _resamples(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the blocks' first clients and sizes, how often each block is drawn, and noise."""
    starts = np.arange(count)
    if count > 2 * _EXTREMES + _BLOCKS:
        last = count - _EXTREMES
        between = np.linspace(_EXTREMES, last, _BLOCKS, endpoint=False).astype(np.int64)
        starts = np.concatenate([starts[:_EXTREMES], between, starts[last:]])
    sizes = np.diff(starts, append=count)
    rng = np.random.default_rng(_SEED)
    draws = rng.multinomial(count, sizes / count, size=_RESAMPLES)
    return starts, sizes, draws.astype(np.float64), rng.standard_normal(_RESAMPLES)


def wilcoxon_p(values: client_values.ClientValues) -> float:
    """Returns the p-value of the paired test; undefined where no client's value changes."""
    gains = values.delta
    has_moved = values.is_finite("delta") & (gains != 0)
    moved = gains[has_moved]
    if not len(moved):
        return float("nan")
    larger = np.maximum(np.abs(values.baseline), np.abs(values.personalized))[has_moved]
    ranks = _doubled_ranks(_tied(np.abs(moved), _ROUNDING * larger))
    rank_sum = int(ranks[moved > 0].sum())
    return _normal_p(ranks, rank_sum) if len(moved) > _COUNTED else _signed_rank_p(ranks, rank_sum)


def _doubled_ranks(sizes: np.ndarray) -> np.ndarray:
    """Returns twice the ranks, from 1: ties share their mean rank, and twice a mean is whole."""
    _, which, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (2 * last - counts + 1)[which]


def _normal_p(ranks: np.ndarray, rank_sum: int) -> float:
    """Returns the two-sided p-value of a rank sum by the normal distribution of the same mean and
    variance: each doubled rank counts or not by a fair coin's toss.
    """
    deviation = math.sqrt(float(np.sum(ranks.astype(np.float64) ** 2)) / 4)
    return math.erfc(abs(rank_sum - int(ranks.sum()) / 2) / deviation / math.sqrt(2))


def _tied(sizes: np.ndarray, tolerances: np.ndarray) -> np.ndarray:
    """Returns sizes, of which those that differ by rounding alone are the same.

    Those whose tolerances have the same power of two are compared together, each with the first of
    its tie.
    """
    distinct, which = np.unique(sizes, return_inverse=True)
    smallest = np.full(len(distinct), np.inf)
    np.minimum.at(smallest, which, tolerances)
    scales = np.frexp(smallest)[1]
    tied, exact = distinct.copy(), np.array([-np.inf, np.inf])
    for scale in np.unique(scales):
        places = np.flatnonzero(scales == scale)
        after = np.searchsorted(exact, distinct[places])
        around = np.stack([exact[after - 1], exact[after]])
        distance = np.abs(around - distinct[places])
        is_tied = distance.min(axis=0) <= smallest[places]
        nearest = np.where(distance[0] <= distance[1], *around)
        tied[places[is_tied]] = nearest[is_tied]
        places = places[~is_tied]
        tied[places] = _first_of_ties(distinct[places], smallest[places])
        exact = np.union1d(exact, tied[places])
    return tied[which]


def _first_of_ties(sizes: np.ndarray, tolerances: np.ndarray) -> list[float]:
    """Returns for each of ascending sizes the first of its tie."""
    firsts, first, reach = [], -math.inf, 0.0
    for size, tolerance in zip(sizes.tolist(), tolerances.tolist(), strict=True):
        if size - first > max(reach, tolerance):
            first, reach = size, tolerance
        firsts.append(first)
    return firsts


def _signed_rank_p(ranks: np.ndarray, rank_sum: int) -> float:
    """Returns the two-sided p-value of a rank sum, if each gain's sign is a fair coin's toss."""
    total = int(ranks.sum())
    chance = np.zeros(total + 1)
    chance[0] = 1.0
    for rank in ranks:
        chance = (chance + np.concatenate([np.zeros(rank), chance[:-rank]])) / 2
    return min(1.0, 2.0 * float(chance[: min(rank_sum, total - rank_sum) + 1].sum()))
