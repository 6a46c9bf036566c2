"""FedSGD (McMahan et al. 2017, https://arxiv.org/abs/1602.05629, section 2).

Each client sends the gradient of its mean loss over all its training examples at the server's
weights; the server applies its optimizer to their mean, weighted by examples. Equal to FedAvg with
one full-batch local SGD step at rate 1. The batch size only bounds memory: gradients of batches
are summed. The client optimizer and the number of epochs play no part.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

from motley_tff.algorithms import fedavg, optimizers
from motley_tff.algorithms.card import Card
from motley_tff.core import learning
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import ClientOutput, ClientWork, Pass
from motley_tff.core.lazy import tf
from motley_tff.core.task import Task


class Carry(NamedTuple):
    """Running sum of a client's gradients."""

    weights: learning.Weights
    gradients: learning.Weights
    weight: tf.Tensor
    sums: learning.Sums


@dataclasses.dataclass(frozen=True)
class FedSgd(fedavg.FedAvg):
    """FedAvg's hyperparameters, of which the server optimizer and the batch size are used."""

    card: ClassVar[Card] = Card(
        "fedsgd", "FedSGD", ("finetuning_trainer", "knn_per_trainer"), can_be_grouped=True
    )

    def build(self, task: Task, initial_weights: learning.Weights) -> Algorithm:
        """Returns FedSGD."""
        return Algorithm(
            name="fedsgd",
            initial_weights=tuple(initial_weights),
            work=_client_work(task, self.train_batch_size),
            server_optimizer=optimizers.build(self.server_optimizer),
        )


def _client_work(task: Task, batch_size: int) -> ClientWork:
    trained = (True,) * len(task.model.shapes)

    def init(broadcast, client_state, client):
        weights = tuple(broadcast)
        return Carry(
            weights=weights,
            gradients=tuple(tf.zeros_like(w) for w in weights),
            weight=tf.cast(client.num_examples["train"], tf.float32),
            sums=learning.zero_sums(task),
        )

    def step(carry, batch):
        means, sums = learning.gradients(task, carry.weights, batch, carry.sums, trained)
        weight = sums.weights["loss"] - carry.sums.weights["loss"]
        gradients = tuple(a + weight * b for a, b in zip(carry.gradients, means, strict=True))
        return carry._replace(gradients=gradients, sums=sums)

    def finish(carry):
        total = carry.sums.weights["loss"]
        return ClientOutput(
            update=tuple(tf.math.divide_no_nan(g, total) for g in carry.gradients),
            weight=carry.weight,
            client_state=(),
            metrics=carry.sums,
        )

    walk = Pass("train", step, batch_size, shuffle=True, training=True)
    return ClientWork(init, (walk,), finish)
