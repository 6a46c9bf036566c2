"""APFL (Deng et al. 2020, https://arxiv.org/abs/2003.13461, Algorithm 1), stateful.

A client mixes the global model w with one of its own v: u = alpha v + (1 - alpha) w. On every batch
it steps w on loss(w), as FedAvg does, and v on loss(u), whose gradient is alpha times that at u;
both gradients are taken before either step.
Its personal model is alpha v + (1 - alpha) w with the server's newest w (the paper averages over
the iterates; the mixing weight is fixed here, the paper's first variant). alpha = 0 gives back
FedAvg, alpha = 1 local training.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from motley_tff.algorithms.card import Card
from motley_tff.algorithms.fedavg import FedAvgClient
from motley_tff.algorithms.personal_training import Personal, PersonalTraining, SiloAlgorithm
from motley_tff.core import learning, rows
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import Batch
from motley_tff.core.learning import Weights
from motley_tff.core.options import option
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class Apfl(SiloAlgorithm):
    """APFL's hyperparameters: `alpha` is the share of the own model in the mixture, 0 to 1."""

    card: ClassVar[Card] = Card(
        "apfl",
        "APFL",
        ("mtl_trainer",),
        "a mixture of an own and the global model, --alpha of the own",
        trains_fedavg=True,
        can_be_grouped=True,
        takes_rows=True,
    )
    alpha: float = option(
        0.5, "Share of apfl's own model: 0 is FedAvg, 1 local training", upper=1.0
    )

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns APFL; a client's state is v."""
        trainer = self.trainer(task)
        trained = self.trained_layers(task)

        def mixed(personal_weights: Weights, global_weights: Weights) -> Weights:
            return tuple(
                rows.scaled(self.alpha, v) + rows.scaled(1.0 - self.alpha, w)
                for v, w in zip(personal_weights, global_weights, strict=True)
            )

        def step(personal: Personal, batch: Batch, base: FedAvgClient) -> Personal:
            learner = personal.learner
            mixture = mixed(learner.weights, base.learner.weights)
            gradients, sums = learning.gradients(task, mixture, batch, learner.sums, trained)
            scaled = rows.scaled(self.alpha, gradients)
            learner = learning.step(trainer.optimizer, learner, scaled, trained)
            return personal._replace(learner=learner._replace(sums=sums))

        return self.build_for_silos(
            task,
            initial_weights,
            PersonalTraining(trainer.start_personal, step, same_batches=True),
            personal_model=lambda weights, state: mixed(state, weights[0]),
        )
