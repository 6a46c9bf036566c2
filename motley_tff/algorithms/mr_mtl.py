"""MR-MTL, mean-regularized multi-task learning, in the stateful form Motley's silo code has.

Client i minimizes loss(v_i) + lambda / 2 * ||v_i - w||^2 from its own model v_i of the last round;
w is the mean of the personal models: the server applies its optimizer to the weighted mean of their
changes. (Evgeniou, Pontil 2004, "Regularized multi-task learning"; the published code calls it
stateful pFedMe.) lambda = 0 gives back local training. The baseline is w.
"""

import dataclasses

from motley_tff.algorithms import fedavg, optimizers, own_models
from motley_tff.core import algorithm, learning
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


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns MR-MTL; a client's state is its personal weights."""

    def step(carry, batch, train):
        return carry._replace(own=train(carry.own, batch, carry.incoming))

    return own_models.build(
        task,
        "mr_mtl",
        params.fedavg,
        params.personal_optimizer,
        params.regularization,
        initial_weights,
        own_models.Own(
            begin=lambda mean, before: before,
            step=step,
            update=lambda carry: learning.subtract(carry.sent, carry.own.weights),
        ),
    )
