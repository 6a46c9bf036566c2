"""Per-FedAvg, first order (Fallah et al. 2020, https://arxiv.org/abs/2002.07948, Algorithm 1).

The global model is trained to be good after one step of adaptation at rate a: on a batch,
w' = w - a * grad f(w), then w -= client rate * grad f(w') (FO-MAML: the Hessian is left out). The
paper draws independent batches for the two gradients; here one batch serves both, so that a silo
with one batch a round still adapts. a = 0 gives back FedAvg. A client's personal model is the
global one after a few epochs of steps at rate a on its own examples; clients keep no state. The
adaptation is plain SGD, in training and after: any other personal optimizer is refused.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from motley_tff.algorithms import fedavg, finetuning, optimizers
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.optimizers import build_optimizer
from motley_tff.algorithms.personal_training import SiloAlgorithm
from motley_tff.core import errors, learning, options, rows
from motley_tff.core.algorithm import Algorithm, Personalization
from motley_tff.core.client_work import Batch, ClientWork
from motley_tff.core.errors import UserError
from motley_tff.core.options import option
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class PerFedAvg(SiloAlgorithm):
    """Per-FedAvg's hyperparameters: a client's adaptation takes at most `adaptation_epochs`.

    The personal optimizer is SGD; its rate is that of the adaptation, at least 0, by default a
    tenth of the clients'; 0 gives back FedAvg.
    """

    card: ClassVar[Card] = Card(
        "per_fedavg",
        "Per-FedAvg",
        ("finetuning_trainer", "mtl_trainer"),
        "a global model that adapts well, by default at a tenth of the clients' rate",
        takes_rows=True,
    )
    # Adapting at the rate of training leaves a global model that is of little use by itself.
    default_share: ClassVar[float] = 0.1
    tries_alone: ClassVar[bool] = False  # Clients keep no model.
    tunes_rates: ClassVar[bool] = False  # Training adapts at the rate of fine-tuning.
    adaptation_epochs: int = option(
        5, "Most epochs of per_fedavg's adaptation", lower=1, upper=1000, trainers=("mtl_trainer",)
    )

    def with_defaults(self, personalization: Any, total_rounds: int) -> SiloAlgorithm:
        """Returns the algorithm with its personal optimizer: that of fine-tuning, if clients
        fine-tune its model, which is trained for steps at that rate. UserError if there are more.
        """
        if personalization is None or self.personal_optimizer.learning_rate is not None:
            return super().with_defaults(personalization, total_rounds)
        rates = personalization.rates
        if len(rates) > 1:
            name = options.name_of(personalization, "learning_rates")
            raise UserError(name, rates, f"one rate, at which {self.card.name} trains the model")
        optimizer = dataclasses.replace(personalization.optimizer, learning_rate=rates[0])
        return dataclasses.replace(self, personal_optimizer=optimizer)

    def check(self) -> None:
        """Raises a UserError if the personal optimizer is not plain SGD."""
        name = errors.name("personalization.optimizer", "finetune_optimizer")
        advice = f"where clients fine-tune the model, give {name}=sgd"
        reason = "by whose steps clients adapt the model"
        optimizers.check_plain_sgd(self.personal, "personal_optimizer", reason, advice)

    def client_work(self, task: Task) -> ClientWork:
        """Returns FedAvg's work with the gradient at the adapted weights."""
        optimizer, trained = build_optimizer(self.client), self.trained_layers(task)
        rate = self.personal.learning_rate

        def local_step(client: fedavg.FedAvgClient, batch: Batch) -> fedavg.FedAvgClient:
            learner = client.learner
            inner, sums = learning.gradients(task, learner.weights, batch, learner.sums, trained)
            adapted = learning.subtract(learner.weights, rows.scaled(rate, inner))
            outer, _ = learning.gradients(task, adapted, batch, learner.sums, trained)
            learner = learning.step(optimizer, learner, outer, trained)
            return client._replace(learner=learner._replace(sums=sums))

        work = super().client_work(task)
        return dataclasses.replace(work, passes=(self.local_pass(task, local_step),))

    def personalization(self, task: Task, built: Algorithm) -> Personalization | None:
        """Returns a few epochs of steps from the global model: what it was trained for."""
        rates = (self.personal.learning_rate,)
        return finetuning.FineTuning(
            self.personal, rates, self.adaptation_epochs, self.train_batch_size
        ).build(task)
