"""MR-MTL, mean-regularized multi-task learning, in the stateful form Motley's silo code has.

Client i minimizes loss(v_i) + lambda / 2 * ||v_i - w||^2 from its own model v_i of the last round;
w is the mean of the personal models: the server applies its optimizer to the weighted mean of their
changes. (Evgeniou, Pontil 2004, "Regularized multi-task learning"; the published code calls it
stateful pFedMe.) lambda = 0 gives back local training. The baseline is w.
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
      fedavg: Epochs, batch size and server optimizer; the client optimizer is not used.
      personal_optimizer: Optimizer of the personal models; its state starts anew every round.
      regularization: lambda, at least 0; 0 gives back local training.
    """

    fedavg: fedavg.Params
    personal_optimizer: optimizers.OptimizerConfig
    regularization: float = 0.1


class Carry(NamedTuple):
    """One client's round: the mean model, its own model before and now, its weight."""

    mean: learning.Weights
    before: learning.Weights
    learner: learning.Learner
    weight: tf.Tensor


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns MR-MTL; a client's state is its personal weights."""
    base = fedavg.build(task, params.fedavg, initial_weights)
    return dataclasses.replace(
        base,
        name="mr_mtl",
        work=_client_work(task, params, base.work),
        initial_client_state=lambda index: tuple(initial_weights),
        personal_model=lambda weights, state: state,
    )


def _client_work(
    task: task_lib.Task, params: Params, base: client_work.ClientWork
) -> client_work.ClientWork:
    optimizer = optimizers.build(params.personal_optimizer)
    trained = (True,) * len(task.model.shapes)

    def init(broadcast, client_state, client):
        return Carry(
            mean=tuple(broadcast),
            before=tuple(client_state),
            learner=learning.start(task, optimizer, client_state, trained),
            weight=tf.cast(client.num_examples["train"], tf.float32),
        )

    def step(carry, batch):
        def penalty(weights):
            return 0.5 * params.regularization * learning.squared_distance(weights, carry.mean)

        learner = learning.train(task, optimizer, carry.learner, batch, trained, penalty)
        return carry._replace(learner=learner)

    def finish(carry):
        return client_work.ClientOutput(
            update=learning.subtract(carry.before, carry.learner.weights),
            weight=carry.weight,
            client_state=carry.learner.weights,
            metrics=carry.learner.sums,
        )

    (walk,) = base.passes
    return client_work.ClientWork(init, (dataclasses.replace(walk, step=step),), finish)
