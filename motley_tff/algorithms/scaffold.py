"""SCAFFOLD (Karimireddy et al. 2020, https://arxiv.org/abs/1910.06378, Algorithm 1), option II.

A silo's state is its control variate c_i, the server's c is their mean. A silo takes K steps at the
clients' rate r from the server's weights w, on all batches of its epochs:

    w_i = w_i - r (gradient - c_i + c),     c_i' = c_i - c + (w - w_i) / (K r)

A straggler's K is what it does. The server averages w - w_i as in FedAvg; its SGD rate is the one
that the paper calls global. Silos count by their examples, in c, too (`corrected_training`), so
that the minimum sought is FedAvg's. In the paper they count alike, and c changes by |S| / N times
the mean change; of silos of one size both are the same.

It is FedAvg in the first round, and as long as all silos take part with one step each, as c - c_i
then cancels out in the mean. Both ways it sends twice the bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from motley_tff.algorithms import fedavg, optimizers
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.corrected_training import CorrectedAlgorithm
from motley_tff.core import learning, rows
from motley_tff.core.learning import Weights


@dataclasses.dataclass(frozen=True)
class Scaffold(CorrectedAlgorithm):
    """FedAvg's hyperparameters; the client optimizer is SGD without momentum."""

    card: ClassVar[Card] = Card(
        "scaffold", "SCAFFOLD", ("finetuning_trainer", "knn_per_trainer"),
        "corrects silos' gradients by control variates; for silos", can_be_grouped=True,
        wants_mean="its variate is the mean of the silos'", silos_keep="control variates",
        takes_rows=True,
    )  # fmt: skip
    sends_states: ClassVar[bool] = True
    unused: ClassVar[Mapping[str, str]] = {
        "keep_optimizer_state": "False, as it counts the steps of one round"
    }

    def check(self) -> None:
        """Raises a UserError if a silo's steps do not add up to its mean gradient."""
        reason = f"whose steps {self.card.name} takes for the mean of a silo's gradients"
        optimizers.check_plain_sgd(self.client_optimizer, "client_optimizer", reason)

    def local_optimizer(self) -> optimizers.MeasuredOptimizer:
        """Returns SGD that adds up the rates of its steps, K r."""
        return optimizers.MeasuredOptimizer(super().local_optimizer())

    def local_direction(self, gradients: Weights, client: fedavg.FedAvgClient) -> Weights:
        """Returns gradient - c_i + c."""
        parts = gradients, client.memory.state, client.memory.mean
        return tuple(g - own + mean for g, own, mean in zip(*parts, strict=True))

    def next_state(self, client: fedavg.FedAvgClient, change: Weights) -> Weights:
        """Returns c_i', or c_i of a silo that took no step."""
        variate, mean, _ = client.memory
        length = client.learner.optimizer_state["length"]
        correction = learning.subtract(mean, variate)
        new = learning.subtract(fedavg.mean(change, length), correction)
        return rows.select(length > 0.0, new, variate)
