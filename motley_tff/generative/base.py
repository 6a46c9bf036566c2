"""What both generators share: batches a round, and optimizers that silos may keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from motley_tff.algorithms import fedavg, kept_optimizers
from motley_tff.algorithms.optimizers import OptimizerConfig
from motley_tff.core import options
from motley_tff.core.algorithm import Algorithm, Communicated
from motley_tff.core.client_work import Batch, Pass
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.options import option
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class GenerativeAlgorithm(fedavg.FedAvg):
    """FedAvg's hyperparameters, and

    Attributes:
      train_steps: A client's batches a round, in place of epochs; None for `train_epochs`.
    """

    is_personalized: ClassVar[bool] = False
    tries_rates: ClassVar[bool] = False  # Each has published ones.
    train_batch_size: int = options.with_default(fedavg.FedAvg, "train_batch_size", 32)
    train_steps: int | None = option(
        None,
        "A client's batches a round, in place of --train_epochs; of wgan_gp each is an update of "
        "the critic, every --n_critic-th also one of the generator",
        lower=1,
    )

    def check(self) -> None:
        """Raises a UserError if both steps and epochs are set."""
        if self.train_steps is not None and self.train_epochs != 1:
            steps = options.name_of(self, "train_steps")
            expected = f"1, as {steps} takes its place"
            name = options.name_of(self, "train_epochs")
            raise UserError(name, self.train_epochs, expected, "leave one of them out")

    @property
    def client(self) -> OptimizerConfig:
        """The clients' optimizer, with its own or its published rate."""
        return self.client_optimizer.or_rate(type(self).client_optimizer.learning_rate)

    def with_defaults(self, personalization: Any, total_rounds: int) -> GenerativeAlgorithm:
        """Returns the generator with its published rate and, of adam, betas."""
        optimizer, published = self.client, type(self).client_optimizer
        if optimizer.name == published.name:
            parameters = {**published.parameters, **optimizer.parameters}
            optimizer = dataclasses.replace(optimizer, parameters=parameters)
        return dataclasses.replace(self, client_optimizer=optimizer)

    def local_pass(self, task: Task, step: Callable[[Any, Batch], Any]) -> Pass:
        """Returns FedAvg's epochs, or so many batches."""
        return dataclasses.replace(super().local_pass(task, step), num_steps=self.train_steps)

    def finished(self, algorithm: Algorithm, task: Task, first_state: Any) -> Algorithm:
        """Returns an algorithm whose clients start from `first_state`, tensors, if they keep one;
        where one client trains, nothing is sent. UserError if devices are to keep one.
        """
        changes: dict[str, Any] = {}
        if self.keep_optimizer_state:
            kept_optimizers.check_silos(task)
            state = tf.nest.map_structure(lambda t: t.numpy(), first_state)
            changes["initial_client_state"] = lambda index: state
        if len(task.train) == 1:
            changes["communicated"] = Communicated((), ())
        return dataclasses.replace(algorithm, **changes)
