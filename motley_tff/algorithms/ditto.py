"""Ditto (Li et al. 2021, https://arxiv.org/abs/2012.04221, Algorithm 1), stateful.

Every round, from the same incoming global model w: one pass of the global model on the client's
loss, whose change goes to the server as in FedAvg, and one pass of the client's own model v on
loss(v) + lambda / 2 * ||v - w||^2. The two passes use different shuffles, as the published silo
code does. lambda = 0 is local training of v beside FedAvg.
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
      personal_optimizer: Optimizer of the personal models; its state starts anew every round.
      regularization: lambda, at least 0; 0 gives back local training.
    """

    fedavg: fedavg.Params
    personal_optimizer: optimizers.OptimizerConfig
    regularization: float = 1.0


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns Ditto; a client's state is its personal weights."""
    optimizer = optimizers.build(params.personal_optimizer)
    trained = (True,) * len(task.model.shapes)

    def start(shared, state, client):
        return beside_fedavg.Mine(learning.start(task, optimizer, state, trained), ())

    def step(own, batch, base):
        def penalty(weights):
            distance = learning.squared_distance(weights, base.incoming)
            return 0.5 * params.regularization * distance

        learner = learning.train(task, optimizer, own.learner, batch, trained, penalty)
        return own._replace(learner=learner)

    return beside_fedavg.build(
        task,
        "ditto",
        params.fedavg,
        initial_weights,
        beside_fedavg.Own(start, step, lambda own: own.learner.weights, params.fedavg.train_epochs),
        initial_client_state=lambda index: tuple(initial_weights),
        personal_model=lambda weights, state: state,
        communicated=tuple(initial_weights),
    )
