"""FedPer (Arivazhagan et al. 2019, https://arxiv.org/abs/1912.00818, Algorithm 1), stateful.

All layers but the last are averaged; the last stays with the client. A client steps both together.
The paper's server averages (SGD at rate 1); here it has the server optimizer of the global model.
A model of one layer has nothing left to share: FedPer then is local training. With no personal
layers it is FedAvg. FedAvg is trained beside it as the baseline.
"""

import dataclasses

from motley_tff.algorithms import beside_fedavg, fedavg, optimizers
from motley_tff.core import algorithm, learning
from motley_tff.core import task as task_lib


@dataclasses.dataclass(frozen=True)
class Params:
    """Hyperparameters.

    Attributes:
      fedavg: Those of the baseline; its server optimizer is that of the shared layers too.
      personal_optimizer: Optimizer of both halves of a client's model; its state starts anew
        every round.
      personal_layers: 1, the last layer, or 0, which gives back FedAvg.
    """

    fedavg: fedavg.Params
    personal_optimizer: optimizers.OptimizerConfig
    personal_layers: int = 1


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns FedPer; a client's state is its last layer, the server shares the others."""
    optimizer = optimizers.build(params.personal_optimizer)
    trained = (True,) * len(task.model.shapes)
    is_own = tuple(bool(params.personal_layers) and last for last in task.model.is_last_layer)
    is_shared = tuple(not mine for mine in is_own)

    def joined(layers, state):
        whole = learning.merge(tuple(initial_weights), layers, is_shared)
        return learning.merge(whole, state, is_own)

    def pick(weights, mask):
        return tuple(w for w, wanted in zip(weights, mask, strict=True) if wanted)

    def start(shared, state, client):
        learner = learning.start(task, optimizer, joined(shared, state), trained)
        return beside_fedavg.Mine(learner, tuple(shared))

    def step(own, batch, base):
        return own._replace(learner=learning.train(task, optimizer, own.learner, batch, trained))

    def contribution(own):
        return learning.subtract(own.memory, pick(own.learner.weights, is_shared))

    layers = pick(initial_weights, is_shared)
    return beside_fedavg.build(
        task,
        "fedper",
        params.fedavg,
        initial_weights,
        beside_fedavg.Own(
            start,
            step,
            lambda own: pick(own.learner.weights, is_own),
            params.fedavg.train_epochs,
            contribution=contribution,
        ),
        initial_client_state=lambda index: pick(initial_weights, is_own),
        personal_model=lambda weights, state: joined(weights[1], state),
        communicated=layers,
        shared=layers,
        shared_optimizer=optimizers.build(params.fedavg.server_optimizer) if layers else None,
    )
