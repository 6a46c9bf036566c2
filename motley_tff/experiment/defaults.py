"""Defaults that depend on another value: one function for trainers, Python, sweeps and reruns.

Where such a value was not given it is None in a `RunConfig`, and `resolve` fills it in. What an
algorithm fills in of its own is its method `with_defaults`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from motley_tff.algorithms import FedAvg, FineTuning
from motley_tff.algorithms.finetuning import NoPersonalization
from motley_tff.core import errors, options
from motley_tff.core.errors import UserError
from motley_tff.experiment.config import DEVICES_A_ROUND, LoopConfig, RunConfig, WarmStartConfig


def resolve(
    config: RunConfig, setting: str, num_clients: int | None = None, is_own_data: bool = False
) -> RunConfig:
    """Returns the configuration of a run with nothing left that another value decides.

    What is not None stays as it is: to resolve twice is to resolve once. Of a user's data those
    rates of training are left at None that `rate_probe` then chooses.

    Args:
      config: What was given.
      setting: The task's.
      num_clients: The task's training clients; None before the data are there: of devices' cohort
        its most is then seen to.
      is_own_data: Whether the data are the user's own, for which nobody has published rates.

    Raises:
      UserError: If the algorithm takes no such personalization, or neither fits the other.
    """
    loop, warm_start = _rounds(config, setting)
    personalization = _personalization(config, setting)
    if isinstance(personalization, FineTuning):
        personalization = personalization.with_rates(is_own_data, config.algorithm.tunes_rates)
    trains = loop.total_rounds > 0 or warm_start.total_rounds > 0
    algorithm = config.algorithm.with_rates(is_own_data and trains)
    algorithm = algorithm.with_defaults(personalization, loop.total_rounds)
    if isinstance(personalization, FineTuning):
        size = personalization.batch_size or algorithm.train_batch_size
        personalization = dataclasses.replace(personalization, batch_size=size).named()
    is_own = personalization is None
    tuning, includes_baseline = loop.evaluation.choice(
        algorithm.tuning if is_own else "global", not is_own
    )
    evaluation = dataclasses.replace(
        loop.evaluation, tuning=tuning, include_baseline_candidate=includes_baseline
    )
    return dataclasses.replace(
        config,
        algorithm=algorithm,
        personalization=personalization,
        loop=dataclasses.replace(_cohort(loop, setting, num_clients), evaluation=evaluation),
        warm_start=warm_start,
    )


def _rounds(config: RunConfig, setting: str) -> tuple[LoopConfig, WarmStartConfig]:
    """Returns the rounds of training, and those of the warm start, which a fraction takes of them.

    UserError if the fraction is of devices' rounds or the rounds are said, too, or if there are
    rates of a warm start and none.
    """
    loop, before = config.loop, config.warm_start
    if before.fraction is not None:
        name, rounds = (options.name_of(before, n) for n in ("fraction", "total_rounds"))
        if setting == "cross_device":
            raise UserError(name, before.fraction, "silos", f"give {rounds}")
        if before.total_rounds:
            expected = f"no {rounds} beside it, as both say how long the warm start is"
            raise UserError(name, before.fraction, expected, "leave one of them out")
        num_rounds = round(before.fraction * loop.total_rounds)
        before = dataclasses.replace(before, total_rounds=num_rounds, fraction=None)
        loop = dataclasses.replace(loop, total_rounds=loop.total_rounds - num_rounds)
    if before.total_rounds or before.initialization == "updates":
        return loop, before
    for field in ("client_learning_rate", "server_learning_rate", "server_adam_epsilon"):
        if (value := getattr(before, field)) is not None:
            rounds = options.name_of(before, "total_rounds")
            expected = "a warm start, of which there are no rounds"
            raise UserError(
                options.name_of(before, field), value, expected, f"leave it out, or give {rounds}"
            )
    return loop, WarmStartConfig()


def _personalization(config: RunConfig, setting: str) -> Any:
    """Returns what is given, or fine-tuning; None if the algorithm scores models of its own.

    Per-FedAvg does so on silos, and leaves it to fine-tuning on devices.
    """
    kind, personalization = type(config.algorithm), config.personalization
    if not kind.is_personalized:
        return NoPersonalization()
    if kind.personalization is FedAvg.personalization:
        return personalization or FineTuning()
    shared_trainers = {*kind.card.trainers} & {*(personalization or FineTuning).card.trainers}
    if personalization is not None and not shared_trainers:
        expected = f"none, as {kind.card.title} trains each client's model itself"
        name = errors.name("personalization")
        raise UserError(name, personalization.card.name, expected, "leave it out")
    is_silo_trainers = setting == "cross_silo" and "mtl_trainer" in kind.card.trainers
    if personalization is None and shared_trainers and not is_silo_trainers:
        return FineTuning()
    return personalization


def _cohort(loop: LoopConfig, setting: str, num_clients: int | None) -> LoopConfig:
    """Returns the loop with the number of a round's clients: None for all, or as long as the number
    is unknown that a fraction is of.
    """
    size, fraction = loop.clients_per_train_round, loop.clients_fraction
    if size is not None and fraction is not None:
        name = options.name_of(loop, "clients_fraction")
        expected = f"no {options.name_of(loop, 'clients_per_train_round')} beside it"
        raise UserError(name, fraction, expected, "leave one of them out")
    if fraction is not None and num_clients:
        size = max(1, round(fraction * num_clients))
        return dataclasses.replace(loop, clients_per_train_round=size, clients_fraction=None)
    if size is None and fraction is None and setting == "cross_device":
        size = min(DEVICES_A_ROUND, num_clients or DEVICES_A_ROUND)
    return dataclasses.replace(loop, clients_per_train_round=size)
