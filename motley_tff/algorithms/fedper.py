"""FedPer (Arivazhagan et al. 2019, https://arxiv.org/abs/1912.00818, Algorithm 1), stateful.

The first layers are averaged; the last ones stay with the client. A client steps both together.
The paper's server averages (SGD at rate 1); here it has the server optimizer of the global model.
A model of one layer has nothing left to share: FedPer then is local training. With no personal
layers it is FedAvg. FedAvg is trained beside it as the baseline.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from motley_tff.algorithms import personal_training
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.personal_training import Personal, SiloAlgorithm
from motley_tff.core import options
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import Client
from motley_tff.core.errors import UserError
from motley_tff.core.learning import Weights
from motley_tff.core.options import option
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class FedPer(SiloAlgorithm):
    """FedPer's hyperparameters: `personal_layers` is how many of the last layers are a silo's own;
    0 gives back FedAvg.

    The server optimizer is that of the shared layers too, the personal optimizer that of both
    halves of a client's model.
    """

    card: ClassVar[Card] = Card(
        "fedper",
        "FedPer",
        ("mtl_trainer",),
        "own last layers on shared first ones",
        trains_fedavg=True,
        can_be_grouped=True,
        takes_rows=True,
    )
    personal_layers: int = option(1, "How many last layers are a silo's own; 0 is FedAvg")

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns FedPer; a client's state is its last layers, the server shares the others."""
        trainer = self.trainer(task)
        try:
            is_own = task.model.last_layers(self.personal_layers)
        except ValueError as error:
            expected = f"no more layers than there are ({error})"
            name = options.name_of(self, "personal_layers")
            raise UserError(name, self.personal_layers, expected) from error
        layers = personal_training.SharedLayers(initial_weights, is_own)

        def start(shared: Weights, state: Weights, client: Client) -> Personal:
            return Personal(trainer.start(layers.joined(shared, state)), (tuple(shared),))

        return layers.build(task, self, start, trainer.step)
