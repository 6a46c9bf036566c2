"""What a run with `--aggregator=differentially_private` may say of its privacy, and why not.

The number is that of `core.privacy`, of the models that the server sends. A run has none if
something else that training clients' data decide gets to others, unnoised.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from motley_tff.algorithms import KnnPer
from motley_tff.core import options
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.errors import UserError
from motley_tff.core.privacy import Mechanism, default_delta, noise_for
from motley_tff.core.task import Task
from motley_tff.experiment.config import BackendConfig, LoopConfig, RunConfig

# In `run.json`; what of it may not change while a run goes on.
KEY = "privacy"
_LASTING = ("clients", "clients_per_round", "noise_multiplier")
# Why there is none of the best round; the tables have those of all.
CHOSEN_ROUND = "the silos that train chose the round, without noise"
_CHOSEN_RATES = "training clients' data choose the learning rates; give them"


@dataclasses.dataclass(frozen=True)
class Accounting:
    """A run's rounds, or why there is no epsilon of them."""

    mechanism: Mechanism
    reason: str = ""

    def epsilon(self, rounds: int) -> float | None:
        """Returns the epsilon after so many rounds, None if there is no number."""
        return None if self.reason else self.mechanism.epsilon(rounds)

    def facts(self, rounds: int) -> dict[str, Any]:
        """Returns what `run.json` says of a run of so many rounds."""
        if self.reason:
            return {"epsilon": None, "reason": self.reason}
        return self.mechanism.facts(rounds)

    def resumed(self, record: Mapping[str, Any], num_rounds: int) -> Accounting:
        """Returns it for a run that goes on after so many rounds, by what `run.json` says."""
        if not num_rounds or self.reason:
            return self
        known = record.get(KEY)
        if known is None:
            reason = "an earlier version, which did not count, trained the first rounds"
        elif known.get("reason"):
            reason = known["reason"]
        elif any(known.get(name) != self.mechanism.facts(0)[name] for name in _LASTING):
            reason = "the noise or the cohort changed where the run went on"
        else:
            return self
        return dataclasses.replace(self, reason=reason)


def of_run(
    task: Task,
    config: RunConfig,
    loop: LoopConfig,
    built: Algorithm | None,
    candidates: Sequence[str],
    has_chosen_rates: bool,
) -> tuple[RunConfig, Accounting]:
    """Returns (the configuration with the noise of `dp_epsilon`, what is counted).

    Args:
      loop: As the task's clients have it.
      built: The algorithm, of one model; None for clusters.
      candidates: Those of the personalization.
      has_chosen_rates: Whether rates of training were tried out on training clients.

    Raises:
      UserError: If no noise gives `dp_epsilon`, or there is no number for it to be.
    """
    backend = config.backend
    groups = 1 if built is None or built.groups is None else len(built.groups.is_partial)
    clients = len(task.train)
    mechanism = Mechanism(
        backend.dp_noise_multiplier / groups**0.5,
        loop.clients_per_train_round or clients,
        clients,
        default_delta(clients) if backend.dp_delta is None else backend.dp_delta,
    )
    reason = _reason(task, config, built, candidates, has_chosen_rates)
    if (target := backend.dp_epsilon) is not None:
        _check_target(backend, reason)
        noise = noise_for(target, loop.total_rounds, mechanism, groups)
        backend = dataclasses.replace(backend, dp_noise_multiplier=noise, dp_epsilon=None)
        config = dataclasses.replace(config, backend=backend)
        mechanism = dataclasses.replace(mechanism, noise=noise / groups**0.5)
    return config, Accounting(mechanism, reason)


def check_rates(config: RunConfig, rate_free: Sequence[str]) -> None:
    """Raises a UserError, before rates are tried out, for `dp_epsilon` of a run that tries some."""
    _check_target(config.backend, _CHOSEN_RATES if rate_free else "")


def _check_target(backend: BackendConfig, reason: str) -> None:
    if backend.dp_epsilon is not None and reason:
        name = options.name_of(backend, "dp_epsilon")
        raise UserError(name, backend.dp_epsilon, f"a run that has one: {reason}", "leave it out")


def _reason(
    task: Task,
    config: RunConfig,
    built: Algorithm | None,
    candidates: Sequence[str],
    has_chosen_rates: bool,
) -> str:
    """Returns why the guarantee does not hold, nothing where it does."""
    evaluation, backend = config.loop.evaluation, config.backend
    trains_its_validators = not set(task.train.ids).isdisjoint(task.valid.ids)
    num_chosen_from = len(candidates) - (not evaluation.include_baseline_candidate)
    chooses = evaluation.tuning == "global" and num_chosen_from > 1
    reasons = {
        "no noise is added": not backend.dp_noise_multiplier and backend.dp_epsilon is None,
        "there is one training client, who is all there is to protect": len(task.train) == 1,
        "it starts from models that were trained before, which nothing counts": bool(
            config.initial_models
        ),
        "clients choose among clusters, and the choices have no noise": built is None,
        "kNN-Per keeps clients' examples as they are in its memory": isinstance(
            config.personalization, KnnPer
        ),
        "clients read what others' states say": built is not None and built.matrices is not None,
        _CHOSEN_RATES: has_chosen_rates,
        "the silos that train end the training, without noise": (
            trains_its_validators and config.loop.stop_after is not None
        ),
        "the silos that train choose a candidate for all, without noise; let each choose its own "
        "(tuning=per_client, --finetune_tuning)": trains_its_validators and chooses,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")
