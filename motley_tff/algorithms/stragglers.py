"""Clients that a round's deadline stops early, whatever the algorithm.

As FedProx (Li et al. 2020, https://arxiv.org/abs/1812.06127, section 5.2) simulates systems
heterogeneity, partial work counts: a straggler sends the model it has reached. In the paper
stragglers get a number of epochs drawn at random; here it is a share of their training steps.
Passes that only look at data, such as the choice of a cluster, are not cut.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from motley_tff.core import algorithm as algorithm_lib
from motley_tff.core import client_work, learning, tensor_random


class Carry(NamedTuple):
    """A client's own carry, how many training steps it has done, and after how many it stops."""

    inner: Any
    steps: tf.Tensor
    budget: tf.Tensor


def slowed(algorithm: algorithm_lib.Algorithm, rate: float) -> algorithm_lib.Algorithm:
    """Returns the algorithm with stragglers among its clients.

    Args:
      algorithm: Any training algorithm.
      rate: Probability that a client is one in a round, in [0, 1].
    """
    if not rate:
        return algorithm
    work = algorithm.work

    def init(broadcast, client_state, client):
        inner = work.init(broadcast, client_state, client)
        return Carry(inner, tf.constant(0), _budget(work, client, rate))

    slow = client_work.ClientWork(
        init=init,
        passes=tuple(_slowed_pass(walk) for walk in work.passes),
        finish=lambda carry: work.finish(carry.inner),
        loop=tuple(_slowed_pass(walk) for walk in work.loop),
        num_loops=work.num_loops,
        loop_period=work.loop_period,
    )
    return dataclasses.replace(algorithm, work=slow)


def _budget(work, client, rate) -> tf.Tensor:
    """Returns how many training steps a client has time for: all, or a random share, at least 1."""
    total = tf.constant(0)
    for walks, times in ((work.passes, 1), (work.loop, work.num_loops)):
        for walk in walks:
            if walk.training:
                steps = client_work.steps_per_epoch(client.num_examples[walk.part], walk)
                total += steps * walk.num_epochs * times
    drawn = tensor_random.bits(tensor_random.fold(client.key, tensor_random.FAULT, 0), [2])
    # 24 bits of a random word are a float32 in [0, 1) exactly.
    uniform = tf.cast(tf.bitwise.right_shift(drawn, tf.constant(8, tf.uint32)), tf.float32) / 2**24
    share = tf.cast(tf.math.ceil(uniform[1] * tf.cast(total, tf.float32)), tf.int32)
    return tf.where(uniform[0] < rate, tf.maximum(share, 1), total)


def _slowed_pass(walk: client_work.Pass) -> client_work.Pass:
    def inside(change):
        if change is client_work.unchanged:
            return change
        return lambda carry: carry._replace(inner=change(carry.inner))

    def step(carry, batch):
        done = walk.step(carry.inner, batch)
        if not walk.training:
            return carry._replace(inner=done)
        in_time = carry.steps < carry.budget
        inner = learning.select(in_time, done, carry.inner)
        return Carry(inner, carry.steps + 1, carry.budget)

    return dataclasses.replace(walk, step=step, begin=inside(walk.begin), end=inside(walk.end))
