"""FedAvg + fine-tuning (Cheng et al. 2021; Motley section 2.1): evaluate after every local epoch.

Candidate 0 is the global model; the others are (learning rate, epoch) pairs: the model after that
many epochs of local optimizer steps on the personalization part. All layers are tuned, or only the
task's last ones. Every rate sees the same batches, so a candidate's numbers do not depend on which
other rates are tried; nor on what is evaluated beside it.

Every epoch draws a new order, as training does and as the published silo code does. (The published
cross-device code keeps the order in which a file has the examples: by date on StackOverflow, the
sentences of a talk one after the other. A batch then holds examples that are alike, and results
depend on how the file was written.)
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from motley_tff.algorithms import fedavg, optimizers, scoring
from motley_tff.algorithms.card import Card, Training, takes_rows
from motley_tff.algorithms.optimizers import OptimizerConfig, optimizer_option
from motley_tff.core import candidate_labels, learning, rows
from motley_tff.core.algorithm import Personalization
from motley_tff.core.client_work import Batch, Client, ClientWork, Frozen, Pass
from motley_tff.core.lazy import tf
from motley_tff.core.options import ABOVE_0, MAX_BATCH_SIZE, MAX_RATE, option, with_default
from motley_tff.core.task import Task

# An epoch draws as pass number 2 does, however many evaluation passes stand before it; so the parts
# that are scored change no number. (On silos, which are scored on two parts, it is number 2.)
_DRAWS_AS = 2
# Motley's tasks have published rates. Of data that nobody has tuned for, a good one may be anywhere
# in three decades.
_RATES, _RATES_OF_OWN_DATA = (0.01,), (0.01, 0.1, 1.0)
# Methods by which a kind of fine-tuning may train other layers than its flags say.
_OWN = ("models", "start", "step")


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """Fine-tuning's hyperparameters.

    Attributes:
      optimizer: The fine-tuning optimizer; its learning rate is replaced by each of
        `learning_rates`.
      learning_rates: Rates to try, at least one; None for 0.01, of a user's data 0.1 and 1, too.
      max_epochs: Epochs 0..max_epochs are candidates, at least 0.
      batch_size: Examples a batch; None for as many as in training, whose default it is where
        there is none.
    """

    card: ClassVar[Card] = Card(
        "finetuning",
        "FT",
        ("finetuning_trainer",),
        "all layers, or the last ones alone",
        "FedAvg + Fine-tuning (FT)",
        can_be_grouped=True,
        takes_rows=True,
    )
    optimizer: OptimizerConfig = optimizer_option(
        OptimizerConfig("sgd", 0.01), "finetune", "fine-tuning", has_rate=False
    )
    learning_rates: tuple[float, ...] | None = option(
        None,
        "The fine-tuning learning rates to choose from (default: 0.01; of your own data 0.01, 0.1 "
        "and 1)",
        "finetune_learning_rate",
        lower=ABOVE_0,
        upper=MAX_RATE,
        everyday="personalization",
    )
    max_epochs: int = option(
        20,
        "Most fine-tuning epochs; all from 0 to this are scored",
        "finetune_max_epochs",
        upper=10_000,
        everyday="personalization",
    )
    batch_size: int | None = option(
        None, "Examples a batch in fine-tuning (default: --train_batch_size)",
        "finetune_batch_size", lower=1, upper=MAX_BATCH_SIZE,
    )  # fmt: skip
    last_layer: bool = option(
        False, "Fine-tune the last layer only", "finetune_last_layer", everyday="personalization"
    )

    def check(self, training: Training) -> None:
        """Raises a UserError if it does not fit what trains the models, or itself."""

    def with_rates(self, is_own_data: bool, takes_several: bool = True) -> FineTuning:
        """Returns it with its rates, by default those of a user's data or of other data."""
        rates = _RATES_OF_OWN_DATA if is_own_data and takes_several else _RATES
        return dataclasses.replace(self, learning_rates=self.learning_rates or rates)

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates to try."""
        return self.learning_rates or _RATES

    def named(self) -> FineTuning:
        """Returns it, or what it is called without an epoch."""
        if self.max_epochs:
            return self
        names = [field.name for field in dataclasses.fields(FineTuning)]
        return NoPersonalization(**{name: getattr(self, name) for name in names})

    @property
    def candidates(self) -> tuple[str, ...]:
        """The candidates' labels."""
        return candidate_labels.of_epochs(self.rates, self.max_epochs)

    def models(self, broadcast: Any, client_state: Any) -> Models:
        """Returns where a client's tuning begins; by default the global model is both."""
        return Models(tuple(broadcast), tuple(broadcast))

    def start(self, task: Task, optimizer: Any, weights: learning.Weights) -> learning.Learner:
        """Returns a learner at these weights, before its first epoch."""
        return learning.start(task, optimizer, weights, self._trained(task))

    def step(
        self, task: Task, optimizer: Any, learner: learning.Learner, batch: Batch, stage: Stage
    ) -> learning.Learner:
        """Returns the learner after a batch."""
        return learning.train(
            task, optimizer, learner, batch, self._trained(task),
            penalty=lambda weights: self.local_penalty(weights, stage.models),
        )  # fmt: skip

    def local_penalty(self, weights: learning.Weights, models: Models) -> tf.Tensor | float:
        """Returns what is added to a batch's loss."""
        return 0.0

    def frozen(self, task: Task) -> Frozen | None:
        """Returns what no epoch changes; None of a kind with models or steps of its own."""
        is_own = any(getattr(type(self), n) is not getattr(FineTuning, n) for n in _OWN)
        if is_own or not self.max_epochs:
            return None
        return Frozen(lambda carry: carry.models.start, self._trained(task))

    def _trained(self, task: Task) -> tuple[bool, ...]:
        return task.model.is_last_layer if self.last_layer else (True,) * len(task.model.shapes)

    def build(self, task: Task) -> Personalization:
        """Returns fine-tuning for a task."""
        work = functools.partial(client_work, task, self)
        return Personalization(self.card.name, self.candidates, work)


@dataclasses.dataclass(frozen=True)
class NoPersonalization(FineTuning):
    """Clients take the global model as it is: fine-tuning for no epoch."""

    card: ClassVar[Card] = Card("none", "no personalization", (), takes_rows=True)
    max_epochs: int = with_default(FineTuning, "max_epochs", 0)


class Models(NamedTuple):
    """Where a client's tuning begins: the model that is candidate 0, and the one that is tuned."""

    baseline: learning.Weights
    start: learning.Weights


class Stage(NamedTuple):
    """Where tuning is: the epoch and the number of its rate, int32 [] from 0, and what it began
    with.
    """

    epoch: tf.Tensor
    rate: tf.Tensor
    models: Models


class FineTuningClient(NamedTuple):
    """One client's fine-tuning: what it began with, the model being tuned, the scores."""

    models: Models
    learner: learning.Learner
    board: scoring.Board


def client_work(
    task: Task, params: FineTuning, evaluation_parts: tuple[str, ...], personalization_part: str
) -> ClientWork:
    """Returns the work that scores candidate 0, then tunes and scores an epoch at a time."""
    num_candidates = len(params.candidates)
    rates = np.asarray(params.rates, np.float32)

    def optimizer_at(rate):
        return optimizers.build_optimizer(dataclasses.replace(params.optimizer, learning_rate=rate))

    optimizer = optimizer_at(params.rates[0])

    def init(broadcast: Any, client_state: Any, client: Client) -> FineTuningClient:
        models = params.models(broadcast, client_state)
        return FineTuningClient(
            models=models,
            learner=params.start(task, optimizer, models.baseline),
            board=scoring.start(task, evaluation_parts, num_candidates, client),
        )

    def next_candidate(carry):
        """Moves on by an epoch; the first epoch of a rate starts anew."""
        done = carry.board.candidate
        rate = tf.gather(rates, done // params.max_epochs)
        fresh = params.start(task, optimizer_at(rate), carry.models.start)
        is_first = tf.equal(done % params.max_epochs, 0)
        learner = rows.select(is_first, fresh, carry.learner)
        return carry._replace(learner=learner, board=carry.board._replace(candidate=done + 1))

    def train(carry, batch):
        done = carry.board.candidate - 1
        stage = Stage(done % params.max_epochs, done // params.max_epochs, carry.models)
        return carry._replace(learner=params.step(task, optimizer, carry.learner, batch, stage))

    training = Pass(
        part=personalization_part,
        step=train,
        batch_size=params.batch_size or fedavg.FedAvg.train_batch_size,
        shuffle=True,
        drop_remainder=task.drop_remainder,
        training=True,
        draws_as=_DRAWS_AS,
        begin=next_candidate,
        changes=("learner",),
    )
    evaluation = tuple(
        scoring.evaluation_pass(task, part, lambda carry: carry.learner.weights)
        for part in evaluation_parts
    )
    return ClientWork(
        init=init,
        passes=evaluation,
        finish=lambda carry: scoring.board_output(task, carry.board),
        loop=(training, *evaluation),
        num_loops=num_candidates - 1,
        loop_period=params.max_epochs,
        frozen=params.frozen(task),
        takes_rows=takes_rows(type(params)),
    )
