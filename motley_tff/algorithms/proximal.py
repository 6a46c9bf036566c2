"""Fine-tuning pulled to the global model: Ditto's and pFedMe's solver, without a client's state.

On the personalization part a client minimizes loss(v) + strength / 2 * ||v - w||^2, begun at the
global model w (Ditto, Li et al. 2021, https://arxiv.org/abs/2012.04221, Algorithm 2's inner
problem; pFedMe's Moreau envelope, Dinh et al. 2020, https://arxiv.org/abs/2006.08848, equation 2).
Both papers keep v from round to round; devices that come and go cannot. Strength 0 is plain
fine-tuning.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from motley_tff.algorithms.card import Card
from motley_tff.algorithms.finetuning import FineTuning, Models
from motley_tff.core import learning
from motley_tff.core.lazy import tf
from motley_tff.core.options import option


@dataclasses.dataclass(frozen=True)
class ProximalFineTuning(FineTuning):
    """Fine-tuning's hyperparameters, and the strength of the pull."""

    card: ClassVar[Card] = Card(
        "proximal",
        "proximal FT",
        ("finetuning_trainer",),
        "pulled to the global model by --finetune_strength",
        can_be_grouped=True,
        takes_rows=True,
    )
    strength: float = option(
        0.1, "Strength of the pull to the global model; 0 is fine-tuning", "finetune_strength"
    )

    def local_penalty(self, weights: learning.Weights, models: Models) -> tf.Tensor | float:
        """Returns strength / 2 * ||v - w||^2."""
        return 0.5 * self.strength * learning.squared_distance(weights, models.start)
