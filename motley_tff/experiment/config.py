"""What a run is, as frozen values; no TensorFlow.

A trainer makes a `RunConfig` of its flags, `motley_tff.run` of its arguments, and nothing below
either reads a flag. `defaults.resolve` then fills in what neither gave.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from motley_tff.algorithms import FedAvg, FineTuning, HypCluster, KnnPer, LpFt, attacks
from motley_tff.algorithms.card import name_of
from motley_tff.core import (
    algorithm as algorithm_lib,
    candidates,
    checks,
    private_mean,
    robust_mean,
)
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """What evaluations look at. Their tables are at the first fraction and rule.

    `defaults.resolve` fills in what is None, from the algorithm and its personalization.

    Attributes:
      personalization_fractions: Shares of the personalization set, each in (0, 1].
      acceptance: Rules, see `experiment.acceptance`.
      ood_examples: Size of the out-of-distribution set; 0 for none.
      tuning: Whose validation score chooses a candidate; None for the algorithm's own choice.
      include_baseline_candidate: Whether the global model itself may be chosen; None for yes, but
        where the algorithm trains models for each client, or clusters.
    """

    BOUNDS: ClassVar[Mapping[str, tuple]] = {"personalization_fractions": (checks.ABOVE_0, 1)}
    personalization_fractions: tuple[float, ...] = (1.0,)
    acceptance: tuple[str, ...] = ("always",)
    ood_examples: int = 0
    tuning: candidates.Tuning | None = None
    include_baseline_candidate: bool | None = None

    def choice(
        self, tuning: candidates.Tuning = "global", includes_baseline: bool = True
    ) -> tuple[candidates.Tuning, bool]:
        """Returns (tuning, whether the global model may be chosen), the arguments where it says
        neither; their own defaults are those of a global model that clients personalize.
        """
        includes = self.include_baseline_candidate
        return self.tuning or tuning, includes_baseline if includes is None else includes


@dataclasses.dataclass(frozen=True)
class LoopConfig:
    """What the loop of rounds needs to know.

    Attributes:
      total_rounds: Training rounds; 0 leaves the initial model as it is.
      rounds_per_evaluation: Evaluate a sample of clients every so many rounds.
      rounds_per_checkpoint: Save the state every so many rounds.
      clients_per_train_round: Cohort size; None for all silos, or ten devices, all if there are
        fewer.
      clients_fraction: Cohort size as a share of the training clients, rounded, 1 at least; in
        place of the number if it is given.
      valid_clients_per_evaluation: Validation clients in an evaluation during training.
      test_clients_per_evaluation: Test clients in an evaluation during training.
      final_evaluation_clients: Clients a split in the last evaluation; 0 for all.
      base_random_seed: Seed of every stream.
      num_generated: How many pictures an evaluation makes, of a task that makes some.
      dropout_rate: Probability that a client of a cohort gets the model and sends nothing back, in
        [0, 1). One client always does.
      evaluation: What evaluations look at.
    """

    BOUNDS: ClassVar[Mapping[str, tuple]] = {
        "rounds_per_evaluation": (1, None),
        "rounds_per_checkpoint": (1, None),
        "clients_per_train_round": (1, None),
        "clients_fraction": (checks.ABOVE_0, 1),
        "base_random_seed": (0, 2**32 - 1),
        "dropout_rate": (0, 0.99),
    }
    total_rounds: int = 100
    rounds_per_evaluation: int = 10
    rounds_per_checkpoint: int = 50
    clients_per_train_round: int | None = None
    clients_fraction: float | None = None
    valid_clients_per_evaluation: int = 100
    test_clients_per_evaluation: int = 100
    final_evaluation_clients: int = 0
    base_random_seed: int = 0
    num_generated: int = 0
    dropout_rate: float = 0.0
    evaluation: EvaluationConfig = EvaluationConfig()


@dataclasses.dataclass(frozen=True)
class BackendConfig:
    """What runs the clients' work.

    Attributes:
      aggregator: The mean, another one of TFF's, or one of `core.robust_mean`.
      trim_share: Of the trimmed mean, see there.
      dp_noise_multiplier: Noise of `differentially_private`, see `core.private_mean`.
      tff_workers: `host:port` of TFF workers; none for one of our own.
      threads_per_client: Threads inside one client's arithmetic; 0 lets TensorFlow choose.
      memory_limit_gb: What the clients that the vectorized backend stacks may take.
    """

    BOUNDS: ClassVar[Mapping[str, tuple]] = {
        "memory_limit_gb": (checks.ABOVE_0, None),
        "trim_share": (0, math.nextafter(0.5, 0.0)),
    }
    name: Literal["auto", "tff", "sequential", "vectorized"] = "auto"
    aggregator: Literal[
        "mean", "robust", "compressed", "secure", "differentially_private", "median", "trimmed_mean"
    ] = "mean"
    dp_noise_multiplier: float = 1.0
    trim_share: float = 0.1
    tff_workers: tuple[str, ...] = ()
    threads_per_client: int = 1
    memory_limit_gb: float = 4.0

    def added_noise(self, clients_per_round: int) -> float | None:
        """Returns the noise of a round's sum as a multiple of the clipping norm, None without any
        of either; UserError if it is too much for so few clients.
        """
        if self.aggregator != private_mean.NAME:
            return None
        return private_mean.added_noise(self.dp_noise_multiplier, clients_per_round)


@dataclasses.dataclass(frozen=True)
class WarmStartConfig:
    """What HypCluster's models start from.

    Attributes:
      algorithm: FedAvg, with the warm start's own rates; None for those of the clusters.
      total_rounds: Rounds of it for each model.
      initialization: `random` draws (and warm-starts) every model by itself, `updates` trains one
        and splits it by clients' updates.
    """

    algorithm: FedAvg = FedAvg()
    total_rounds: int = 0
    initialization: Literal["random", "updates"] = "random"


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """One run on a task.

    Attributes:
      algorithm: What trains the models.
      personalization: How clients personalize the global model; None where the algorithm trains
        models for each client, or clusters, which are then scored.
      loop: Rounds, cohorts and evaluations.
      backend: What runs the clients' work.
      initial_models: Paths of the models to start from; none for new ones.
      warm_start: What clusters start from.
      straggler_rate: Probability that a client has time for a share of its steps only.
      attack: What a share of the clients do to others, see `algorithms.attacks`; None is nothing.
      export_scores: Whether every example's score is written.
      tensorboard: Whether TensorBoard's scalars are written.
    """

    BOUNDS: ClassVar[Mapping[str, tuple]] = {"straggler_rate": (0, 1)}
    algorithm: FedAvg = FedAvg()
    personalization: FineTuning | KnnPer | None = None
    loop: LoopConfig = LoopConfig()
    backend: BackendConfig = BackendConfig()
    initial_models: tuple[str, ...] = ()
    warm_start: WarmStartConfig = WarmStartConfig()
    straggler_rate: float = 0.0
    attack: attacks.Attack | None = None
    export_scores: bool = False
    tensorboard: bool = False

    def check(self) -> None:
        """Raises a UserError if its parts contradict each other."""
        self.algorithm.check()
        if isinstance(self.personalization, LpFt) and self.personalization.last_layer:
            raise UserError(
                "--finetune_last_layer tunes the last layer alone, --personalization=lp_ft all of "
                "them after --probing_epochs; leave one out"
            )
        aggregator, card = self.backend.aggregator, self.algorithm.card
        if card.wants_mean and aggregator != "mean":
            raise UserError(
                f"--aggregator={aggregator} would clip, round or blur what --algorithm="
                f"{card.name} needs as it is: {card.wants_mean}; leave --aggregator out"
            )
        if aggregator in robust_mean.NAMES and isinstance(self.algorithm, HypCluster):
            raise UserError(
                f"--aggregator={aggregator} takes one update of each client, and HypCluster's are "
                "of clusters; choose another aggregator"
            )
        if self.attack is not None and isinstance(self.algorithm, HypCluster):
            raise UserError(
                "--attack is for algorithms that send one model's change, and HypCluster's clients "
                "choose among several; leave --attack out"
            )
        has_clusters = isinstance(self.algorithm, HypCluster) and self.algorithm.num_clusters > 1
        if has_clusters and aggregator == private_mean.NAME:
            raise UserError(
                f"--aggregator={aggregator} weights all clients alike and cannot leave "
                "out those outside a cluster; choose another aggregator"
            )
        if self.loop.clients_per_train_round:
            self.backend.added_noise(self.loop.clients_per_train_round)

    def settings(self) -> dict[str, Any]:
        """Returns its values as `run.json` has them, `{dotted name: value}`."""
        settings: dict[str, Any] = {}
        for name, value in dataclasses.asdict(self).items():
            parts = value if isinstance(value, dict) else {name: value}
            prefix = f"{name}." if isinstance(value, dict) else ""
            settings |= {f"{prefix}{key}": plain(part) for key, part in parts.items()}
        return settings

    def build_personalization(
        self, task: Task, built: algorithm_lib.Algorithm
    ) -> algorithm_lib.Personalization:
        """Returns how clients' models are made and scored.

        Args:
          task: The task.
          built: The algorithm for that task.

        Raises:
          ValueError: If the algorithm trains no models for clients and none is given.
        """
        if self.personalization is not None:
            return self.personalization.build(task)
        personalization = self.algorithm.personalization(task, built)
        if personalization is None:
            raise ValueError(f"Expected a personalization beside {self.algorithm.card.name}.")
        return personalization

    @property
    def algorithm_name(self) -> str:
        """What the tables' `algorithm` column says."""
        name = name_of(type(self.algorithm))
        if self.personalization is None:
            return name
        personalization = name_of(type(self.personalization))
        if self.loop.total_rounds:
            tuning = self.personalization
            has_none = isinstance(tuning, FineTuning) and tuning.max_epochs == 0
            return name if has_none else f"{name}+{personalization}"
        # Without rounds there is no training to name: fine-tuning of new weights is local training.
        is_local = personalization == "finetuning" and not self.initial_models
        return "local" if is_local else personalization


def plain(value: Any) -> Any:
    """Returns a value as JSON has it when it is read again; what JSON lacks as its text."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    value = value.item() if hasattr(value, "item") else value  # NumPy's numbers
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
