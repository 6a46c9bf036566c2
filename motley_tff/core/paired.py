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
    task: Task, baseline: tf.Tensor, values: tf.Tensor, weights: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns a model's `STATISTICS` against the baseline, from the examples' sums [capacity]."""
    sign = 1.0 if task.metric.higher_is_better else -1.0
    is_counted = weights > 0.0
    number = tf.reduce_sum(tf.cast(is_counted, tf.float32))
    gain = tf.where(is_counted, sign * (values - baseline), 0.0)
    total = tf.reduce_sum(weights)
    residual = gain - weights * (tf.reduce_sum(gain) / total)
    variance = tf.reduce_sum(tf.square(residual)) * number / (number - 1.0)
    counts = [tf.reduce_sum(tf.cast(change > 0.0, tf.float32)) for change in (gain, -gain)]
    both = tf.stack([values, baseline])
    # Not `==`, which compares Python objects in the graphs that TFF traces.
    is_right_or_wrong = tf.equal(both, 0.0) | tf.equal(both, weights) | ~is_counted
    is_first = is_counted & tf.equal(tf.cumsum(tf.cast(is_counted, tf.int32)) % 2, 1)

    def mean_where(condition, sums):
        chosen = tf.where(condition, sums, 0.0)
        return tf.reduce_sum(chosen) / tf.reduce_sum(tf.where(condition, weights, 0.0))

    nan = tf.constant(float("nan"))
    has_counts = tf.reduce_all(is_right_or_wrong)
    cells = (
        tf.where(number > 1.0, tf.sqrt(variance) / total, nan),
        *(tf.where(has_counts, count, nan) for count in counts),
        mean_where(is_first, baseline),
        mean_where(is_counted & ~is_first, gain),
    )
    return dict(zip(STATISTICS, cells, strict=True))
