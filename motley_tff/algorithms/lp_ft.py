"""LP-FT, linear probing before fine-tuning (Kumar et al. 2022, https://arxiv.org/abs/2202.10054;
for clients https://arxiv.org/abs/2511.12695): the last layer first, then all.

Fine-tuning whose first `probing_epochs` epochs step the last layer alone, so that a head that knows
the client does not drag the other layers along. Both phases have the same optimizer, the second
starts with a fresh state. With 0 such epochs this is fine-tuning of all layers, with as many as
there are epochs fine-tuning of the last layer.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, ClassVar

from motley_tff.algorithms.card import Card, Training
from motley_tff.algorithms.finetuning import FineTuning, Stage
from motley_tff.core import learning, options, rows
from motley_tff.core.client_work import Batch, Frozen
from motley_tff.core.errors import UserError
from motley_tff.core.layer_groups import Features
from motley_tff.core.lazy import tf
from motley_tff.core.options import option
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class LpFt(FineTuning):
    """Fine-tuning's hyperparameters, of which `last_layer` plays no part, and when it turns."""

    card: ClassVar[Card] = Card(
        "lp_ft",
        "LP-FT",
        ("finetuning_trainer",),
        "the last layers for --probing_epochs, then all",
        can_be_grouped=True,
        takes_rows=True,
    )
    probing_epochs: int = option(1, "Epochs that lp_ft tunes the last layer alone")

    def check(self, training: Training) -> None:
        """Raises a UserError if it is to tune the last layer alone."""
        if self.last_layer:
            expected = "False, as lp_ft tunes all layers after its probing"
            raise UserError(options.name_of(self, "last_layer"), True, expected, "leave one out")

    def start(self, task: Task, optimizer: Any, weights: learning.Weights) -> learning.Learner:
        """Returns a learner whose optimizer state is that of the probing and that of all layers."""
        probing = learning.start(task, optimizer, weights, task.model.is_last_layer)
        learner = learning.start(task, optimizer, weights, self._trained(task))
        return learner._replace(optimizer_state=(probing.optimizer_state, learner.optimizer_state))

    def step(
        self, task: Task, optimizer: Any, learner: learning.Learner, batch: Batch, stage: Stage
    ) -> learning.Learner:
        """Returns the learner after a batch; see `FineTuning.step`."""
        states, is_last = learner.optimizer_state, task.model.is_last_layer
        is_probing = isinstance(batch.x, Features)  # The layers below them are frozen.
        trained = is_last if is_probing else self._trained(task)
        gradients, sums = learning.gradients(task, learner.weights, batch, learner.sums, trained)

        def stepped(number, layers, gradients):
            phase = learner._replace(optimizer_state=states[number])
            phase = learning.step(optimizer, phase, gradients, layers)
            optimizer_states = (*states[:number], phase.optimizer_state, *states[number + 1 :])
            return phase._replace(optimizer_state=optimizer_states, sums=sums)

        if is_probing:
            return stepped(0, is_last, gradients)
        of_last = tuple(itertools.compress(gradients, is_last))
        return rows.select(
            stage.epoch < self.probing_epochs,
            stepped(0, is_last, of_last),
            stepped(1, trained, gradients),
        )

    def frozen(self, task: Task) -> Frozen | None:
        """Returns what the probing leaves as it is; see `FineTuning.frozen`."""

        def is_probed(carry):
            # A rate's first epoch follows on the last one of another, or on the global model.
            return (
                tf.maximum(carry.board.candidate, 1) - 1
            ) % self.max_epochs < self.probing_epochs

        if type(self) is not LpFt or not self.max_epochs:
            return None
        return Frozen(lambda carry: carry.models.start, task.model.is_last_layer, is_probed)
