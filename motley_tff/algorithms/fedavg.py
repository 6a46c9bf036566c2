"""FedAvg (McMahan et al. 2017, https://arxiv.org/abs/1602.05629, Algorithm 1), generalized.

Each client of the cohort starts from the server's weights w and runs local optimizer steps to
w_i; the server applies a server optimizer to the weighted mean of w - w_i (Reddi et al. 2020,
https://arxiv.org/abs/2003.00295, Algorithm 1, "FedOpt"). With server SGD at rate 1 this is FedAvg,
with Adam the paper's FedAdam, with `fedavgm` the silo runs' FedAvgM. A client's weight is its
number of training examples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from motley_tff.algorithms import optimizers
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.optimizers import OptimizerConfig, optimizer_option
from motley_tff.core import candidates, errors, learning
from motley_tff.core.algorithm import Algorithm, Communicated, Personalization
from motley_tff.core.client_work import ClientOutput, ClientWork, Pass
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Learner, Weights
from motley_tff.core.options import MAX_BATCH_SIZE, option
from motley_tff.core.task import Task

# (weights, incoming weights) -> scalar added to a batch's loss.
Proximity = Callable[[Weights, Weights], "tf.Tensor"]


@dataclasses.dataclass(frozen=True)
class FedAvg:
    """FedAvg's hyperparameters, which every federated algorithm has.

    Attributes:
      client_optimizer: The clients' optimizer; its state starts anew every round.
      train_epochs: Local epochs a round, at least 1.
      train_batch_size: Examples a batch, at least 1.
    """

    card: ClassVar[Card] = Card(
        "fedavg", "FedAvg", ("finetuning_trainer", "knn_per_trainer"), can_be_grouped=True
    )
    # Whether a candidate is chosen once for all clients, or by each silo, unless that is said.
    tuning: ClassVar[candidates.Tuning] = "global"
    # Whether its models are of a kind that clients can make their own.
    is_personalized: ClassVar[bool] = True
    client_optimizer: OptimizerConfig = optimizer_option(
        OptimizerConfig("sgd", 0.1), "client", "clients'"
    )
    server_optimizer: OptimizerConfig = optimizer_option(
        OptimizerConfig("sgd", 1.0), "server", "server's"
    )
    train_epochs: int = option(1, "Local epochs a round", lower=1, upper=10_000)
    train_batch_size: int = option(
        10, "Examples a batch; in fine-tuning, too, unless --finetune_batch_size is given",
        lower=1, upper=MAX_BATCH_SIZE,
    )  # fmt: skip

    def with_defaults(self, personalization: Any, total_rounds: int) -> FedAvg:
        """Returns the algorithm with those of its own defaults that depend on another value.

        Args:
          personalization: How clients personalize the global model; None if the algorithm does it.
          total_rounds: The run's.

        Raises:
          UserError: If the personalization does not fit.
        """
        return self

    def check(self) -> None:
        """Raises a UserError if the algorithm would not be itself under these optimizers."""

    @property
    def num_models(self) -> int | None:
        """How many models the server keeps, which are trained from as many; None for one alone."""
        return None

    def check_beside(self, aggregator: str, has_attack: bool) -> None:
        """Raises a UserError if the algorithm cannot be with an aggregator or with clients that
        attack.
        """
        if self.card.wants_mean and aggregator != "mean":
            expected = f"mean, as {self.card.title} needs updates as they are: "
            expected += self.card.wants_mean
            raise UserError(errors.name("aggregator"), aggregator, expected)

    def unfit(self, expected: str, advice: str = "choose another algorithm") -> UserError:
        """Returns an error that says what the algorithm needs of a task."""
        return UserError(errors.name("algorithm"), self.card.name, expected, advice)

    def check_clients(self, task: Task) -> None:
        """Raises a UserError if the task has too few training clients."""

    def trained_layers(self, task: Task) -> tuple[bool, ...]:
        """Returns which of the model's weights clients train and send; by default all."""
        return (True,) * len(task.model.shapes)

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns the algorithm: client work and a server optimizer."""
        return build(task, self, initial_weights)

    def personalization(self, task: Task, built: Algorithm) -> Personalization | None:
        """Returns how the models it trains for each client are scored; None if it trains none."""
        return None


class Carry(NamedTuple):
    """One client's local training: where it started, where it is, its weight."""

    incoming: Weights
    learner: Learner
    weight: tf.Tensor


def build(
    task: Task,
    params: FedAvg,
    initial_weights: Weights,
    proximity: Proximity | None = None,
    train_steps: int | None = None,
) -> Algorithm:
    """Returns FedAvg; `proximity` joins each batch's loss (FedProx), but not the reported one;
    `train_steps` are a client's batches a round, in place of epochs.
    """
    pairs = zip(initial_weights, params.trained_layers(task), strict=True)
    sent = tuple(weights for weights, is_trained in pairs if is_trained)
    return Algorithm(
        name=params.card.name,
        initial_weights=tuple(initial_weights),
        work=_client_work(task, params, proximity, train_steps),
        server_optimizer=optimizers.build(params.server_optimizer),
        communicated=Communicated(sent, sent),
    )


def _client_work(
    task: Task, params: FedAvg, proximity: Proximity | None, train_steps: int | None
) -> ClientWork:
    optimizer = optimizers.build(params.client_optimizer)
    trained = params.trained_layers(task)

    def init(broadcast, client_state, client):
        return Carry(
            incoming=tuple(broadcast),
            learner=learning.start(task, optimizer, broadcast, trained),
            weight=tf.cast(client.num_examples["train"], tf.float32),
        )

    def step(carry, batch):
        penalty = None if proximity is None else lambda w: proximity(w, carry.incoming)
        learner = learning.train(task, optimizer, carry.learner, batch, trained, penalty)
        return carry._replace(learner=learner)

    def finish(carry):
        return ClientOutput(
            update=learning.subtract(carry.incoming, carry.learner.weights),
            weight=carry.weight,
            client_state=(),
            metrics=carry.learner.sums,
        )

    walk = Pass(
        part="train",
        step=step,
        batch_size=params.train_batch_size,
        num_epochs=params.train_epochs,
        num_steps=train_steps,
        shuffle=True,
        drop_remainder=task.drop_remainder,
        training=True,
    )
    return ClientWork(init, (walk,), finish)
