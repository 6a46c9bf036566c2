"""MR-MTL, mean-regularized multi-task learning, in the stateful form Motley's silo code has.

Client i minimizes loss(v_i) + lambda / 2 * ||v_i - w||^2 from its own model v_i of the last round;
w is the mean of all silos' personal models, weighted by their training examples. (Evgeniou, Pontil
2004, "Regularized multi-task learning"; the published code calls it stateful pFedMe.) lambda = 0
gives back local training. The baseline is w.

The server never sees the v_i: it adds up their changes. With n_i the training examples of silo i
and n those of all silos, absent ones too, a round's change is

    sum over the silos that answered of n_i / n * (v_i after - v_i before),

so that from equal starts, with server SGD at rate 1, w is the mean after every round, whoever was
absent. (A mean over the cohort, as FedAvg's, would count the changes of those who answered n /
(examples of the cohort) times: w would move away from the mean a little in every round.) An
optimizer with momentum spreads a change over later rounds. Where it makes all of it in the end
(FedAvgM at rate 1; momentum b at rate 1 - b), w lags behind the mean, by b / (1 - b) rounds, and
comes to it when the v_i come to rest. Any other server optimizer is refused: under one that makes
g of every change, w is at g times the mean's way from the start, and pulls the v_i there. (The
published code has FedAvgM at rates up to 10.) So is any aggregator but the plain mean.

Communicated are the model and its change. Who answered, and how many examples a silo has, a server
knows anyway; here, where backends hand it a mean alone, it rides along in the update (`place`) and
is not counted, as FedAvg's weights are not.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from motley_tff.algorithms import personal_training
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.optimizers import build_optimizer
from motley_tff.algorithms.personal_training import Personal, PersonalTraining, SiloAlgorithm
from motley_tff.core import errors, learning
from motley_tff.core.algorithm import Algorithm, ServerOptimizer
from motley_tff.core.client_work import Client
from motley_tff.core.clients import num_rows
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class MrMtl(SiloAlgorithm):
    """MR-MTL's hyperparameters: `regularization` is lambda. The client optimizer is not used."""

    card: ClassVar[Card] = Card(
        "mr_mtl",
        "MR-MTL",
        ("mtl_trainer",),
        "personal models pulled towards their mean by --lambda; server rate 1",
        can_be_grouped=True,
        wants_mean="the silos' changes, whose mean moves the mean of their models",
        takes_rows=True,
    )
    regularization: float = personal_training.regularization_option(0.1)

    def check(self) -> None:
        """Raises a UserError if the server optimizer's total gain is not 1.

        A rate that is a tensor (of several runs in one call) is not looked at: their builder is
        also called with each run's number.
        """
        server, gain = self.server, self.server.total_gain
        if not isinstance(server.learning_rate, int | float):
            return
        if gain is not None and math.isclose(gain, 1.0, rel_tol=1e-6):
            return
        share = "another share each time" if gain is None else f"{gain:.6g} of it"
        name = errors.name("server_optimizer")
        rate = errors.name("server_optimizer.learning_rate", "server_learning_rate")
        raise UserError(
            name,
            f"{server.name} at rate {server.learning_rate:g}",
            f"an optimizer that makes the whole change of the silos' mean, not {share}",
            f"give {rate}=1 with {name}=sgd without momentum, or fedavgm",
        )

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns MR-MTL, or raises as `check`; a client's state is its personal weights."""
        num_silos = len(task.train)
        num_examples = sum(num_rows(task.train.fetch(i)["train"]) for i in task.train.ids)
        model = tuple(initial_weights)

        def penalty(v: Weights, personal: Personal, base: Any) -> tf.Tensor:
            """Returns lambda / 2 * ||v_i - w||^2."""
            return 0.5 * self.regularization * learning.squared_distance(v, personal.memory.mean)

        trainer = self.trainer(task, penalty)

        def start(shared, state: Weights, client: Client) -> Personal:
            mean, _ = shared
            place = personal_training.place(num_silos, client)
            return Personal(trainer.start(state), MrMtlSilo(tuple(mean), tuple(state), place))

        def contribution(personal: Personal):
            change = learning.subtract(personal.memory.before, personal.learner.weights)
            return change, personal.memory.place

        built = self.build_for_silos(
            task,
            initial_weights,
            PersonalTraining(start, trainer.step, contribution=contribution, replaces_fedavg=True),
            # What is sent has the form of what comes back; of the places the server sends none.
            shared=(model, np.zeros(num_silos, np.float32)),
            shared_optimizer=_MrMtlServer(build_optimizer(self.server), num_examples),
        )
        return dataclasses.replace(built, global_model=lambda weights: weights[0])


class MrMtlSilo(NamedTuple):
    """The mean of the models as it came, the silo's own one before the round, and its place."""

    mean: Weights
    before: Weights
    place: tf.Tensor


class _MrMtlServer:
    """Applies a server optimizer to the change of the mean over all silos' `num_examples`.

    Their number is part of the state: of several seeds' runs in one call each has its own.
    """

    def __init__(self, optimizer: ServerOptimizer, num_examples: int):
        self._optimizer, self._num_examples = optimizer, num_examples

    def initialize(self, specs):
        return self._optimizer.initialize(specs[0]), tf.constant(self._num_examples, tf.float32)

    def next(self, state, weights, update):
        state, num_examples = state
        model, places = weights
        change, present = update
        # Every silo that answered has 1 / (the cohort's examples) in its place.
        share = tf.math.divide_no_nan(1.0, tf.reduce_max(present) * num_examples)
        scaled = tuple(share * leaf for leaf in change)
        state, model = self._optimizer.next(state, model, scaled)
        return (state, num_examples), (tuple(model), places)
