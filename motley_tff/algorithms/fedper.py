"""FedPer (Arivazhagan et al. 2019, https://arxiv.org/abs/1912.00818, Algorithm 1), stateful.

All layers but the last are averaged; the last stays with the client. A client steps both together.
The paper's server averages (SGD at rate 1); here it has the server optimizer of the global model.
A model of one layer has nothing left to share: FedPer then is local training. With no personal
layers it is FedAvg. FedAvg is trained beside it as the baseline.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from motley_tff.algorithms import optimizers, personal_training
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.personal_training import Personal, PersonalTraining, SiloAlgorithm
from motley_tff.core import algorithm, learning
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class FedPer(SiloAlgorithm):
    """FedPer's hyperparameters.

    The server optimizer is that of the shared layers too, the personal optimizer that of both
    halves of a client's model.

    Attributes:
      personal_layers: 1, the last layer, or 0, which gives back FedAvg.
    """

    card: ClassVar[Card] = Card(
        "fedper",
        "FedPer",
        ("mtl_trainer",),
        "own last layers on shared first ones",
        trains_fedavg=True,
        can_be_grouped=True,
    )
    personal_layers: int = 1

    def build(self, task: Task, initial_weights: Weights) -> algorithm.Algorithm:
        """Returns FedPer; a client's state is its last layer, the server shares the others."""
        trainer = personal_training.Trainer(task, self)
        is_personal = tuple(
            bool(self.personal_layers) and last for last in task.model.is_last_layer
        )
        is_shared = tuple(not personal for personal in is_personal)

        def joined(layers, state):
            whole = learning.merge(tuple(initial_weights), layers, is_shared)
            return learning.merge(whole, state, is_personal)

        def pick(weights, mask):
            return tuple(w for w, wanted in zip(weights, mask, strict=True) if wanted)

        def start(shared, state, client):
            return Personal(trainer.start(joined(shared, state)), tuple(shared))

        def step(personal, batch, base):
            return personal._replace(learner=trainer.step(personal.learner, batch))

        def contribution(personal):
            return learning.subtract(personal.memory, pick(personal.learner.weights, is_shared))

        layers = pick(initial_weights, is_shared)
        return personal_training.build(
            task,
            self,
            initial_weights,
            PersonalTraining(
                start,
                step,
                lambda personal: pick(personal.learner.weights, is_personal),
                contribution,
                num_epochs=self.train_epochs,
            ),
            communicated=layers,
            initial_state=pick(initial_weights, is_personal),
            personal_model=lambda weights, state: joined(weights[1], state),
            shared=layers,
            shared_optimizer=optimizers.build(self.server_optimizer) if layers else None,
        )
