"""pFedMe (Dinh et al. 2020, https://arxiv.org/abs/2006.08848, Algorithm 1), stateful.

A client keeps a local copy w_i of the global model and a personal model theta. On every batch,
theta takes a few steps towards argmin f(theta) + lambda / 2 * ||theta - w_i||^2 (the Moreau
envelope's inner problem), starting from where it was, also across rounds; then
w_i -= eta * lambda * (w_i - theta). The server averages the w_i; its optimizer takes the place of
the paper's beta. lambda = 0 with one inner step gives back local training of theta, with a global
model that never moves. The baseline is the global model.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from motley_tff.algorithms import personal_training
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.optimizers import Sgd
from motley_tff.algorithms.personal_training import Personal, PersonalTraining, SiloAlgorithm
from motley_tff.core import learning
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import Batch, Client
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.options import option
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class PFedMe(SiloAlgorithm):
    """pFedMe's hyperparameters; the client optimizer's rate is eta.

    Attributes:
      regularization: lambda; eta * lambda should not exceed 1.
      inner_steps: Steps on the inner problem a batch.
    """

    card: ClassVar[Card] = Card(
        "pfedme",
        "pFedMe",
        ("mtl_trainer",),
        "Moreau envelopes: the personal model solves a problem of strength --lambda",
        can_be_grouped=True,
        takes_rows=True,
    )
    regularization: float = personal_training.regularization_option(1.0)
    inner_steps: int = option(5, "pfedme's steps on its inner problem a batch", lower=1, upper=1000)

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns pFedMe; a client's state is theta."""

        def start(shared: Weights, state: Weights, client: Client) -> Personal:
            # The server's weights as they came, the silo's local copy of them, and its optimizer.
            pulling = learning.first_state(pull, task.model.shapes)
            return Personal(trainer.start(state), (tuple(shared), tuple(shared), pulling))

        def penalty(theta: Weights, personal: Personal, base: Any) -> tf.Tensor:
            """Returns lambda / 2 * ||theta - w_i||^2."""
            _, copy, _ = personal.memory
            return 0.5 * self.regularization * learning.squared_distance(theta, copy)

        trainer = self.trainer(task, penalty)
        # The copy's way to theta is a step of SGD, so that its rate is an optimizer's.
        pull = Sgd(self.client.learning_rate * self.regularization)

        def step(personal: Personal, batch: Batch, base: Any) -> Personal:
            """Moves theta towards the local copy, which is what will be sent, and that after it."""
            incoming, copy, pulling = personal.memory
            first = inner = trainer.step(personal, batch, base)
            for _ in range(self.inner_steps - 1):
                inner = trainer.step(inner, batch, base)
            theta = inner.learner
            pulling, copy = pull.next(pulling, copy, learning.subtract(copy, theta.weights))
            # The metrics are those of the model that met the batch, once.
            return Personal(theta._replace(sums=first.learner.sums), (incoming, copy, pulling))

        def contribution(personal: Personal) -> Weights:
            return learning.subtract(*personal.memory[:2])

        training = PersonalTraining(start, step, contribution=contribution, replaces_fedavg=True)
        return self.build_for_silos(task, initial_weights, training, shared=tuple(initial_weights))
