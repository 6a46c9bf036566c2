"""Local training: every silo trains its own model, alone.

In a round each silo takes `train_epochs` epochs of optimizer steps on its own model, so R rounds
are R * train_epochs epochs, evaluated like any other algorithm's rounds. FedAvg is trained beside
it as the baseline.
"""

import dataclasses

from motley_tff.algorithms import beside_fedavg, fedavg, optimizers
from motley_tff.core import algorithm, learning
from motley_tff.core import task as task_lib


@dataclasses.dataclass(frozen=True)
class Params:
    """Hyperparameters.

    Attributes:
      fedavg: Those of the baseline; local training has as many epochs a round.
      personal_optimizer: Optimizer of the silos' own models; its state starts anew every round.
    """

    fedavg: fedavg.Params
    personal_optimizer: optimizers.OptimizerConfig


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns local training; a client's state is its weights."""
    optimizer = optimizers.build(params.personal_optimizer)
    trained = (True,) * len(task.model.shapes)

    def start(shared, state, client):
        return beside_fedavg.Mine(learning.start(task, optimizer, state, trained), ())

    def step(own, batch, base):
        return own._replace(learner=learning.train(task, optimizer, own.learner, batch, trained))

    return beside_fedavg.build(
        task,
        "local",
        params.fedavg,
        initial_weights,
        beside_fedavg.Own(start, step, lambda own: own.learner.weights, params.fedavg.train_epochs),
        initial_client_state=lambda index: tuple(initial_weights),
        personal_model=lambda weights, state: state,
        communicated=(),
    )
