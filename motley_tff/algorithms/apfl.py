"""APFL (Deng et al. 2020, https://arxiv.org/abs/2003.13461, Algorithm 1), stateful.

A client mixes the global model w with one of its own v: u = alpha v + (1 - alpha) w. On every batch
it steps w on loss(w), as FedAvg does, and v on loss(u), whose gradient is alpha times that at u;
both gradients are taken before either step.
Its personal model is alpha v + (1 - alpha) w with the server's newest w (the paper averages over
the iterates; the mixing weight is fixed here, the paper's first variant). alpha = 0 gives back
FedAvg, alpha = 1 local training.
"""

import dataclasses

from motley_tff.algorithms import beside_fedavg, fedavg, optimizers
from motley_tff.core import algorithm, learning
from motley_tff.core import task as task_lib


@dataclasses.dataclass(frozen=True)
class Params:
    """Hyperparameters.

    Attributes:
      fedavg: Those of the global model.
      personal_optimizer: Optimizer of the clients' own models; its state starts anew every round.
      alpha: Share of the own model in the mixture, 0 to 1.
    """

    fedavg: fedavg.Params
    personal_optimizer: optimizers.OptimizerConfig
    alpha: float = 0.5


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns APFL; a client's state is v."""
    optimizer = optimizers.build(params.personal_optimizer)
    trained = (True,) * len(task.model.shapes)

    def mixed(own, world):
        return tuple(
            params.alpha * v + (1.0 - params.alpha) * w for v, w in zip(own, world, strict=True)
        )

    def start(shared, state, client):
        return beside_fedavg.Mine(learning.start(task, optimizer, state, trained), ())

    def step(own, batch, base):
        mixture = mixed(own.learner.weights, base.learner.weights)
        gradients, sums = learning.gradients(task, mixture, batch, own.learner.sums, trained)
        scaled = tuple(params.alpha * g for g in gradients)
        state, new = optimizer.next(own.learner.optimizer_state, own.learner.weights, scaled)
        return own._replace(learner=learning.Learner(tuple(new), state, sums))

    return beside_fedavg.build(
        task,
        "apfl",
        params.fedavg,
        initial_weights,
        beside_fedavg.Own(start, step, lambda own: own.learner.weights, same_batches=True),
        initial_client_state=lambda index: tuple(initial_weights),
        personal_model=lambda weights, state: mixed(state, weights[0]),
        communicated=tuple(initial_weights),
    )
