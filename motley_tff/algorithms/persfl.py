"""PersFL: a client's best global model teaches a model of the client's own.

Divi, Farrukh and Celik 2021, "Unifying Distillation with Personalization in Federated Learning"
(https://arxiv.org/abs/2105.15191), as Divi et al. 2021 compare it
(https://arxiv.org/abs/2107.13173).

1. FedAvg trains. In each round that a silo is in, it scores the model that it gets on its
   validation part, and keeps the one of lowest loss: its teacher.
2. When evaluated, the silo trains a student on its training part, for each weight w and temperature
   T, with the teacher's outputs t and the student's s, minimizing

       generalized   (1 - w) CE(y, s) + w CE(softmax(t / T), s)
       knowledge     (1 - w) CE(y, s) + w T^2 CE(softmax(t / T), softmax(s / T))

   and takes the w, T and number of epochs that are best on its validation part.

Candidate 0 is the teacher, so "% clients hurt" counts against that. w = 0 is local training from
the student's start: by default the weights that all silos began with, or the teacher's. The first
form is generalized distillation (Lopez-Paz et al. 2016), whose student has no temperature; the
second is Hinton et al. 2015. The paper searches its settings by hand for each data set; here they
are searched for each silo.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, ClassVar, NamedTuple

from motley_tff.algorithms import scoring
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.finetuning import FineTuning, Models, Stage
from motley_tff.algorithms.personal_training import SiloAlgorithm
from motley_tff.core import candidate_labels, candidates, learning, rows, task as task_lib
from motley_tff.core.algorithm import Algorithm, Personalization
from motley_tff.core.client_work import Batch, Client, ClientWork, Pass
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.options import option
from motley_tff.core.task import Task


class Teacher(NamedTuple):
    """A silo's state: the best global model so far, and its validation loss, float32 []."""

    weights: Weights
    loss: tf.Tensor


@dataclasses.dataclass(frozen=True)
class PersFL(SiloAlgorithm):
    """PersFL's hyperparameters; the personal optimizer is the student's.

    Attributes:
      teacher: `best` on the silo's validation part, or `last`, FedAvg's final model.
      student: What a student starts from: `initial` weights, or the `teacher`'s.
    """

    card: ClassVar[Card] = Card(
        "persfl",
        "PersFL",
        ("mtl_trainer",),
        "a student for each silo, taught by the global model that was best there",
        takes_rows=True,
    )
    tuning: ClassVar[candidates.Tuning] = "per_client"
    distillation: str = option(
        "generalized", "What a student minimizes", choices=("generalized", "knowledge")
    )
    teacher: str = option(
        "best",
        "Whom a student learns from: the global model that was best on the silo's validation part, "
        "or the last one",
        choices=("best", "last"),
    )
    student: str = option(
        "initial", "Weights that a student starts from", choices=("initial", "teacher")
    )
    distillation_weights: tuple[float, ...] = option(
        (0.25, 0.5, 0.75), "Shares of the teacher in a student's loss to choose from", upper=1
    )
    temperatures: tuple[float, ...] = option(
        (1.0, 3.0), "Temperatures of the teacher to choose from", "temperatures", lower=1e-3
    )
    student_epochs: int = option(20, "Most epochs of a student's training", lower=1, upper=10_000)

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """The weights and temperatures of a silo's students."""
        return list(itertools.product(self.distillation_weights, self.temperatures))

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns FedAvg's training, in which silos look for their teachers."""
        first = Teacher(tuple(initial_weights), tf.float32.max)
        built = super().build(task, initial_weights)
        return dataclasses.replace(built, initial_client_state=lambda index: first)

    def client_work(self, task: Task) -> ClientWork:
        """Returns FedAvg's work with a look at the model that came, on the part `valid`."""
        base = super().client_work(task)

        def init(broadcast: Any, client_state: Any, client: Client) -> PersFLClient:
            inner = base.init(broadcast, (), client)
            return PersFLClient(inner, client_state, learning.zero_sums(task))

        def look(carry, batch):
            outputs = task.model.predict(carry.base.incoming, batch.x, False, batch.key)
            return carry._replace(sums=learning.add(task, batch, outputs, carry.sums))

        def finish(carry):
            # Not-a-number without examples: never better.
            loss = learning.means(carry.sums)["loss"]
            came = Teacher(carry.base.incoming, loss)
            state = rows.select(loss < carry.state.loss, came, carry.state)
            return base.finish(carry.base)._replace(client_state=state)

        # FedAvg's pass stays the first, so that its draws are FedAvg's.
        (training,) = base.passes
        looking = Pass("valid", look, scoring.EVALUATION_BATCH_SIZE)
        passes = training.within("base"), looking
        return ClientWork(init, passes, finish, takes_rows=base.takes_rows)

    def personalization(self, task: Task, built: Algorithm) -> Personalization:
        """Returns the students' training and scoring; UserError where examples have no classes,
        whose probabilities teachers say.
        """
        if task.label_field is None or task.neighbours != "classification":
            raise self.unfit(
                f"classes, whose probabilities a teacher says; {task.dataset} has none"
            )
        student = _Student(
            self.personal,
            (self.personal.learning_rate,) * len(self.pairs),
            self.student_epochs,
            self.train_batch_size,
            persfl=self,
            initial=tuple(built.initial_weights),
        )
        return dataclasses.replace(student.build(task), wants_server_weights=True)


class PersFLClient(NamedTuple):
    """A silo in a round: FedAvg's client, its teacher so far, the loss of the model that came."""

    base: Any
    state: Teacher
    sums: learning.Sums


@dataclasses.dataclass(frozen=True)
class _Student(FineTuning):
    """Fine-tuning on what a teacher says, too; `rate` numbers pairs of weight and temperature."""

    persfl: PersFL = PersFL()
    initial: Weights = ()

    @property
    def candidates(self) -> tuple[str, ...]:
        """The candidates' labels."""
        return candidate_labels.of_students(self.persfl.pairs, self.max_epochs)

    def models(self, broadcast: Any, client_state: Any) -> Models:
        """Returns the teacher, and what its student starts from."""
        is_best = self.persfl.teacher == "best"
        teacher = tuple(client_state.weights if is_best else broadcast)
        start = tuple(map(tf.constant, self.initial))
        return Models(teacher, start if self.persfl.student == "initial" else teacher)

    def step(
        self, task: Task, optimizer: Any, learner: learning.Learner, batch: Batch, stage: Stage
    ) -> learning.Learner:
        """Returns the learner after a batch; see `FineTuning.step`."""
        weight, temperature = tf.unstack(tf.gather(tf.constant(self.persfl.pairs), stage.rate))
        said = task.model.predict(stage.models.baseline, batch.x, False, batch.key)
        soft = tf.nn.softmax(said / temperature)

        def objective(loss, outputs):
            is_knowledge = self.persfl.distillation == "knowledge"
            softened = outputs / temperature if is_knowledge else outputs

            def entropy(labels, logits):
                values = tf.nn.softmax_cross_entropy_with_logits(soft, logits)
                return values, tf.ones_like(values)

            total, count = task_lib.masked_sum(entropy, batch.y, softened, batch.mask)
            taught = tf.math.divide_no_nan(total, count)
            scale = temperature**2 if is_knowledge else 1.0
            return (1.0 - weight) * loss + weight * scale * taught

        return learning.train(
            task, optimizer, learner, batch, self._trained(task), objective=objective
        )
