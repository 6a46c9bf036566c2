"""Training without federation: what FedEval compares with, and an upper bound of a global model.

Plain mini-batch training on all examples in one place. Each of `total_rounds` rounds is
`train_epochs` epochs over them in a new order. It is FedAvg with one client, `core.partition`'s,
whose update the server applies as it is; nothing is communicated.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from motley_tff.algorithms import fedavg, optimizers
from motley_tff.algorithms.card import Card
from motley_tff.core.algorithm import Algorithm, Communicated
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class Centralized(fedavg.FedAvg):
    """FedAvg's hyperparameters; the server's optimizer is not used."""

    card: ClassVar[Card] = Card(
        "centralized", "Centralized", ("finetuning_trainer", "knn_per_trainer"), is_central=True
    )

    unused: ClassVar[Mapping[str, str]] = {
        "server_schedule": "constant, as there is no server's step in one place"
    }

    @property
    def tried_optimizers(self) -> tuple[str, ...]:
        """The one client's alone."""
        return ("client_optimizer",)

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns central training; a ValueError if there is more than one training client."""
        if len(task.train) != 1:
            raise ValueError(f"Expected one training client, found {len(task.train)}.")
        return dataclasses.replace(
            super().build(task, initial_weights),
            server_optimizer=optimizers.Sgd(1.0),
            communicated=Communicated((), ()),
        )
