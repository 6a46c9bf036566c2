"""Clients that a round's deadline stops early, whatever the algorithm.

As FedProx (Li et al. 2020, https://arxiv.org/abs/1812.06127, section 5.2) simulates systems
heterogeneity, partial work counts: a straggler sends the model it has reached. In the paper
stragglers get a number of epochs drawn at random; here it is a share, drawn once a round, of the
steps of each training pass, at least one: where a silo trains a model of its own in a second pass,
that is cut as much as the first. Passes that only look at data, such as the choice of a cluster,
are not cut.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, NamedTuple

from motley_tff.core import client_work, rows, tensor_random
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.lazy import tf


class TimedClient(NamedTuple):
    """A client in a round: the algorithm's own carry, the steps of this pass so far, and after how
    many each pass stops.
    """

    inner: Any
    steps: tf.Tensor
    budgets: tf.Tensor


def slowed(algorithm: Algorithm, rate: float) -> Algorithm:
    """Returns the algorithm with clients that straggle in a round with probability `rate` <= 1."""
    if not rate:
        return algorithm
    work = algorithm.work

    def init(broadcast: Any, client_state: Any, client: client_work.Client) -> TimedClient:
        share = _share(client, rate)
        sizes = client.num_examples
        steps = tf.stack([client_work.num_steps(sizes[p.part], p) for p in work.all_passes], -1)
        in_time = tf.cast(tf.math.ceil(share[..., None] * tf.cast(steps, tf.float32)), tf.int32)
        inner = work.init(broadcast, client_state, client)
        return TimedClient(inner, rows.full([], 0), tf.maximum(in_time, 1))

    numbers = itertools.count()
    slow_work = work.map_passes(
        lambda pass_: _slowed_pass(pass_, next(numbers)),
        init=init,
        finish=lambda carry: work.finish(carry.inner),
    )
    return dataclasses.replace(algorithm, work=slow_work)


def _share(client: client_work.Client, rate: float) -> tf.Tensor:
    """Returns the share of its training steps that a client has time for; of most clients 1."""
    key = tensor_random.fold(client.key, tensor_random.FAULT, 0)
    drawn = rows.each(lambda key: tensor_random.bits(key, [2]), key)
    # 24 bits of a random word are a float32 in [0, 1) exactly.
    uniform = tf.cast(tf.bitwise.right_shift(drawn, tf.constant(8, tf.uint32)), tf.float32) / 2**24
    return tf.where(uniform[..., 0] < rate, uniform[..., 1], 1.0)


def _slowed_pass(pass_: client_work.Pass, number: int) -> client_work.Pass:
    outer = pass_.within("inner")

    def begin(carry):
        return outer.begin(carry._replace(steps=tf.zeros_like(carry.steps)))

    def step(carry, batch):
        inner = pass_.step(carry.inner, batch)
        if pass_.training:
            in_time = carry.steps < carry.budgets[..., number]
            inner = rows.select(in_time, inner, carry.inner)
        return carry._replace(inner=inner, steps=carry.steps + 1)

    return dataclasses.replace(outer, begin=begin, step=step, changes=())
