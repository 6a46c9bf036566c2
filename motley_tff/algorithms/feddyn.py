"""FedDyn (Acar et al. 2021, https://arxiv.org/abs/2111.04263, Algorithm 1).

With alpha for `dynamic_regularization`, a silo trains for its epochs, from the server's w, on

    loss(v) - <g_i, v> + alpha / 2 * ||v - w||^2,    g_i' = g_i - alpha (w_i - w)

where w_i is the v it ends at (the paper's is the minimum). With P for the silos who answer, of m,

    h = h - alpha / m * sum over P of (w_i - w)
    w = server optimizer(w, d),    d = w - sum over P of w_i / |P| + h / alpha

which by SGD at rate 1 is the paper's step. Silos count alike, as in the paper, whatever examples
they have: the minimum sought is that of their mean loss. So h is the mean of all silos' g_i; a
silo's state is g_i / alpha (`corrected_training`), and one without examples counts in neither mean.

At alpha -> 0 silos train as FedAvg's, but h / alpha, the sum of all changes so far, stays: it is
FedAvg, for silos of one size who all take part, whose server has Nesterov's momentum of 1.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from motley_tff.algorithms import fedavg
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.corrected_training import CorrectedAlgorithm
from motley_tff.core import learning, rows
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.options import ABOVE_0, option


@dataclasses.dataclass(frozen=True)
class FedDyn(CorrectedAlgorithm):
    """FedAvg's hyperparameters and alpha, `dynamic_regularization`, above 0."""

    card: ClassVar[Card] = Card(
        "feddyn", "FedDyn", ("finetuning_trainer", "knn_per_trainer"),
        "pulls silos to the server's model and corrects their gradients; for silos",
        can_be_grouped=True, wants_mean="it adds up the silos' changes", silos_keep="gradients",
        takes_rows=True,
    )  # fmt: skip
    counts_silos: ClassVar[bool] = True
    dynamic_regularization: float = option(0.1, "alpha of feddyn", lower=ABOVE_0)

    def local_penalty(self, weights: Weights, incoming: Weights) -> tf.Tensor | float:
        """Returns alpha / 2 * ||v - w||^2."""
        return 0.5 * self.dynamic_regularization * learning.squared_distance(weights, incoming)

    def local_direction(self, gradients: Weights, client: fedavg.FedAvgClient) -> Weights:
        """Returns gradient - g_i."""
        own = rows.scaled(self.dynamic_regularization, client.memory.state)
        return learning.subtract(gradients, own)

    def next_state(self, client: fedavg.FedAvgClient, change: Weights) -> Weights:
        """Returns g_i' / alpha."""
        return tuple(map(tf.add, client.memory.state, change))

    def server_direction(self, change: Weights, mean: Weights) -> Weights:
        """Returns d; `mean` is h / alpha."""
        return tuple(map(tf.add, change, mean))
