"""FedSGD (McMahan et al. 2017, https://arxiv.org/abs/1602.05629, section 2).

Each client sends the gradient of its mean loss over all its training examples at the server's
weights; the server applies its optimizer to their mean, weighted by examples. Equal to FedAvg with
one full-batch local SGD step at rate 1. The batch size only bounds memory: gradients of batches
are summed. The client optimizer and the number of epochs play no part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from motley_tff.algorithms import fedavg
from motley_tff.algorithms.card import Card, takes_rows
from motley_tff.core import learning, rows
from motley_tff.core.algorithm import Nest
from motley_tff.core.client_work import Batch, Client, ClientOutput, ClientWork, Pass
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


class FedSgdClient(NamedTuple):
    """A client in a round: the server's weights, the gradients so far, and its weight."""

    weights: Weights
    gradients: Weights
    weight: tf.Tensor
    sums: learning.Sums


@dataclasses.dataclass(frozen=True)
class FedSgd(fedavg.FedAvg):
    """FedAvg's hyperparameters, of which the server optimizer and the batch size are used."""

    card: ClassVar[Card] = Card(
        "fedsgd", "FedSGD", ("finetuning_trainer", "knn_per_trainer"), can_be_grouped=True,
        takes_rows=True,
    )  # fmt: skip

    unused: ClassVar[Mapping[str, str]] = {
        "train_steps": "none, as a client of FedSGD goes over all its examples once",
        **dict.fromkeys(
            ("client_schedule", "warmup_rounds"), "none, as a client of FedSGD takes no steps"
        ),
    }

    @property
    def tried_optimizers(self) -> tuple[str, ...]:
        """The server's alone."""
        return ("server_optimizer",)

    def probe(self) -> FedSgd:
        """Returns FedSGD."""
        return self

    def client_work(self, task: Task) -> ClientWork:
        """Returns a client's round: a step adds a batch's gradients up."""

        def init(weights: Weights, client_state: Nest, client: Client) -> FedSgdClient:
            zeros = tuple(tf.zeros_like(w) for w in weights)
            return FedSgdClient(tuple(weights), zeros, client.weight, learning.zero_sums(task))

        def step(client: FedSgdClient, batch: Batch) -> FedSgdClient:
            means, sums = learning.gradients(
                task, client.weights, batch, client.sums, self.trained_layers(task)
            )
            size = sums.weights["loss"] - client.sums.weights["loss"]
            added = rows.scaled(size, means)
            gradients = tuple(g + a for g, a in zip(client.gradients, added, strict=True))
            return client._replace(gradients=gradients, sums=sums)

        def finish(client: FedSgdClient) -> ClientOutput:
            update = fedavg.mean(client.gradients, client.sums.weights["loss"])
            return ClientOutput(update, client.weight, (), client.sums)

        gradients_pass = Pass("train", step, self.train_batch_size, shuffle=True, training=True)
        return ClientWork(init, (gradients_pass,), finish, takes_rows=takes_rows(type(self)))
