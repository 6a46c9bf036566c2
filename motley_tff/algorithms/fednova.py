"""FedNova (Wang et al. 2020, https://arxiv.org/abs/2007.07481, equation 10 and Algorithm 1).

Clients who take more steps pull FedAvg's mean to themselves. Here a client's change is divided by
the length ||a_i||_1 of its steps and the mean by the mean length:

    w = server optimizer(w, tau * sum of p_i (w - w_i) / ||a_i||_1),    tau = sum of p_i ||a_i||_1

where p_i is the client's share of the examples of the round's clients who answer, as in FedAvg, and
a_i has the share of each of its gradients in w - w_i, over the rate. By SGD ||a_i||_1 is the number
of its steps tau_i, with momentum b it is (tau_i - b (1 - b^tau_i) / (1 - b)) / (1 - b), as in the
paper (and its code, whose tau is this one); Nesterov's has its own. Adaptive optimizers, whose
steps are no such sums, are refused. The paper's server is SGD at rate 1.

Where all clients of a round take as many steps, it is FedAvg. A client who is absent or drops out,
or has no examples, counts for nothing; of a straggler the steps count that it took. The
number ||a_i||_1 that a client sends, too, is not counted in bytes, as its examples' is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from motley_tff.algorithms import fedavg, optimizers
from motley_tff.algorithms.card import Card
from motley_tff.core import errors, rows
from motley_tff.core.algorithm import AdjustedOptimizer, Algorithm, Nest
from motley_tff.core.client_work import Client, ClientOutput
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class FedNova(fedavg.FedAvg):
    """FedAvg's hyperparameters; the client optimizer is SGD, with or without momentum."""

    card: ClassVar[Card] = Card(
        "fednova", "FedNova", ("finetuning_trainer", "knn_per_trainer"),
        "clients' changes count by direction, not by their number of steps", can_be_grouped=True,
        wants_mean="it scales their mean by how long the clients' steps are", takes_rows=True,
    )  # fmt: skip
    unused: ClassVar[Mapping[str, str]] = {
        "keep_optimizer_state": "False, as it counts the steps of one round"
    }

    def check(self) -> None:
        """Raises a UserError if clients' steps are no weighted sums of gradients."""
        if self.client.total_gain is None:
            expected = "sgd, momentum or fedavgm, whose steps are weighted sums of gradients"
            raise UserError(errors.name("client_optimizer"), self.client.name, expected)

    def local_optimizer(self) -> optimizers.MeasuredOptimizer:
        """Returns the clients' optimizer, which measures the length of its steps."""
        return optimizers.MeasuredOptimizer(super().local_optimizer())

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns FedNova, or raises as `check`. The server's weights are (w, nothing)."""
        built, nothing = super().build(task, initial_weights), np.zeros([], np.float32)

        def init(broadcast: Nest, client_state: Nest, client: Client) -> fedavg.FedAvgClient:
            return built.work.init(broadcast[0], client_state, client)

        def finish(client: fedavg.FedAvgClient) -> ClientOutput:
            output, length = built.work.finish(client), client.learner.optimizer_state["length"]
            return output._replace(update=(fedavg.mean(output.update, length), length))

        def adjust(update: Nest, nothing: tf.Tensor) -> Nest:
            directions, length = update
            return rows.scaled(length, directions), nothing

        return dataclasses.replace(
            built,
            initial_weights=(built.initial_weights, nothing),
            work=dataclasses.replace(built.work, init=init, finish=finish),
            server_optimizer=AdjustedOptimizer(built.server_optimizer, adjust),
            global_model=lambda server: server[0],
        )
