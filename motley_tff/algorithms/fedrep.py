"""FedRep (Collins et al. 2021, https://arxiv.org/abs/2102.07078, Algorithm 1), stateful.

All layers but the last are averaged (the representation), the last stays with the silo (its head).
A silo first takes `head_epochs` epochs of steps on its head alone, then `train_epochs` on the
representation alone; FedPer steps both together. Optimizers start anew each round, unless silos
keep both; FedAvg is trained beside it as the baseline. A model of one layer has no representation:
FedRep then is local training for `head_epochs` a round.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from motley_tff.algorithms import personal_training
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.personal_training import Personal, SiloAlgorithm
from motley_tff.core import learning
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import Batch, Client
from motley_tff.core.learning import Weights
from motley_tff.core.options import option
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class FedRep(SiloAlgorithm):
    """FedRep's hyperparameters: `head_epochs` a round come before those on the representation.

    The server optimizer is that of the representation too, the personal optimizer that of both
    phases.
    """

    card: ClassVar[Card] = Card(
        "fedrep",
        "FedRep",
        ("mtl_trainer",),
        "own last layers, trained for --head_epochs before the shared first ones",
        trains_fedavg=True,
        can_be_grouped=True,
        takes_rows=True,
    )
    head_epochs: int = option(5, "Epochs a round on fedrep's last layers", lower=1)

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns FedRep; a client's state is its last layer, the server shares the others."""
        layers = personal_training.SharedLayers(initial_weights, task.model.is_last_layer)
        head = self.trainer(task, trained=layers.is_own)
        body = self.trainer(task, trained=layers.is_shared)

        def start(shared: Weights, state: Weights, client: Client) -> Personal:
            whole = layers.joined(shared, state)
            # The loop's carry holds both phases' optimizers, whichever is at work.
            resting = body.start(whole)._replace(weights=(), sums=learning.Sums({}, {}))
            return Personal(head.start(whole), (tuple(shared), resting))

        def body_step(personal: Personal, batch: Batch, base: Any) -> Personal:
            incoming, resting = personal.memory
            states = personal.learner.optimizer_state, resting.optimizer_state
            before = Personal(personal.learner._replace(optimizer_state=states[1]))
            learner = body.step(before, batch, base).learner
            resting = resting._replace(optimizer_state=learner.optimizer_state)
            return Personal(learner._replace(optimizer_state=states[0]), (incoming, resting))

        first = {"first_step": head.step, "num_first_epochs": self.head_epochs}
        return layers.build(task, self, start, body_step, **first)
