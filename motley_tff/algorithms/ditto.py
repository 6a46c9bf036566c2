"""Ditto (Li et al. 2021, https://arxiv.org/abs/2012.04221, Algorithm 1), stateful.

Every round, from the same incoming global model w: one pass of the global model on the client's
loss, whose change goes to the server as in FedAvg, and one pass of the client's own model v on
loss(v) + lambda / 2 * ||v - w||^2. The two passes use different shuffles, as the published silo
code does. lambda = 0 is local training of v beside FedAvg.
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
      fedavg: Those of the global model.
      personal_optimizer: Optimizer of the personal models; its state starts anew every round.
      regularization: lambda, at least 0.
    """

    fedavg: fedavg.Params
    personal_optimizer: optimizers.OptimizerConfig
    regularization: float


class Carry(NamedTuple):
    """One client's round: the global model's training, then the personal one's."""

    base: fedavg.Carry
    personal: learning.Learner


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns Ditto; a client's state is its personal weights."""
    base = fedavg.build(task, params.fedavg, initial_weights)
    return dataclasses.replace(
        base,
        name="ditto",
        work=_client_work(task, params, base.work),
        initial_client_state=lambda index: tuple(initial_weights),
    )


def _client_work(
    task: task_lib.Task, params: Params, base: client_work.ClientWork
) -> client_work.ClientWork:
    optimizer = optimizers.build(params.personal_optimizer)
    trained = (True,) * len(task.model.shapes)
    (global_pass,) = base.passes

    def init(broadcast, client_state, client):
        personal = learning.start(task, optimizer, client_state, trained)
        return Carry(base.init(broadcast, (), client), personal)

    def global_step(carry, batch):
        return carry._replace(base=global_pass.step(carry.base, batch))

    def personal_step(carry, batch):
        def penalty(weights):
            distance = learning.squared_distance(weights, carry.base.incoming)
            return 0.5 * params.regularization * distance

        personal = learning.train(task, optimizer, carry.personal, batch, trained, penalty)
        return carry._replace(personal=personal)

    def finish(carry):
        output = base.finish(carry.base)
        # A personal model may diverge where the global one does not: its loss tells.
        totals = dict(output.metrics.totals)
        totals["loss"] += tf.zeros([]) * carry.personal.sums.totals["loss"]
        return output._replace(
            client_state=carry.personal.weights, metrics=output.metrics._replace(totals=totals)
        )

    passes = (
        dataclasses.replace(global_pass, step=global_step),
        dataclasses.replace(global_pass, step=personal_step),
    )
    return client_work.ClientWork(init, passes, finish)
