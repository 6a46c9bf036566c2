"""Mocha (Smith et al. 2017, https://arxiv.org/abs/1705.10467), in the primal, stateful.

K silos learn a matrix W (K x d) of local models and how they are related, a matrix S (K x K). Silo
t minimizes its loss + lambda / 2 * tr(W' S W) over its own row; the other rows are those of the
round's start. After the round's `mocha_outer` local passes the server sets S = sqrt(W W') /
tr(sqrt(W W')), eigenvalues of W W' floored at 1e-8. S starts as I / K. This is the primal form of
Motley's silo code, which puts S where the paper's equation (2) has its inverse; the paper's own
method is dual. lambda = 0 gives back local training. FedAvg is trained beside it as the baseline.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from motley_tff.algorithms import beside_fedavg, fedavg, optimizers
from motley_tff.core import algorithm, learning
from motley_tff.core import task as task_lib

_FLOOR = 1e-8


@dataclasses.dataclass(frozen=True)
class Params:
    """Hyperparameters.

    Attributes:
      fedavg: Those of the baseline.
      personal_optimizer: Optimizer of the local models; its state starts anew every round.
      regularization: lambda, at least 0; 0 gives back local training.
      outer: `mocha_outer`, local passes a round before S is renewed, at least 1.
    """

    fedavg: fedavg.Params
    personal_optimizer: optimizers.OptimizerConfig
    regularization: float = 0.01
    outer: int = 1


class Memory(NamedTuple):
    """What a silo's steps need: its row's number and weight, S[t, t], and S[t] W without it."""

    index: tf.Tensor
    weight: tf.Tensor
    own_relation: tf.Tensor
    others: learning.Weights


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns Mocha; a silo's state is its row of W.

    What the server keeps beside FedAvg's weights is (W, leaves [silos, ...]; S [silos, silos];
    [silos], of use in updates only, where it tells whose rows came).
    """
    num_silos = len(task.train)
    optimizer = optimizers.build(params.personal_optimizer)
    trained = (True,) * len(task.model.shapes)

    def start(shared, state, client):
        models, relations, _ = shared
        row = tf.gather(relations, client.index)
        is_own = tf.equal(tf.range(num_silos), client.index)
        to_others = tf.where(is_own, 0.0, row)
        memory = Memory(
            client.index,
            tf.cast(client.num_examples["train"], tf.float32),
            tf.reduce_sum(tf.where(is_own, row, 0.0)),
            tuple(tf.tensordot(to_others, leaf, axes=1) for leaf in models),
        )
        return beside_fedavg.Mine(learning.start(task, optimizer, state, trained), memory)

    def step(own, batch, base):
        def penalty(weights):
            """Returns lambda / 2 * tr(W' S W) but for what does not depend on this row."""
            squares = tf.add_n([tf.reduce_sum(tf.square(w)) for w in weights])
            products = tf.add_n(
                [tf.reduce_sum(w * o) for w, o in zip(weights, own.memory.others, strict=True)]
            )
            return params.regularization * (0.5 * own.memory.own_relation * squares + products)

        learner = learning.train(task, optimizer, own.learner, batch, trained, penalty)
        return own._replace(learner=learner)

    def contribution(own):
        """Returns the silo's row, over its weight in the mean: the server gets back sums."""
        is_own = tf.equal(tf.range(num_silos), own.memory.index)
        share = tf.math.divide_no_nan(1.0, own.memory.weight)
        present = tf.where(is_own, share, 0.0)
        models = tuple(tf.tensordot(present, w, axes=0) for w in own.learner.weights)
        return models, tf.zeros([num_silos, num_silos]), present

    built = beside_fedavg.build(
        task,
        "mocha",
        params.fedavg,
        initial_weights,
        beside_fedavg.Own(
            start,
            step,
            lambda own: own.learner.weights,
            params.fedavg.train_epochs * params.outer,
            contribution=contribution,
        ),
        initial_client_state=lambda index: tuple(initial_weights),
        personal_model=lambda weights, state: state,
        communicated=tuple(initial_weights),
        shared=(
            tuple(np.repeat(np.asarray(w)[None], num_silos, axis=0) for w in initial_weights),
            np.eye(num_silos, dtype=np.float32) / num_silos,
            np.zeros(num_silos, np.float32),
        ),
        shared_optimizer=_Server(),
    )
    return dataclasses.replace(built, matrices=lambda weights: {"relations": weights[1][1]})


def relations(models: learning.Weights) -> tf.Tensor:
    """Returns S of local models, leaves [silos, ...]: sqrt(W W') / tr(sqrt(W W')).

    W W' has the squared singular values of W. Where W has fewer columns than rows, the smaller
    W' W is decomposed; the directions it lacks have the floor's root.
    """
    w = tf.concat([tf.reshape(leaf, [leaf.shape[0], -1]) for leaf in models], axis=1)
    floor = _FLOOR**0.5
    if w.shape[0] <= w.shape[1]:
        values, vectors = tf.linalg.eigh(tf.matmul(w, w, transpose_b=True))
        excess = tf.sqrt(tf.maximum(values, _FLOOR)) - floor
    else:
        values, right = tf.linalg.eigh(tf.matmul(w, w, transpose_a=True))
        is_real = values > _FLOOR
        vectors = tf.matmul(w, right)
        # Of u = W v / sqrt(value): the root of W W' along u, beyond the floor.
        excess = tf.where(is_real, (tf.sqrt(values) - floor) / values, 0.0)
    root = tf.matmul(vectors * excess[None, :], vectors, transpose_b=True)
    root += floor * tf.eye(w.shape[0])
    return root / tf.linalg.trace(root)


class _Server:
    """Puts the rows that came into W and renews S."""

    def initialize(self, specs):
        """Returns no state."""
        return ()

    def next(self, state, weights, update):
        """Returns (no state, (W, S, nothing)); see `core.algorithm.ServerOptimizer`."""
        models, _, nobody = weights
        rows, _, present = update
        new = tuple(_take_rows(w, r, present) for w, r in zip(models, rows, strict=True))
        return state, (new, relations(new), nobody)


def _take_rows(old: tf.Tensor, rows: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    present = tf.reshape(present, [-1] + [1] * (len(old.shape) - 1))
    return tf.where(present > 0.0, tf.math.divide_no_nan(rows, present), old)
