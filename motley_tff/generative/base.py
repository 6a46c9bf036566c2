"""What both generators share: published rates, and optimizers that silos may keep."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from motley_tff.algorithms import fedavg
from motley_tff.algorithms.optimizers import OptimizerConfig
from motley_tff.core import errors, options
from motley_tff.core.algorithm import Algorithm, Communicated
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.options import option
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class GenerativeAlgorithm(fedavg.FedAvg):
    """FedAvg's hyperparameters, and

    Attributes:
      keep_optimizer_state: Whether a silo's optimizer goes on where its last round ended; else it
        starts anew, as devices' do.
    """

    is_personalized: ClassVar[bool] = False
    tries_rates: ClassVar[bool] = False  # Each has published ones.
    train_batch_size: int = options.with_default(fedavg.FedAvg, "train_batch_size", 32)
    keep_optimizer_state: bool = option(
        False,
        "Silos' optimizers, and wgan_gp's count of batches, go on where their last round ended",
    )

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
            if task.setting != "cross_silo":
                raise UserError(
                    options.name_of(self, "keep_optimizer_state"), True,
                    f"silos; the clients of {task.dataset} are devices, which keep nothing",
                    f"leave it out, or give {errors.name('setting')}=cross_silo",
                )  # fmt: skip
            state = tf.nest.map_structure(lambda t: t.numpy(), first_state)
            changes["initial_client_state"] = lambda index: state
        if len(task.train) == 1:
            changes["communicated"] = Communicated((), ())
        return dataclasses.replace(algorithm, **changes)
