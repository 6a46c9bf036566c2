"""What MR-MTL and pFedMe have in common: silos train models of their own in FedAvg's place.

FedAvg's cohorts, batches, weights and server stay; a client's steps and what it sends are others. A
client's state is its model, and so is what the server evaluates on it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from motley_tff.algorithms import fedavg, optimizers
from motley_tff.core import algorithm, client_work, learning
from motley_tff.core import task as task_lib


class Carry(NamedTuple):
    """One client's round.

    Attributes:
      incoming: The server's weights as they came.
      own: The client's model, in training.
      sent: What the update is made from; `Own` says what.
      weight: The client's training examples.
      index: The client's number.
    """

    incoming: Any
    own: learning.Learner
    sent: learning.Weights
    weight: tf.Tensor
    index: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Own:
    """What an algorithm does on a client.

    Attributes:
      begin: `(incoming, own weights) -> sent`, before the first batch.
      step: `(carry, batch, train) -> carry`; `train(learner, batch, anchor)` is a step of the
        personal optimizer on loss + lambda / 2 * ||weights - anchor||^2.
      update: `carry -> update`, after the last batch.
    """

    begin: Callable[[Any, learning.Weights], learning.Weights]
    step: Callable[[Carry, client_work.Batch, Callable], Carry]
    update: Callable[[Carry], Any]


def build(
    task: task_lib.Task,
    name: str,
    params: fedavg.Params,
    personal_optimizer: optimizers.OptimizerConfig,
    regularization: float,
    initial_weights: learning.Weights,
    own: Own,
) -> algorithm.Algorithm:
    """Returns an algorithm whose clients keep their weights.

    Args:
      task: The task.
      name: The algorithm's registered name.
      params: Epochs, batch size and server optimizer.
      personal_optimizer: Optimizer of the personal models; its state starts anew every round.
      regularization: lambda.
      initial_weights: The server's and every client's first weights.
      own: What clients do.
    """
    base = fedavg.build(task, params, initial_weights)
    return dataclasses.replace(
        base,
        name=name,
        work=_client_work(task, optimizers.build(personal_optimizer), regularization, base, own),
        initial_client_state=lambda index: tuple(initial_weights),
        personal_model=lambda weights, state: state,
    )


def _client_work(task, optimizer, regularization, base, own) -> client_work.ClientWork:
    trained = (True,) * len(task.model.shapes)

    def train(learner, batch, anchor):
        def penalty(weights):
            return 0.5 * regularization * learning.squared_distance(weights, anchor)

        return learning.train(task, optimizer, learner, batch, trained, penalty)

    def init(broadcast, client_state, client):
        return Carry(
            incoming=tuple(broadcast),
            own=learning.start(task, optimizer, client_state, trained),
            sent=own.begin(tuple(broadcast), tuple(client_state)),
            weight=tf.cast(client.num_examples["train"], tf.float32),
            index=client.index,
        )

    def finish(carry):
        return client_work.ClientOutput(
            update=own.update(carry),
            weight=carry.weight,
            client_state=carry.own.weights,
            metrics=carry.own.sums,
        )

    (walk,) = base.work.passes
    walk = dataclasses.replace(walk, step=lambda carry, batch: own.step(carry, batch, train))
    return client_work.ClientWork(init, (walk,), finish)


def place(num_silos: int, index: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Returns a silo's mark in the mean of a cohort: float32 [silos], 1 / weight in its place.

    The weighted mean of these has 1 / (weight of the whole cohort) where a silo took part and 0
    where it did not, so a server that is given means alone knows who took part, and how much.

    Args:
      num_silos: How many there are.
      index: The silo's number.
      weight: Its weight in the mean.
    """
    is_own = tf.equal(tf.range(num_silos), index)
    return tf.where(is_own, tf.math.divide_no_nan(1.0, weight), 0.0)
