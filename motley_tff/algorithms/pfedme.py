"""pFedMe (Dinh et al. 2020, https://arxiv.org/abs/2006.08848, Algorithm 1), stateful.

A client keeps a local copy w_i of the global model and a personal model theta. On every batch,
theta takes a few steps towards argmin f(theta) + lambda / 2 * ||theta - w_i||^2 (the Moreau
envelope's inner problem), starting from where it was, also across rounds; then
w_i -= eta * lambda * (w_i - theta). The server averages the w_i; its optimizer takes the place of
the paper's beta. lambda = 0 with one inner step gives back local training of theta, with a global
model that never moves. The baseline is the global model.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from motley_tff.algorithms import fedavg, optimizers
from motley_tff.core import algorithm, client_work, learning
from motley_tff.core import task as task_lib


@dataclasses.dataclass(frozen=True)
class Params:
    """Hyperparameters.

    Attributes:
      fedavg: Epochs, batch size, server optimizer; the client optimizer's rate is eta.
      personal_optimizer: Optimizer of the inner problem; its state starts anew every round.
      regularization: lambda, at least 0; eta * lambda should not exceed 1.
      inner_steps: Steps on the inner problem a batch, at least 1.
    """

    fedavg: fedavg.Params
    personal_optimizer: optimizers.OptimizerConfig
    regularization: float = 1.0
    inner_steps: int = 5


class Carry(NamedTuple):
    """One client's round: the global model as it came, its local copy, theta, its weight."""

    incoming: learning.Weights
    copy: learning.Weights
    theta: learning.Learner
    weight: tf.Tensor


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns pFedMe; a client's state is theta."""
    base = fedavg.build(task, params.fedavg, initial_weights)
    return dataclasses.replace(
        base,
        name="pfedme",
        work=_client_work(task, params, base.work),
        initial_client_state=lambda index: tuple(initial_weights),
        personal_model=lambda weights, state: state,
    )


def _client_work(
    task: task_lib.Task, params: Params, base: client_work.ClientWork
) -> client_work.ClientWork:
    optimizer = optimizers.build(params.personal_optimizer)
    trained = (True,) * len(task.model.shapes)
    pull = params.fedavg.client_optimizer.learning_rate * params.regularization

    def init(broadcast, client_state, client):
        return Carry(
            incoming=tuple(broadcast),
            copy=tuple(broadcast),
            theta=learning.start(task, optimizer, client_state, trained),
            weight=tf.cast(client.num_examples["train"], tf.float32),
        )

    def step(carry, batch):
        def penalty(weights):
            return 0.5 * params.regularization * learning.squared_distance(weights, carry.copy)

        first = theta = learning.train(task, optimizer, carry.theta, batch, trained, penalty)
        for _ in range(params.inner_steps - 1):
            theta = learning.train(task, optimizer, theta, batch, trained, penalty)
        # The metrics are those of the model that met the batch, once.
        theta = theta._replace(sums=first.sums)
        copy = tuple(w - pull * (w - t) for w, t in zip(carry.copy, theta.weights, strict=True))
        return carry._replace(copy=copy, theta=theta)

    def finish(carry):
        return client_work.ClientOutput(
            update=learning.subtract(carry.incoming, carry.copy),
            weight=carry.weight,
            client_state=carry.theta.weights,
            metrics=carry.theta.sums,
        )

    (walk,) = base.passes
    return client_work.ClientWork(init, (dataclasses.replace(walk, step=step),), finish)
