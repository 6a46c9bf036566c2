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

import dataclasses

import numpy as np
import tensorflow as tf

from motley_tff.algorithms import fedavg, optimizer_config, optimizers, own_models
from motley_tff.core import algorithm, learning
from motley_tff.core import task as task_lib


@dataclasses.dataclass(frozen=True)
class Params:
    """Hyperparameters.

    Attributes:
      fedavg: Epochs, batch size and server optimizer, of total gain 1; the client optimizer is not
        used.
      personal_optimizer: Optimizer of the personal models; its state starts anew every round.
      regularization: lambda, at least 0; 0 gives back local training.
    """

    fedavg: fedavg.Params
    personal_optimizer: optimizers.OptimizerConfig
    regularization: float = 0.1


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns MR-MTL; a client's state is its personal weights.

    Raises:
      UserError: If the server optimizer's total gain is not 1. A rate that is a tensor (of several
        runs in one call) is not looked at: their builder is also called with each run's number.
    """
    server, personal = params.fedavg.server_optimizer, params.personal_optimizer
    if not tf.is_tensor(server.learning_rate):
        optimizer_config.check("mr_mtl", server, personal)
    num_silos = len(task.train)
    model = tuple(initial_weights)

    def step(carry, batch, train):
        mean, _ = carry.incoming
        return carry._replace(own=train(carry.own, batch, mean))

    def update(carry):
        change = learning.subtract(carry.sent, carry.own.weights)
        return change, own_models.place(num_silos, carry.index, carry.weight)

    built = own_models.build(
        task,
        "mr_mtl",
        params.fedavg,
        personal,
        params.regularization,
        model,
        own_models.Own(begin=lambda incoming, before: before, step=step, update=update),
    )
    return dataclasses.replace(
        built,
        # What is sent has the form of what comes back; of the places the server sends none.
        initial_weights=(model, np.zeros(num_silos, np.float32)),
        server_optimizer=_Server(built.server_optimizer, _num_examples(task)),
        global_model=lambda weights: weights[0],
        communicated=algorithm.Communicated(model, model),
    )


def _num_examples(task: task_lib.Task) -> int:
    parts = (task.train.fetch(i)["train"] for i in task.train.ids)
    return sum(len(next(iter(examples.values()))) for examples in parts)


class _Server:
    """Applies an optimizer to the change of the mean over all silos.

    Args:
      optimizer: The server optimizer, on the model's weights.
      num_examples: Training examples of all silos.
    """

    def __init__(self, optimizer: algorithm.ServerOptimizer, num_examples: int):
        self._optimizer, self._num_examples = optimizer, num_examples

    def initialize(self, specs):
        """Returns the optimizer's first state."""
        return self._optimizer.initialize(specs[0])

    def next(self, state, weights, update):
        """Returns (new state, new weights); see `core.algorithm.ServerOptimizer`."""
        model, places = weights
        change, present = update
        # Every silo that answered has 1 / (the cohort's examples) in its place.
        share = tf.math.divide_no_nan(1.0, tf.reduce_max(present) * self._num_examples)
        scaled = tuple(share * leaf for leaf in change)
        state, model = self._optimizer.next(state, model, scaled)
        return state, (tuple(model), places)
