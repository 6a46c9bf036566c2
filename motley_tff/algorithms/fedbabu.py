"""FedBABU (Oh et al. 2022, https://arxiv.org/abs/2106.06042, Algorithm 1): a body for all.

Clients train and send all layers but the last (the body), the last keeps its first random values
(the head), and each client fine-tunes afterwards. The paper fine-tunes all layers: so does
`finetuning_trainer`, or with --finetune_last_layer the head alone. Of one full-batch step the body
is FedAvg's.
"""

import dataclasses
from typing import ClassVar

from motley_tff.algorithms import fedavg
from motley_tff.algorithms.card import Card
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class FedBabu(fedavg.FedAvg):
    """FedAvg's hyperparameters."""

    card: ClassVar[Card] = Card(
        "fedbabu",
        "FedBABU",
        ("finetuning_trainer",),
        "all layers but the last, which stays random",
        can_be_grouped=True,
        takes_rows=True,
    )

    def trained_layers(self, task: Task) -> tuple[bool, ...]:
        """Returns all but the last layer; a UserError if the model has one layer alone."""
        super().trained_layers(task)
        body = tuple(not is_last for is_last in task.model.is_last_layer)
        if not any(body):
            raise self.unfit(f"layers below the last; the model of {task.dataset} has none")
        return body
