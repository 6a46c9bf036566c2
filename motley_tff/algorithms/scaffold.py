"""SCAFFOLD (Karimireddy et al. 2020, https://arxiv.org/abs/1910.06378, Algorithm 1), option II.

Every silo keeps a control variate c_i, the server c; all are 0 at first. A silo takes K steps at
the clients' rate r from the server's weights x, on all of its epochs' batches,

    y = y - r (gradient + c - c_i),    c_i' = c_i - c + (x - y) / (K r)    (K: stragglers' is less)

and sends x - y and c_i - c_i'. With S for the silos that answer, and n_i examples of a silo,

    x  = server optimizer(x, sum over S of n_i (x - y_i) / sum over S of n_i)
    c -= sum over S of n_i (c_i - c_i') / sum over all silos of n_i

So c is the mean of all silos' variates, weighted by examples, whoever is absent or drops out: such
a silo keeps its variate. One without examples keeps 0 and counts for nothing. In the paper all
silos count alike, and the last line is |S| / N times a mean; of silos of one size this is the same,
and else the minimum sought is FedAvg's. Server SGD has the rate that the paper calls global.

It is FedAvg in the first round, and as long as all silos take part with one step each: then the
corrections c - c_i cancel out in the mean. Bytes are twice FedAvg's both ways.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np

from motley_tff.algorithms import fedavg, optimizers, personal_training
from motley_tff.algorithms.card import Card
from motley_tff.core import learning, rows
from motley_tff.core.algorithm import Algorithm, Communicated, Nest, ServerOptimizer
from motley_tff.core.client_work import Client, ClientOutput
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


class ScaffoldSilo(NamedTuple):
    """A silo's variate c_i before the round, its correction c - c_i, and its place."""

    variate: Weights
    correction: Weights
    place: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Scaffold(fedavg.FedAvg):
    """FedAvg's hyperparameters; the client optimizer is SGD without momentum."""

    card: ClassVar[Card] = Card(
        "scaffold",
        "SCAFFOLD",
        ("finetuning_trainer", "knn_per_trainer"),
        "corrects silos' gradients by control variates; for silos",
        can_be_grouped=True,
        wants_mean="the silos' control variates, whose mean is the server's",
        silos_keep="control variates",
        takes_rows=True,
    )

    def check(self) -> None:
        """Raises a UserError if a silo's steps do not add up to its mean gradient."""
        reason = f"whose steps {self.card.name} takes for the mean of a silo's gradients"
        optimizers.check_plain_sgd(self.client_optimizer, "client_optimizer", reason)

    def local_optimizer(self) -> optimizers.Measured:
        """Returns SGD that adds up the rates of its steps, K r."""
        return optimizers.Measured(super().local_optimizer())

    def local_direction(self, gradients: Weights, client: fedavg.FedAvgClient) -> Weights:
        """Returns gradient + c - c_i."""
        return tuple(map(tf.add, gradients, client.memory.correction))

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns SCAFFOLD, or raises as `check`; a client's state is c_i. The server's weights are
        (x, c, nothing in the places of silos).
        """
        model, num_silos = tuple(initial_weights), len(task.train)
        zeros = tuple(np.zeros_like(leaf) for leaf in model)
        built = super().build(task, model)

        def init(broadcast: Nest, variate: Weights, client: Client) -> fedavg.FedAvgClient:
            weights, mean, _ = broadcast
            place = personal_training.place(num_silos, client)
            silo = ScaffoldSilo(tuple(variate), learning.subtract(mean, variate), place)
            return built.work.init(weights, (), client)._replace(memory=silo)

        def finish(client: fedavg.FedAvgClient) -> ClientOutput:
            output, silo = built.work.finish(client), client.memory
            length = client.learner.optimizer_state["length"]
            moved = learning.subtract(fedavg.mean(output.update, length), silo.correction)
            variate = rows.select(length > 0.0, moved, silo.variate)
            update = output.update, learning.subtract(silo.variate, variate), silo.place
            return output._replace(update=update, client_state=variate)

        return dataclasses.replace(
            built,
            initial_weights=(model, zeros, np.zeros(num_silos, np.float32)),
            work=dataclasses.replace(built.work, init=init, finish=finish),
            server_optimizer=_ScaffoldServer(
                built.server_optimizer, sum(personal_training.silo_sizes(task))
            ),
            initial_client_state=lambda index: zeros,
            global_model=lambda weights: weights[0],
            communicated=Communicated((model, zeros), (model, zeros)),
        )


class _ScaffoldServer:
    """Steps x, and keeps c the mean of all silos' variates.

    The number of all silos' examples is part of the state: of several seeds' runs in one call each
    has its own.
    """

    def __init__(self, optimizer: ServerOptimizer, num_examples: int):
        self._optimizer, self._num_examples = optimizer, num_examples

    def initialize(self, specs: Nest) -> Nest:
        return self._optimizer.initialize(specs[0]), tf.constant(self._num_examples, tf.float32)

    def next(self, state: Nest, weights: Nest, update: Any) -> tuple[Nest, Nest]:
        state, num_examples = state
        model, mean, places = weights
        change, of_variates, present = update
        state, model = self._optimizer.next(state, model, change)
        share = personal_training.cohort_share(present, num_examples)
        mean = learning.subtract(mean, rows.scaled(share, of_variates))
        return (state, num_examples), (tuple(model), mean, places)
