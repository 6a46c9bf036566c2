"""Defaults that depend on another value: one function for trainers, Python, sweeps and reruns.

Where such a value was not given it is None in a `RunConfig`, and `resolve` fills it in. What an
algorithm fills in of its own is its method `with_defaults`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from motley_tff.algorithms import FedAvg, FineTuning
from motley_tff.core.errors import UserError
from motley_tff.experiment.config import LoopConfig, RunConfig, WarmStartConfig

_DEVICES_A_ROUND = 10


def resolve(config: RunConfig, setting: str, num_clients: int | None = None) -> RunConfig:
    """Returns the configuration of a run with nothing left that another value decides.

    What is not None stays as it is: to resolve twice is to resolve once.

    Args:
      config: What was given.
      setting: The task's.
      num_clients: The task's training clients; None before the data are there: of devices' cohort
        its most is then seen to.

    Raises:
      UserError: If the algorithm takes no such personalization, or neither fits the other.
    """
    personalization = _personalization(config, setting)
    algorithm = config.algorithm.with_defaults(personalization, config.loop.total_rounds)
    if isinstance(personalization, FineTuning) and personalization.batch_size is None:
        size = algorithm.train_batch_size
        personalization = dataclasses.replace(personalization, batch_size=size)
    return dataclasses.replace(
        config,
        algorithm=algorithm,
        personalization=personalization,
        loop=_loop(config.loop, algorithm, personalization, setting, num_clients),
        warm_start=_warm_start(config.warm_start, algorithm),
    )


def _personalization(config: RunConfig, setting: str) -> Any:
    """Returns what is given, or fine-tuning; None if the algorithm scores models of its own.

    Per-FedAvg does so on silos, and leaves it to fine-tuning on devices.
    """
    kind, personalization = type(config.algorithm), config.personalization
    if kind.personalization is FedAvg.personalization:
        return personalization or FineTuning()
    shared_trainers = {*kind.card.trainers} & {*(personalization or FineTuning).card.trainers}
    if personalization is not None and not shared_trainers:
        raise UserError(
            f"{kind.card.title} has models for clients of its own; leave personalization out"
        )
    is_silo_trainers = setting == "cross_silo" and "mtl_trainer" in kind.card.trainers
    if personalization is None and shared_trainers and not is_silo_trainers:
        return FineTuning()
    return personalization


def _loop(
    loop: LoopConfig,
    algorithm: FedAvg,
    personalization: Any,
    setting: str,
    num_clients: int | None,
) -> LoopConfig:
    is_own = personalization is None
    tuning, includes_baseline = (
        loop.evaluation.choice(algorithm.tuning, False) if is_own else loop.evaluation.choice()
    )
    evaluation = dataclasses.replace(
        loop.evaluation, tuning=tuning, include_baseline_candidate=includes_baseline
    )
    cohort = _cohort(loop, setting, num_clients)
    return dataclasses.replace(loop, clients_per_train_round=cohort, evaluation=evaluation)


def _cohort(loop: LoopConfig, setting: str, num_clients: int | None) -> int | None:
    """Returns how many clients a round has; None for all, or for a share of an unknown number."""
    if loop.clients_fraction is not None:
        return max(1, round(loop.clients_fraction * num_clients)) if num_clients else None
    if loop.clients_per_train_round is None and setting == "cross_device":
        return min(_DEVICES_A_ROUND, num_clients or _DEVICES_A_ROUND)
    return loop.clients_per_train_round


def _warm_start(before: WarmStartConfig, clusters: FedAvg) -> WarmStartConfig:
    if not before.total_rounds and before.initialization == "random":
        return WarmStartConfig()  # There is none.
    optimizers = {
        name: dataclasses.replace(optimizer, learning_rate=getattr(clusters, name).learning_rate)
        for name in ("client_optimizer", "server_optimizer")
        if (optimizer := getattr(before.algorithm, name)).learning_rate is None
    }
    return dataclasses.replace(
        before, algorithm=dataclasses.replace(before.algorithm, **optimizers)
    )
