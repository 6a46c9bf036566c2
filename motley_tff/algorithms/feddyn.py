"""FedDyn (Acar et al. 2021, https://arxiv.org/abs/2111.04263, Algorithm 1).

Every silo keeps a gradient g_i, the server h; all are 0 at first. With alpha for
`dynamic_regularization`, a silo trains for its epochs, from the server's weights w, on

    loss(v) - <g_i, v> + alpha / 2 * ||v - w||^2,    g_i' = g_i - alpha (w_i - w)

(w_i is the v it ends at; the paper has the minimum). With P for the silos that answer, of m,

    h = h - alpha / m * sum over P of (w_i - w)
    w = server optimizer(w, d),    d = w - sum over P of w_i / |P| + h / alpha

which by SGD at rate 1 is the paper's. Silos count alike, as there, whatever examples they have: the
minimum sought is of the mean of their losses. So h is the mean of all silos' g_i, whoever is absent
or drops out: such a silo keeps its g_i. One without examples counts neither in P nor in m.

At alpha -> 0 the silos train as FedAvg's, but h / alpha, the sum of all changes so far, stays: with
silos of one size who all take part it is FedAvg whose server has Nesterov's momentum of 1.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np

from motley_tff.algorithms import fedavg, personal_training
from motley_tff.algorithms.card import Card
from motley_tff.core import learning, rows
from motley_tff.core.algorithm import Algorithm, Nest, ServerOptimizer
from motley_tff.core.client_work import Client, ClientOutput
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.options import ABOVE_0, option
from motley_tff.core.task import Task


class FedDynSilo(NamedTuple):
    """A silo's gradient g_i before the round, and its place."""

    gradient: Weights
    place: tf.Tensor


@dataclasses.dataclass(frozen=True)
class FedDyn(fedavg.FedAvg):
    """FedAvg's hyperparameters and alpha, `dynamic_regularization`, above 0."""

    card: ClassVar[Card] = Card(
        "feddyn",
        "FedDyn",
        ("finetuning_trainer", "knn_per_trainer"),
        "pulls silos to the server's model and corrects their gradients; for silos",
        can_be_grouped=True,
        wants_mean="the silos' changes, which the server adds up over rounds",
        silos_keep="gradients",
        takes_rows=True,
    )
    dynamic_regularization: float = option(0.1, "alpha of feddyn", lower=ABOVE_0)

    def local_penalty(self, weights: Weights, incoming: Weights) -> tf.Tensor | float:
        """Returns alpha / 2 * ||v - w||^2."""
        return 0.5 * self.dynamic_regularization * learning.squared_distance(weights, incoming)

    def local_direction(self, gradients: Weights, client: fedavg.FedAvgClient) -> Weights:
        """Returns the loss's gradient less g_i."""
        return learning.subtract(gradients, client.memory.gradient)

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns FedDyn; a client's state is g_i. The server's weights are (w, nothing in the
        places of silos).
        """
        model, num_silos = tuple(initial_weights), len(task.train)
        alpha = self.dynamic_regularization
        zeros = tuple(np.zeros_like(leaf) for leaf in model)
        built = super().build(task, model)

        def init(broadcast: Nest, gradient: Weights, client: Client) -> fedavg.FedAvgClient:
            weights, _ = broadcast
            weight = tf.sign(client.weight)  # 1 of a silo with examples.
            silo = FedDynSilo(tuple(gradient), personal_training.place(num_silos, client, weight))
            return built.work.init(weights, (), client)._replace(weight=weight, memory=silo)

        def finish(client: fedavg.FedAvgClient) -> ClientOutput:
            output, silo = built.work.finish(client), client.memory
            gradient = tuple(map(tf.add, silo.gradient, rows.scaled(alpha, output.update)))
            return output._replace(update=(output.update, silo.place), client_state=gradient)

        num_trained = sum(size > 0 for size in personal_training.silo_sizes(task))
        return dataclasses.replace(
            built,
            initial_weights=(model, np.zeros(num_silos, np.float32)),
            work=dataclasses.replace(built.work, init=init, finish=finish),
            server_optimizer=_FedDynServer(built.server_optimizer, num_trained),
            initial_client_state=lambda index: zeros,
            global_model=lambda weights: weights[0],
        )


class _FedDynServer:
    """Keeps h / alpha, of all silos the mean of g_i / alpha, and steps w by d.

    The number of all silos is part of the state: of several seeds' runs in one call each has its
    own.
    """

    def __init__(self, optimizer: ServerOptimizer, num_silos: int):
        self._optimizer, self._num_silos = optimizer, num_silos

    def initialize(self, specs: Nest) -> Nest:
        zeros = tuple(tf.zeros(spec.shape, spec.dtype) for spec in specs[0])
        number = tf.constant(self._num_silos, tf.float32)
        return self._optimizer.initialize(specs[0]), zeros, number

    def next(self, state: Nest, weights: Nest, update: Any) -> tuple[Nest, Nest]:
        state, total, num_silos = state
        model, places = weights
        change, present = update
        share = personal_training.cohort_share(present, num_silos)
        total = tuple(map(tf.add, total, rows.scaled(share, change)))
        state, model = self._optimizer.next(state, model, tuple(map(tf.add, change, total)))
        return (state, total, num_silos), (tuple(model), places)
