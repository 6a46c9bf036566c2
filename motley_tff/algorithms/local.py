"""Local training: every silo trains its own model, alone.

In a round each silo takes `train_epochs` epochs of optimizer steps on its own model, so R rounds
are R * train_epochs epochs, evaluated like any other algorithm's rounds. FedAvg is trained beside
it as the baseline.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from motley_tff.algorithms.card import Card
from motley_tff.algorithms.personal_training import PersonalTraining, SiloAlgorithm
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class Local(SiloAlgorithm):
    """Local training's hyperparameters; it has as many epochs a round as the baseline."""

    card: ClassVar[Card] = Card(
        "local",
        "Local training",
        ("mtl_trainer",),
        "every silo alone",
        "Local training",
        trains_fedavg=True,
        can_be_grouped=True,
        takes_rows=True,
    )

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns local training; a client's state is its weights."""
        trainer = self.trainer(task)
        training = PersonalTraining(trainer.start_personal, trainer.step)
        return self.build_for_silos(task, initial_weights, training, communicated=())
