"""TFF's aggregators by name, over an algorithm's groups.

`robust`, `compressed` and `secure` follow quantiles of what clients send: a value far above is
zeroed, a long one is clipped, and `secure` clips each coordinate before it sums integers. With b
for the largest coordinate that 98% of clients stay below, at first 10, an update is zeroed if one
is above 2 b + 1; norms are clipped to what 80% stay below, at first 1. An
algorithm whose update is one group gets TFF's own (`tff.learning.robust_aggregator`, ...).

A cluster's group has clients outside it, who send zeros of weight 0. Motley's published code hands
those zeros to TFF's estimators, and so the clip of a cluster that a fifth of the clients or fewer
take sinks by 2 to 4% in every round, without end. Here a group with clients outside gets the same
aggregator, made of the same parts, whose quantiles are those of the norms above 0; in a round
without any the bounds stay. (A member's update that is zero, or was zeroed, is not counted there
either; TFF counts it as below.)
"""

import dataclasses
import functools
import logging
import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from motley_tff.core import errors, private_mean, robust_mean
from motley_tff.core.algorithm import Groups
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tff

Weighted: TypeAlias = tff.aggregators.WeightedAggregationFactory
Unweighted: TypeAlias = tff.aggregators.UnweightedAggregationFactory
_WEIGHT = tff.TensorType(np.float32)


@dataclasses.dataclass(frozen=True)
class Aggregator:
    """How updates become one.

    Attributes:
      whole: Aggregates a group that all clients are in.
      partial: Aggregates one with clients outside; None if there is no such aggregator.
      total: Sums such a group's weights.
      is_linear: Whether groups make no difference, so that there need not be any.
    """

    name: str
    whole: Weighted | Unweighted
    partial: Weighted | None = None
    total: Unweighted | None = None
    is_linear: bool = False

    def process(
        self, update_type: tff.Type, groups: Groups | None = None
    ) -> tff.templates.AggregationProcess:
        """Returns the process from clients' updates, of a type, and float32 weights to their mean.

        UserError if this aggregator cannot leave out the clients outside a group.
        """
        if groups is None or self.is_linear:
            return _weighted(self.whole).create(update_type, _WEIGHT)
        if any(groups.is_partial) and self.partial is None:
            expected = "one that can leave out the clients outside a cluster"
            raise UserError(errors.name("aggregator"), self.name, expected)
        return _grouped(self, update_type, groups)


def _weighted(factory: Weighted | Unweighted) -> Weighted:
    if isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
        return tff.aggregators.as_weighted_aggregator(factory)
    return factory


MEAN = Aggregator("mean", tff.aggregators.MeanFactory(), is_linear=True)


def build(
    name: str, noise_multiplier: float, clients_per_round: int, trim_share: float = 0.0
) -> Aggregator:
    """Returns one of TFF's aggregators, or one of `robust_mean` made of TFF's parts.

    Args:
      name: `mean` (weighted by examples); `robust` (adaptive zeroing and clipping, what the
        published fine-tuning trainer used); `compressed` (robust, with quantized updates);
        `secure` (robust, through TFF's simulated secure sum); `differentially_private` (adaptive
        clipping and Gaussian noise, unweighted; see `core.private_mean`).
      noise_multiplier: For `differentially_private`.
      clients_per_round: The cohort's size as it is asked for, by which `differentially_private`
        divides whoever answers.
      trim_share: For `trimmed_mean`.

    Raises:
      UserError: If TFF would refuse the noise.
    """
    builders: dict[str, Callable[[], Aggregator]] = {
        "mean": lambda: MEAN,
        "robust": lambda: _robust(
            "robust", tff.learning.robust_aggregator(), tff.aggregators.SumFactory()
        ),
        "compressed": lambda: _robust(
            "compressed",
            tff.learning.compression_aggregator(),
            tff.aggregators.EncodedSumFactory.quantize_above_threshold(8, 20_000),
        ),
        "secure": _secure,
        private_mean.NAME: lambda: _private(noise_multiplier, clients_per_round),
        **{
            robust: functools.partial(Aggregator, robust, _RobustMean(robust, trim_share))
            for robust in robust_mean.NAMES
        },
    }
    return builders[name]()


def _private(noise_multiplier: float, clients_per_round: int) -> Aggregator:
    private_mean.added_noise(noise_multiplier, clients_per_round)  # In our words.
    # TFF would zero updates above a quantile of norms that it estimates without noise: one client
    # moves it, and so what others contribute, which no finite epsilon allows.
    factory = tff.learning.dp_aggregator(noise_multiplier, clients_per_round, zeroing=False)
    return Aggregator(private_mean.NAME, factory)


class _RobustMean(tff.aggregators.UnweightedAggregationFactory):
    """Gathers the clients' updates and combines them as `robust_mean` does."""

    def __init__(self, name: str, trim_share: float):
        self._name, self._trim_share = name, trim_share

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        """Returns the process, which has no state."""
        each = tff.types.structure_from_tensor_type_tree
        many = tff.to_type(each(lambda t: tff.TensorType(t.dtype, [None, *t.shape]), value_type))

        def none(t: tff.TensorType) -> tf.Tensor:
            # A constant's shape would stay: no client for ever.
            zeros, shape = tf.zeros([0, *t.shape], t.dtype), [None, *t.shape]
            return tf.raw_ops.PlaceholderWithDefault(input=zeros, shape=shape)

        @tff.tensorflow.computation
        def nobody():
            return each(none, value_type)

        @tff.tensorflow.computation(many, value_type)
        def accumulate(gathered, value):
            return tf.nest.map_structure(lambda g, v: tf.concat([g, v[None]], 0), gathered, value)

        @tff.tensorflow.computation(many, many)
        def merge(first, second):
            return tf.nest.map_structure(lambda a, b: tf.concat([a, b], 0), first, second)

        @tff.tensorflow.computation(many)
        def report(gathered):
            combine = functools.partial(robust_mean.combine, self._name, self._trim_share)
            return tf.nest.map_structure(combine, gathered)

        @tff.federated_computation
        def initialize():
            return tff.federated_value((), tff.SERVER)

        @tff.federated_computation(
            initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
        )
        def next_round(state, values):
            result = tff.federated_aggregate(values, nobody(), accumulate, merge, report)
            return tff.templates.MeasuredProcessOutput(
                state, result, tff.federated_value((), tff.SERVER)
            )

        return tff.templates.AggregationProcess(initialize, next_round)


def _robust(name: str, whole: Weighted, value_sum: Unweighted) -> Aggregator:
    count = tff.aggregators.SumFactory()
    return Aggregator(name, whole, _bounded(value_sum, count, count), count)


def _secure() -> Aggregator:
    # TFF's secure sum clips values to bounds and makes them whole numbers. Weights in TFF's range:
    total = tff.aggregators.SecureSumFactory(float(2**20 - 1), 0.0)
    count = tff.aggregators.SecureSumFactory(1, 0)
    bound = quantile_above_zero(50.0, 0.95, 1.0, 2.0, count=count)
    value_sum = tff.aggregators.SecureSumFactory(bound)
    return Aggregator(
        "secure", tff.learning.secure_aggregator(), _bounded(value_sum, total, count), total
    )


def _bounded(value_sum: Unweighted, weight_sum: Unweighted, count: Unweighted) -> Weighted:
    """Returns a mean with TFF's zeroing and clipping, whose bounds follow norms above 0 alone."""
    mean = tff.aggregators.MeanFactory(value_sum, weight_sum, no_nan_division=True)
    norm = quantile_above_zero(1.0, 0.8, 0.2, count=count)
    clipped = tff.aggregators.clipping_factory(norm, mean, clipped_count_sum_factory=count)
    norm = quantile_above_zero(10.0, 0.98, math.log(10.0), 2.0, 1.0, count)
    return tff.aggregators.zeroing_factory(norm, clipped, zeroed_count_sum_factory=count)


def quantile_above_zero(
    initial_estimate: float,
    target_quantile: float,
    learning_rate: float,
    multiplier: float = 1.0,
    increment: float = 0.0,
    count: Unweighted | None = None,
) -> tff.templates.EstimationProcess:
    """Returns TFF's quantile estimator without noise, blind to clients whose value is 0.

    As `tff.aggregators.PrivateQuantileEstimationProcess.no_noise` (Andrew et al. 2021,
    https://arxiv.org/abs/1905.03871): C becomes C * exp(-learning_rate * (share of values at most C
    - target_quantile)), and multiplier * C + increment is reported. Of a round in which all values
    are 0 it learns nothing. `count` sums int32 [2] of 0 and 1; by default a plain sum.
    """
    count_sum = (count or tff.aggregators.SumFactory()).create(tff.TensorType(np.int32, [2]))

    @tff.tensorflow.computation(np.float32, np.float32)
    def below_and_all(estimate, value):
        is_counted = value > 0.0
        return tf.cast(tf.stack([is_counted & (value <= estimate), is_counted]), tf.int32)

    @tff.tensorflow.computation(np.float32, tff.TensorType(np.int32, [2]))
    def next_estimate(estimate, sums):
        below, number = tf.unstack(tf.cast(sums, tf.float32))
        error = tf.math.divide_no_nan(below, number) - target_quantile
        return tf.where(number > 0.0, estimate * tf.exp(-learning_rate * error), estimate)

    @tff.tensorflow.computation
    def first_estimate():
        return tf.constant(initial_estimate, tf.float32)

    @tff.tensorflow.computation(np.float32)
    def affine(estimate):
        return multiplier * estimate + increment

    @tff.federated_computation
    def initialize():
        start = tff.federated_eval(first_estimate, tff.SERVER)
        return tff.federated_zip((start, count_sum.initialize()))

    @tff.federated_computation(
        initialize.type_signature.result, tff.FederatedType(np.float32, tff.CLIENTS)
    )
    def next_round(state, values):
        estimate, sum_state = state
        counts = tff.federated_map(below_and_all, (tff.federated_broadcast(estimate), values))
        output = count_sum.next(sum_state, counts)
        estimate = tff.federated_map(next_estimate, (estimate, output.result))
        return tff.federated_zip((estimate, output.state))

    @tff.federated_computation(initialize.type_signature.result)
    def report(state):
        return tff.federated_map(affine, state[0])

    return tff.templates.EstimationProcess(initialize, next_round, report)


def _grouped(
    aggregator: Aggregator, update_type: tff.Type, groups: Groups
) -> tff.templates.AggregationProcess:
    """Returns the aggregation of every group by a process of its own."""

    @tff.tensorflow.computation(update_type, _WEIGHT)
    def split(update, weight):
        return groups.split(update, weight)

    @functools.cache  # Clusters are alike: one process serves them all, each with a state.
    def mean_of(value_type: tff.Type, is_partial: bool) -> tff.templates.AggregationProcess:
        factory = aggregator.partial if is_partial else aggregator.whole
        assert factory is not None
        return _weighted(factory).create(value_type, _WEIGHT)

    types = [value_type for value_type, _ in split.type_signature.result]
    means = [mean_of(t, partial) for t, partial in zip(types, groups.is_partial, strict=True)]
    partial = [i for i, is_partial in enumerate(groups.is_partial) if is_partial]
    total = (aggregator.total or tff.aggregators.SumFactory()).create(_WEIGHT)
    processes = [*means, *[total] * len(partial)]

    @tff.federated_computation
    def initialize():
        return tff.federated_zip([process.initialize() for process in processes])

    result_types = [p.next.type_signature.result.result.member for p in processes]

    @tff.tensorflow.computation(tff.to_type(result_types))
    def join(results):
        return groups.join(results[: len(means)], results[len(means) :])

    @tff.federated_computation(
        initialize.type_signature.result,
        tff.FederatedType(update_type, tff.CLIENTS),
        tff.FederatedType(_WEIGHT, tff.CLIENTS),
    )
    def next_round(states, updates, weights):
        parts = tff.federated_map(split, (updates, weights))
        outputs = [mean.next(states[i], *parts[i]) for i, mean in enumerate(means)]
        for place, i in enumerate(partial, len(means)):
            outputs.append(total.next(states[place], parts[i][1]))
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip([output.state for output in outputs]),
            tff.federated_map(join, tff.federated_zip([output.result for output in outputs])),
            tff.federated_value((), tff.SERVER),
        )

    return tff.templates.AggregationProcess(initialize, next_round)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Tells what TensorFlow says of an assertion in TFF's secure sum from all else it logs."""
    message = record.getMessage()
    return not ("Object was never used" in message and "assert_less_equal" in message)


# TFF traces the sum's bounds check into a graph without running it; each trace would print a block.
logging.getLogger("tensorflow").addFilter(_is_wanted)
