"""FedProx (Li et al. 2018, https://arxiv.org/abs/1812.06127, Algorithm 2).

FedAvg whose clients minimize loss + mu / 2 * ||w - w_incoming||^2. `proximal_strength` is mu;
0 gives back FedAvg. Clients always run all their epochs (the paper's gamma-inexactness is not
simulated).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from motley_tff.algorithms import fedavg
from motley_tff.algorithms.card import Card
from motley_tff.core import learning
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.options import option


@dataclasses.dataclass(frozen=True)
class FedProx(fedavg.FedAvg):
    """FedAvg's hyperparameters and mu, `proximal_strength`, at least 0; 0 is FedAvg."""

    card: ClassVar[Card] = Card(
        "fedprox", "FedProx", ("finetuning_trainer", "knn_per_trainer"), can_be_grouped=True,
        takes_rows=True,
    )  # fmt: skip
    proximal_strength: float = option(0.1, "mu of fedprox; 0 is FedAvg")

    def local_penalty(self, weights: Weights, incoming: Weights) -> tf.Tensor | float:
        """Returns mu / 2 * ||w - w_incoming||^2."""
        return 0.5 * self.proximal_strength * learning.squared_distance(weights, incoming)
