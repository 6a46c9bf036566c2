"""What a client's difference to the baseline rests on: both models on the same examples.

An example's value is the weighted mean of its entries under the task's first metric: a sentence is
one example, as its tokens are not independent. A candidate's difference D to the baseline is a
mean over examples, and its standard error is that of a mean of paired differences; of examples that
weigh w_j (tokens), that of a ratio (Cochran 1977, "Sampling techniques", section 6.3):

    D = sum_j w_j d_j / sum_j w_j
    se^2 = n / (n - 1) * sum_j (w_j (d_j - D))^2 / (sum_j w_j)^2
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from motley_tff.core import learning, rows
from motley_tff.core.client_work import Batch
from motley_tff.core.lazy import tf
from motley_tff.core.task import Task

# What each candidate has beside its scores, `{name: float32 [num_candidates]}`, not-a-number where
# it is not defined.
#   delta_se: standard error of the difference, in units of the metric; of two examples or more.
#   num_gained: Examples that this model has right and the baseline wrong, and
#   num_lost: the reverse, where every example is right or wrong.
#   baseline_half: The baseline's metric on every other example, from the first on, and
#   delta_half: the difference, positive is better, on those between: their noise is independent.
STATISTICS = ("delta_se", "num_gained", "num_lost", "baseline_half", "delta_half")


class ExampleSums(NamedTuple):
    """Sums over the entries of each of a part's examples, in order; [capacity] or [capacity, n].

    Attributes:
      values: Weighted sums of the first metric, of one model or of n.
      weights: Sums of the weights, [capacity]; 0 where there is no example.
      count: int32 scalar, how many examples are there.
    """

    values: tf.Tensor
    weights: tf.Tensor
    count: tf.Tensor


def empty(capacity: tf.Tensor | int, shape: tuple[int, ...] = ()) -> ExampleSums:
    """Returns the sums of no example, with room for `capacity` of them."""
    zeros = rows.full([capacity, *shape], 0.0), rows.full([capacity], 0.0)
    return ExampleSums(*zeros, rows.full([], 0))


def of_batch(task: Task, batch: Batch, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (weighted sums, sums of weights) of a batch's examples, float32 [batch] each; a sum
    is not-a-number where an output is not finite.
    """
    values, weights = rows.by_example(task.metric.function, batch.y, outputs)
    sums = tf.where(weights > 0.0, values, 0.0) * weights
    first = 1 + len(rows.leading())
    if len(sums.shape) > first:
        within = list(range(first, len(sums.shape)))
        sums, weights = tf.reduce_sum(sums, within), tf.reduce_sum(weights, within)
    return tf.where(learning.rows_are_finite(outputs), sums, float("nan")), weights


def append(sums: ExampleSums, batch: Batch, values: tf.Tensor, weights: tf.Tensor) -> ExampleSums:
    """Appends a batch's real examples, which are its first: `values` [batch] or [batch, n]."""
    number = tf.reduce_sum(tf.cast(batch.mask > 0.0, tf.int32))
    place = tf.range(tf.shape(sums.weights)[0]) - sums.count
    is_here = (place >= 0) & (place < number)
    # A scatter would loop over the rows where XLA compiles it.
    row = tf.clip_by_value(place, 0, tf.shape(weights)[0] - 1)
    by_place = tf.reshape(is_here, [-1] + [1] * (len(values.shape) - 1))
    return ExampleSums(
        tf.where(by_place, tf.gather(values, row), sums.values),
        tf.where(is_here, tf.gather(weights, row), sums.weights),
        sums.count + number,
    )


def statistics(
    higher_is_better: bool, values: np.ndarray, weights: np.ndarray, sizes: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the `STATISTICS` of every client's candidates against the first one, the baseline:
    `{name: float32 [num_clients, num_candidates]}`.

    Args:
      values: The sums of the clients' examples, one client after the other, under each candidate:
        [examples, num_candidates].
      weights: Their weights, [examples].
      sizes: How many are each client's, int [num_clients].
    """
    is_counted = weights > 0.0
    client = np.repeat(np.arange(len(sizes)), sizes)[is_counted]
    values, weights = (a[is_counted].astype(np.float64) for a in (values, weights))
    baseline, number = values[:, 0], np.bincount(client, minlength=len(sizes))

    def sum_by_client(numbers: np.ndarray) -> np.ndarray:
        return np.bincount(client, numbers, len(sizes))

    total = sum_by_client(weights)
    position = np.arange(len(client)) - (np.cumsum(number) - number)[client]
    is_odd = position % 2 == 1
    odd_total = sum_by_client(weights * is_odd)
    baseline_is_plain = (baseline == 0.0) | (baseline == weights)

    def of_candidate(model: np.ndarray) -> tuple[np.ndarray, ...]:
        gain = model - baseline if higher_is_better else baseline - model
        residual = gain - weights * (sum_by_client(gain) / total)[client]
        variance = sum_by_client(residual**2) * number / (number - 1)
        delta_se = np.where(number > 1, np.sqrt(variance) / total, np.nan)
        is_plain = ((model == 0.0) | (model == weights)) & baseline_is_plain
        has_counts = sum_by_client(~is_plain) == 0
        gained, lost = (
            np.where(has_counts, sum_by_client(change > 0.0), np.nan) for change in (gain, -gain)
        )
        delta_half = sum_by_client(np.where(is_odd, gain, 0.0)) / odd_total
        return delta_se, gained, lost, baseline_half, delta_half

    with np.errstate(divide="ignore", invalid="ignore"):
        baseline_half = sum_by_client(np.where(is_odd, 0.0, baseline)) / sum_by_client(
            weights * ~is_odd
        )
        # A candidate at a time, for memory.
        columns = [of_candidate(model) for model in values.T]
    return {
        name: np.stack([column[i] for column in columns], axis=1).astype(np.float32)
        for i, name in enumerate(STATISTICS)
    }
