"""What every training algorithm is asked beside its mathematics, with FedAvg's answers.

The experiment asks whether an algorithm fits the other settings and the task. `fedavg.FedAvg`
derives from this class and all other training algorithms from `FedAvg`: each overrides what is
different for it.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Mapping
from typing import Any, ClassVar

from motley_tff.algorithms.card import Card
from motley_tff.core import candidates, errors
from motley_tff.core.algorithm import Algorithm, Personalization
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task


class TrainingAlgorithm:
    """An algorithm that trains models over rounds: a frozen dataclass with a card.

    Attributes:
      tuning: Whether a candidate is chosen once for all clients, or by each silo, unless a user
        sets that.
      is_personalized: Whether its models are of a kind that clients can make their own.
      tunes_rates: Whether clients may fine-tune its model at several rates.
      tries_rates: Whether its rates are tried out where nobody has published any.
      unused: Fields of FedAvg's that would change nothing of it, and what it has instead.
      tries_alone: Whether by clients that train alone, as it has a model for each, or for those
        that are alike: what is best for one model of all says little where clients contradict.
    """

    card: ClassVar[Card]
    tuning: ClassVar[candidates.Tuning] = "global"
    is_personalized: ClassVar[bool] = True
    tunes_rates: ClassVar[bool] = True
    tries_rates: ClassVar[bool] = True
    unused: ClassVar[Mapping[str, str]] = types.MappingProxyType({})
    tries_alone: ClassVar[bool] = False

    def with_defaults(self, personalization: Any, total_rounds: int) -> Any:
        """Returns the algorithm with those of its own defaults that depend on another value.

        Args:
          personalization: How clients personalize the global model; None if the algorithm does it.
          total_rounds: The run's.

        Raises:
          UserError: If the personalization does not fit.
        """
        return self

    def check(self) -> None:
        """Raises a UserError if the algorithm would not be itself under these optimizers."""

    @property
    def num_models(self) -> int | None:
        """How many models the server keeps, which are trained from as many; None for one alone."""
        return None

    def check_beside(self, aggregator: str, has_attack: bool) -> None:
        """Raises a UserError if the algorithm cannot be with an aggregator or with clients that
        attack.
        """
        if self.card.wants_mean and aggregator != "mean":
            expected = f"mean, as {self.card.title} needs updates as they are: "
            expected += self.card.wants_mean
            raise UserError(errors.name("aggregator"), aggregator, expected)

    def unfit(self, expected: str, advice: str = "choose another algorithm") -> UserError:
        """Returns an error that says what the algorithm needs of a task."""
        return UserError(errors.name("algorithm"), self.card.name, expected, advice)

    def check_clients(self, task: Task) -> None:
        """Raises a UserError if the task has too few training clients, or devices where the
        algorithm needs silos.
        """
        if self.card.silos_keep and task.setting != "cross_silo":
            expected = f"silos, which keep {self.card.silos_keep}, not devices"
            either = f"{errors.name('setting')}=cross_silo, where the data can be silos"
            raise self.unfit(expected, f"choose another algorithm, or give {either}")

    def trained_layers(self, task: Task) -> tuple[bool, ...]:
        """Returns which of the model's weights clients train and send; by default all. UserError if
        the model has moving statistics, which only `fedbn` keeps.
        """
        if any(task.model.is_statistic):
            name = next(itertools.compress(task.model.names, task.model.is_statistic))
            silos = f"on silos {errors.name('algorithm')}=fedbn"
            advice = f"take GroupNormalization for BatchNormalization, or {silos}"
            expected = f"weights that are all trained, not {name}, as {self.card.name} averages all"
            raise UserError(errors.name("model"), None, expected, advice)
        return (True,) * len(task.model.shapes)

    def personalization(self, task: Task, built: Algorithm) -> Personalization | None:
        """Returns how the models it trains for each client are scored; None if it trains none."""
        return None
