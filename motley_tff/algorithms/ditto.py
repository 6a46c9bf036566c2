"""Ditto (Li et al. 2021, https://arxiv.org/abs/2012.04221, Algorithm 1), stateful.

Every round, from the same incoming global model w: one pass of the global model on the client's
loss, whose change goes to the server as in FedAvg, and one pass of the client's own model v on
loss(v) + lambda / 2 * ||v - w||^2. The two passes use different shuffles, as the published silo
code does. lambda = 0 is local training of v beside FedAvg.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from motley_tff.algorithms import personal_training
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.fedavg import FedAvgClient
from motley_tff.algorithms.personal_training import Personal, PersonalTraining, SiloAlgorithm
from motley_tff.core import learning
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class Ditto(SiloAlgorithm):
    """Ditto's hyperparameters: `regularization` is lambda; 0 gives back local training."""

    card: ClassVar[Card] = Card(
        "ditto",
        "Ditto",
        ("mtl_trainer",),
        "a personal model pulled towards FedAvg's by --lambda",
        "MTL (Ditto)",
        trains_fedavg=True,
        can_be_grouped=True,
        takes_rows=True,
    )
    regularization: float = personal_training.regularization_option(1.0)

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns Ditto; a client's state is its personal weights."""

        def penalty(v: Weights, personal: Personal, base: FedAvgClient) -> tf.Tensor:
            """Returns lambda / 2 * ||v - w||^2."""
            return 0.5 * self.regularization * learning.squared_distance(v, base.incoming)

        trainer = self.trainer(task, penalty)
        training = PersonalTraining(trainer.start_personal, trainer.step)
        return self.build_for_silos(task, initial_weights, training)
