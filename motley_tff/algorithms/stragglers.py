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
from typing import Any, NamedTuple

from motley_tff.core import client_work, learning, tensor_random
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.lazy import tf


class Carry(NamedTuple):
    """A client's own carry, its steps of this pass so far, and after how many each pass stops."""

    inner: Any
    steps: tf.Tensor
    budgets: tf.Tensor


def slowed(algorithm: Algorithm, rate: float) -> Algorithm:
    """Returns the algorithm with clients that straggle in a round with probability `rate` <= 1."""
    if not rate:
        return algorithm
    work = algorithm.work
    walks = work.all_passes

    def init(broadcast, client_state, client):
        inner = work.init(broadcast, client_state, client)
        share = _share(client, rate)
        return Carry(inner, tf.constant(0), tf.stack([_budget(w, client, share) for w in walks]))

    slow = tuple(_slowed_pass(walk, i) for i, walk in enumerate(walks))
    first = len(work.passes)
    slow_work = dataclasses.replace(
        work,
        init=init,
        passes=slow[:first],
        loop=slow[first:],
        finish=lambda carry: work.finish(carry.inner),
    )
    return dataclasses.replace(algorithm, work=slow_work)


def _share(client: client_work.Client, rate: float) -> tf.Tensor:
    """Returns the share of its training steps that a client has time for; of most clients 1."""
    drawn = tensor_random.bits(tensor_random.fold(client.key, tensor_random.FAULT, 0), [2])
    # 24 bits of a random word are a float32 in [0, 1) exactly.
    uniform = tf.cast(tf.bitwise.right_shift(drawn, tf.constant(8, tf.uint32)), tf.float32) / 2**24
    return tf.where(uniform[0] < rate, uniform[1], 1.0)


def _budget(walk: client_work.Pass, client: client_work.Client, share: tf.Tensor) -> tf.Tensor:
    """Returns how many steps of one walk a client has time for, at least 1."""
    steps = client_work.num_steps(client.num_examples[walk.part], walk)
    return tf.maximum(tf.cast(tf.math.ceil(share * tf.cast(steps, tf.float32)), tf.int32), 1)


def _slowed_pass(walk: client_work.Pass, number: int) -> client_work.Pass:
    def begin(carry):
        return carry._replace(inner=walk.begin(carry.inner), steps=tf.zeros_like(carry.steps))

    def step(carry, batch):
        done = walk.step(carry.inner, batch)
        if walk.training:
            in_time = carry.steps < carry.budgets[number]
            done = learning.select(in_time, done, carry.inner)
        return carry._replace(inner=done, steps=carry.steps + 1)

    def end(carry):
        return carry._replace(inner=walk.end(carry.inner))

    return dataclasses.replace(walk, step=step, begin=begin, end=end)
