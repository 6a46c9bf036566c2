"""What both generators share: published rates, and optimizers that silos may keep."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from motley_tff.algorithms import fedavg, kept_optimizers
from motley_tff.algorithms.optimizers import OptimizerConfig
from motley_tff.core import options
from motley_tff.core.algorithm import Algorithm, Communicated
from motley_tff.core.lazy import tf
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class GenerativeAlgorithm(fedavg.FedAvg):
    """FedAvg's hyperparameters."""

    is_personalized: ClassVar[bool] = False
    tries_rates: ClassVar[bool] = False  # Each has published ones.
    train_batch_size: int = options.with_default(fedavg.FedAvg, "train_batch_size", 32)

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
