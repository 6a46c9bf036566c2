"""The mean of what clients gain, its bootstrap interval, and a paired test.

    delta_i = personalized_i - baseline_i, turned for error metrics: positive is better

The interval holds the middle 95% of the means of resamples of the clients (percentile bootstrap,
Efron 1979). A resample's mean depends only on how often each client was drawn, which is
multinomial. Above 1,024 clients, neighbours in the order of delta are drawn as one block, and what
c draws from a block add up to is normal, with c times the block's mean and variance: at 400,000
clients that takes a tenth of a second in place of many.

The test is Wilcoxon's signed-rank test (1945), two-sided: whether delta is as likely above zero as
below, by as much. Clients that keep their value count for neither side, equal gains share their
ranks. Up to 50 clients p is counted over all 2^n signs that those ranks can have (four clients who
all gain as much are 2 of 16, p = 1/8), beyond it is that of the normal distribution.
"""

import functools
import math

import numpy as np

from motley_tff.metrics import client_values, statistics

_RESAMPLES, _BLOCKS, _SEED = 1000, 1024, 0
_TAIL = 0.025
# Up to here the distribution of the test's statistic is counted, beyond it is as good as normal.
_COUNTED = 50
# Of the largest value: what two float32 may be off by, with room.
_ROUNDING = 2.0**-22


def delta_mean(values: client_values.ClientValues) -> float:
    """Returns the mean gain, in units of the metric."""
    return statistics.mean(values, "delta")


def delta_mean_low(values: client_values.ClientValues) -> float:
    """Returns the lower end of the mean gain's interval."""
    return _bootstrap_quantile(values.finite("delta"), _TAIL)


def delta_mean_high(values: client_values.ClientValues) -> float:
    """Returns the upper end of the mean gain's interval."""
    return _bootstrap_quantile(values.finite("delta"), 1 - _TAIL)


def _bootstrap_quantile(gains: np.ndarray, fraction: float) -> float:
    """Returns a quantile of the resamples' means; undefined with fewer than two clients."""
    if len(gains) < 2:
        return float("nan")
    count = len(gains)
    # Sorted: the same clients in another order give the same resamples.
    ordered = np.sort(gains)
    starts, sizes, draws, normals = _resamples(count)
    means = np.add.reduceat(ordered, starts) / sizes
    variances = np.add.reduceat((ordered - np.repeat(means, sizes)) ** 2, starts) / sizes
    sums = draws @ means + np.sqrt(draws @ variances) * normals
    return float(np.quantile(sums / count, fraction))


@functools.lru_cache(maxsize=2)  # Both splits of an evaluation.
def _resamples(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the blocks' first clients and sizes, how often each block is drawn, and noise."""
    starts = np.linspace(0, count, min(count, _BLOCKS), endpoint=False).astype(np.int64)
    sizes = np.diff(starts, append=count)
    rng = np.random.default_rng(_SEED)
    draws = rng.multinomial(count, sizes / count, size=_RESAMPLES)
    return starts, sizes, draws.astype(np.float64), rng.standard_normal(_RESAMPLES)


def wilcoxon_p(values: client_values.ClientValues) -> float:
    """Returns the p-value of the paired test; undefined where no client's value changes."""
    gains = values.finite("delta")
    moved = gains[gains != 0]
    if not len(moved):
        return float("nan")
    has_gain = values.is_finite("delta")
    largest = np.abs([values.baseline[has_gain], values.personalized[has_gain]]).max()
    ranks = _doubled_ranks(_tied(np.abs(moved), _ROUNDING * largest))
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


def _tied(sizes: np.ndarray, tolerance: float) -> np.ndarray:
    """Returns sizes of which those that differ by rounding alone are the same.

    Metrics are float32: the gains of 0.3 - 0.2 and 0.5 - 0.4 are not equal to the last digit.
    """
    order = np.argsort(sizes, kind="stable")
    ordered = sizes[order]
    starts = np.concatenate([[True], np.diff(ordered) > tolerance])
    tied = np.empty_like(sizes)
    tied[order] = ordered[starts][np.cumsum(starts) - 1]
    return tied


def _signed_rank_p(ranks: np.ndarray, rank_sum: int) -> float:
    """Returns the two-sided p-value of a rank sum, if each gain's sign is a fair coin's toss."""
    total = int(ranks.sum())
    chance = np.zeros(total + 1)
    chance[0] = 1.0
    for rank in ranks:
        chance = (chance + np.concatenate([np.zeros(rank), chance[:-rank]])) / 2
    return min(1.0, 2.0 * float(chance[: min(rank_sum, total - rank_sum) + 1].sum()))
