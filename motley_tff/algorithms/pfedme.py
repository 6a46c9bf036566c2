"""pFedMe (Dinh et al. 2020, https://arxiv.org/abs/2006.08848, Algorithm 1), stateful.

A client keeps a local copy w_i of the global model and a personal model theta. On every batch,
theta takes a few steps towards argmin f(theta) + lambda / 2 * ||theta - w_i||^2 (the Moreau
envelope's inner problem), starting from where it was, also across rounds; then
w_i -= eta * lambda * (w_i - theta). The server averages the w_i; its optimizer takes the place of
the paper's beta. lambda = 0 with one inner step gives back local training of theta, with a global
model that never moves. The baseline is the global model.
"""

import dataclasses

from motley_tff.algorithms import fedavg, optimizers, own_models
from motley_tff.core import algorithm, learning
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


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns pFedMe; a client's state is theta."""
    pull = params.fedavg.client_optimizer.learning_rate * params.regularization

    def step(carry, batch, train):
        """Moves theta towards the local copy, which is what will be sent, and that after it."""
        copy = carry.sent
        first = theta = train(carry.own, batch, copy)
        for _ in range(params.inner_steps - 1):
            theta = train(theta, batch, copy)
        copy = tuple(w - pull * (w - t) for w, t in zip(copy, theta.weights, strict=True))
        # The metrics are those of the model that met the batch, once.
        return carry._replace(own=theta._replace(sums=first.sums), sent=copy)

    return own_models.build(
        task,
        "pfedme",
        params.fedavg,
        params.personal_optimizer,
        params.regularization,
        initial_weights,
        own_models.Own(
            begin=lambda incoming, theta: incoming,
            step=step,
            update=lambda carry: learning.subtract(carry.incoming, carry.sent),
        ),
    )
