"""The frame of SCAFFOLD and FedDyn: silos train one model for all, and correct their gradients.

Every silo keeps a state s_i of the model's shapes, the server their mean s; all are 0 at first. In
a round a silo trains as FedAvg's client, on corrected gradients, and sends the changes of model and
state. With S for the silos who answer and u_i for a silo's weight, the server sets

    s = s + sum over S of u_i (s_i' - s_i) / sum over all silos of u_i

which stays the mean of all s_i, whoever is absent or drops out: such a silo keeps its state. One
without examples has weight 0. To know who answered, it is given their places (`place`).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import numpy as np

from motley_tff.algorithms import fedavg
from motley_tff.algorithms.personal_training import place
from motley_tff.core import learning, rows
from motley_tff.core.algorithm import AdjustedOptimizer, Algorithm, Communicated, Nest
from motley_tff.core.client_work import Client, ClientOutput
from motley_tff.core.clients import num_rows
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


class CorrectedSilo(NamedTuple):
    """What a silo begins a round with, beside FedAvg's client: s_i, s and its place."""

    state: Weights
    mean: Weights
    place: tf.Tensor


@dataclasses.dataclass(frozen=True)
class CorrectedAlgorithm(fedavg.FedAvg):
    """FedAvg's hyperparameters.

    Attributes:
      counts_silos: Whether a silo's weight is 1, not its number of examples.
      sends_states: Whether silos need s and the server cannot tell s_i from the models: bytes.
    """

    counts_silos: ClassVar[bool] = False
    sends_states: ClassVar[bool] = False

    def next_state(self, client: fedavg.FedAvgClient, change: Weights) -> Weights:
        """Returns s_i' after a round; `change` is w - w_i."""
        raise NotImplementedError

    def server_direction(self, change: Weights, mean: Weights) -> Weights:
        """Returns what the server's optimizer gets of the mean change and the new s."""
        return change

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns the algorithm, or raises as `check`; a client's state is s_i. The server's
        weights are (w, s, each silo's share of all weight).
        """
        built = super().build(task, initial_weights)
        zeros = tuple(np.zeros_like(leaf) for leaf in built.initial_weights)
        sizes = [num_rows(task.train.fetch(i)["train"]) for i in task.train.ids]
        weights = np.minimum(sizes, task.max_train_examples or np.inf).astype(np.float32)
        weights = np.sign(weights) if self.counts_silos else weights

        def init(broadcast: Nest, state: Weights, client: Client) -> fedavg.FedAvgClient:
            incoming, mean, _ = broadcast
            silo = CorrectedSilo(tuple(state), tuple(mean), place(len(weights), client))
            weight = tf.sign(client.weight) if self.counts_silos else client.weight
            return built.work.init(incoming, (), client)._replace(weight=weight, memory=silo)

        def finish(client: fedavg.FedAvgClient) -> ClientOutput:
            output, silo = built.work.finish(client), client.memory
            state = self.next_state(client, output.update)
            update = output.update, learning.subtract(silo.state, state), silo.place
            return output._replace(update=update, client_state=state)

        def adjust(update: Nest, mean: Weights, shares: tf.Tensor) -> Nest:
            change, of_states, places = update
            share = tf.reduce_sum(tf.where(places > 0.0, shares, 0.0))
            mean = learning.subtract(mean, rows.scaled(share, of_states))
            return self.server_direction(change, mean), mean, shares

        sent = (built.initial_weights, zeros) if self.sends_states else built.initial_weights
        return dataclasses.replace(
            built,
            communicated=Communicated(sent, sent),
            initial_weights=(built.initial_weights, zeros, weights / max(weights.sum(), 1.0)),
            work=dataclasses.replace(built.work, init=init, finish=finish),
            server_optimizer=AdjustedOptimizer(built.server_optimizer, adjust),
            initial_client_state=lambda index: zeros,
            global_model=lambda server: server[0],
        )
