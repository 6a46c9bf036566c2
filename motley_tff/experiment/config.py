"""What a run is, as frozen values; no TensorFlow.

A trainer makes a `RunConfig` of its flags, `motley_tff.run` of its arguments, and nothing below
either reads a flag. `defaults.resolve` then fills in what neither gave.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, Literal

from motley_tff.algorithms import (
    FedAvg,
    FineTuning,
    KnnPer,
    OptimizerConfig,
    attacks,
    rate_schedules,
)
from motley_tff.algorithms.card import Training, name_of
from motley_tff.backends.tff import targets
from motley_tff.core import algorithm as algorithm_lib, errors, options, privacy, private_mean
from motley_tff.core.errors import UserError
from motley_tff.core.options import ABOVE_0, BELOW_1, MAX_RATE, option
from motley_tff.core.task import Task
from motley_tff.evaluation.config import EvaluationConfig

# A cohort, unless its size is set.
DEVICES_A_ROUND = 10


@dataclasses.dataclass(frozen=True)
class LoopConfig:
    """What the loop of rounds needs to know."""

    total_rounds: int = option(
        100,
        "Training rounds; 0 leaves local training alone",
        argument="rounds",
        everyday="training",
    )
    rounds_per_evaluation: int = option(
        10, "Evaluate every so many rounds", lower=1, everyday="evaluation"
    )
    rounds_per_checkpoint: int = option(50, "Save a checkpoint every so many rounds", lower=1)
    clients_per_train_round: int | None = option(
        None,
        f"Clients in a round's cohort (default: {DEVICES_A_ROUND} devices, all if there are fewer; "
        "all silos)",
        lower=1,
        argument="clients_per_round",
        everyday="training",
    )
    clients_fraction: float | None = option(
        None,
        "Share of the training clients in a round's cohort, in place of their number",
        lower=ABOVE_0,
        upper=1,
    )
    valid_clients_per_evaluation: int = option(
        100,
        "How many valid clients an evaluation during training samples; silos: all",
        lower=1,
        everyday="evaluation",
    )
    test_clients_per_evaluation: int = option(
        100,
        "How many test clients an evaluation during training samples; silos: all",
        lower=1,
        everyday="evaluation",
    )
    final_evaluation_clients: int = option(
        0,
        "How many clients of each split the last evaluation samples; 0 for all. Silos: all",
        everyday="evaluation",
    )
    base_random_seed: int = options.seed("seed")
    num_generated: int = option(
        2000,
        "Pictures that are made and kept",
        upper=1_000_000,
        trainers=("generative_trainer",),
        everyday="output",
    )
    dropout_rate: float = option(
        0.0,
        "Probability that a client of a cohort gets the model and sends nothing back; one client "
        "always does",
        upper=0.99,
    )
    stop_after: int | None = option(
        None,
        "End training after so many evaluations in a row without a better validation mean of the "
        "metric that chooses; the best round is reported, and its models are kept. Devices are "
        "then evaluated by the same sample every time: between samples, the mean differs by chance",
        lower=1,
    )
    min_improvement: float = option(
        0.0, "What counts as better for --stop_after, in the unit of the metric: more than this"
    )
    evaluation: EvaluationConfig = EvaluationConfig()

    def check(self) -> None:
        """Raises a UserError if training cannot stop early, though it is to."""
        name, period = (options.name_of(self, n) for n in ("stop_after", "rounds_per_evaluation"))
        if self.stop_after is None and self.min_improvement:
            least = options.name_of(self, "min_improvement")
            raise UserError(least, self.min_improvement, f"{name} beside it", "leave it out")
        count = -(-self.total_rounds // self.rounds_per_evaluation)
        if self.stop_after is not None and self.stop_after >= count:
            expected = f"below {count}, the number of evaluations while training"
            raise UserError(name, self.stop_after, expected, f"give fewer, or a smaller {period}")


@dataclasses.dataclass(frozen=True)
class BackendConfig:
    """What runs the clients' work."""

    name: Literal["auto", "tff", "sequential", "vectorized"] = option(
        "auto",
        "What runs the clients' work",
        "backend",
        everyday="training",
    )
    aggregator: Literal[
        "mean", "robust", "compressed", "secure", "differentially_private", "median", "trimmed_mean"
    ] = option(
        "mean",
        "How updates become one: the mean by examples; TFF's robust (zeroing and clipping), "
        "compressed, secure, differentially_private (clipping and noise, no zeroing, clients count "
        "alike), which need --backend=tff; the median or trimmed mean of each coordinate, which "
        "need tff or sequential",
        everyday="training",
    )
    dp_noise_multiplier: float = option(
        1.0,
        "Noise that the rounds are worth in privacy, as a multiple of the clipping norm; below a "
        "tenth of the round's clients. The clipping norm itself takes a part, so more is added to "
        "the updates: run.json says how much",
        owners=(private_mean.NAME,),
    )
    dp_epsilon: float | None = option(
        None,
        "In place of that noise: the epsilon of all rounds, replacing one client; the least noise "
        "that gives it is taken",
        lower=ABOVE_0,
        owners=(private_mean.NAME,),
    )
    dp_delta: float | None = option(
        None,
        "The delta that epsilon is at; if it is not given, 1 / training clients^1.1",
        lower=privacy.MIN_DELTA,
        upper=BELOW_1,
        owners=(private_mean.NAME,),
    )
    trim_share: float = option(
        0.1,
        "Share of the cohort left out at either end, below 0.5",
        upper=math.nextafter(0.5, 0.0),
        owners=("trimmed_mean",),
    )
    tff_workers: tuple[str, ...] = option(
        (),
        "host:port of TFF workers, which motley_worker starts, to spread the clients of each round "
        "over: backend tff, of several machines. Not encrypted: use SSH tunnels or a private "
        "network",
        parse=targets.parse,
    )
    threads_per_client: int = option(
        1,
        "Threads inside one client's arithmetic; 0 lets TensorFlow choose. With 1, results do not "
        "depend on the number of cores",
    )
    memory_limit_gb: float = options.memory_limit()

    def check(self) -> None:
        """Raises a UserError if an option is set that the aggregator does not have."""
        options.check_owners(self, options.name_of(self, "aggregator"), self.aggregator)
        if self.tff_workers and self.name not in ("auto", "tff"):
            name = options.name_of(self, "tff_workers")
            raise UserError(options.name_of(self, "name"), self.name, f"tff or auto with {name}")
        noise, default = self.dp_noise_multiplier, BackendConfig().dp_noise_multiplier
        if self.dp_epsilon is not None and noise != default:
            name = options.name_of(self, "dp_noise_multiplier")
            expected = (
                f"no {options.name_of(self, 'dp_epsilon')} beside it, which decides the noise"
            )
            raise UserError(name, noise, expected, "leave one of them out")

    def added_noise(self, clients_per_round: int) -> float | None:
        """Returns the noise of a round's sum as a multiple of the clipping norm, None without any
        of either, or as long as `dp_epsilon` decides it; UserError if it is too much for so few
        clients.
        """
        if self.aggregator != private_mean.NAME or self.dp_epsilon is not None:
            return None
        return private_mean.added_noise(self.dp_noise_multiplier, clients_per_round)


@dataclasses.dataclass(frozen=True)
class WarmStartConfig:
    """What HypCluster's models start from: FedAvg, with rates of its own where they are set.

    `defaults.resolve` makes rounds of the fraction.
    """

    total_rounds: int = option(
        0,
        "Rounds of FedAvg that each model is trained for, alone, before clustering begins",
        "num_warmstart_fedavg_rounds",
        everyday="training",
    )
    fraction: float | None = option(
        None,
        "On silos, instead: the share of --total_rounds that is such a warm start",
        "warmstart_fraction",
        upper=1,
        everyday="training",
    )
    client_learning_rate: float | None = option(
        None,
        "The clients' learning rate in the warm start, as FedAvg's own best may be another "
        "(default: --client_learning_rate)",
        "warmstart_client_learning_rate",
        lower=ABOVE_0,
        upper=MAX_RATE,
    )
    server_learning_rate: float | None = option(
        None,
        "The server's learning rate in the warm start (default: --server_learning_rate)",
        "warmstart_server_learning_rate",
        lower=ABOVE_0,
        upper=MAX_RATE,
    )
    server_adam_epsilon: float | None = option(
        None,
        "epsilon of the server's adam in the warm start (default: --server_adam_epsilon)",
        "warmstart_server_adam_epsilon",
    )
    initialization: Literal["random", "updates"] = option(
        "random",
        "Draw (and warm-start) every model by itself, or (ours, against mode collapse) train one "
        "and split it by k-means++ on clients' updates",
        "cluster_initialization",
    )

    def algorithm(self, clusters: FedAvg) -> FedAvg:
        """Returns the FedAvg of the warm start, which has what it does not set of the clusters."""
        client, server = clusters.client, clusters.server
        parameters = dict(server.parameters)
        if self.server_adam_epsilon is not None:
            parameters["epsilon"] = self.server_adam_epsilon
        rates = (
            self.client_learning_rate or client.learning_rate,
            self.server_learning_rate or server.learning_rate,
        )
        return FedAvg(
            client_optimizer=dataclasses.replace(client, learning_rate=rates[0]),
            server_optimizer=OptimizerConfig(server.name, rates[1], parameters),
            train_epochs=clusters.train_epochs,
            train_batch_size=clusters.train_batch_size,
            train_steps=clusters.train_steps,
        )


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

    algorithm: FedAvg = FedAvg()
    personalization: FineTuning | KnnPer | None = None
    loop: LoopConfig = LoopConfig()
    backend: BackendConfig = BackendConfig()
    initial_models: tuple[str, ...] = ()
    warm_start: WarmStartConfig = WarmStartConfig()
    straggler_rate: float = option(
        0.0,
        "Probability that a client of a cohort has time for a random share of its training steps "
        "only",
        upper=1,
    )
    attack: attacks.Attack | None = option(
        None,
        "Training clients that attack, the same ones in all rounds: label_flip:SHARE, "
        "sign_flip:SHARE:FACTOR",
        parse=attacks.parse,
    )
    export_scores: bool = option(
        False,
        "Also write scores of every example: for tasks of up to 100 classes, scores.csv has its "
        "label and both models' scores",
        everyday="output",
    )
    tensorboard: bool = option(False, "Also write TensorBoard scalars", everyday="output")

    @property
    def training(self) -> Training:
        """What trains the models."""
        if self.loop.total_rounds:
            return "federated"
        if self.warm_start.total_rounds:
            return "ensemble"
        return "given" if self.initial_models else "local"

    def check(self) -> None:
        """Raises a UserError if its parts contradict each other."""
        self.algorithm.check()
        self.algorithm.check_rounds(self.loop.total_rounds)
        self.loop.check()
        if self.personalization is not None:
            self.personalization.check(self.training)
        self.backend.check()
        name = errors.name("initial_models", "path_to_initial_model_weights_list")
        number, clusters = len(self.initial_models), self.algorithm.num_models
        if number and clusters is not None and number != clusters:
            expected = f"{errors.name('num_clusters')}={clusters} models, found {number}"
            raise UserError(name, self.initial_models, expected)
        if number and clusters is not None and self.warm_start.initialization == "updates":
            start = options.name_of(self.warm_start, "initialization")
            raise UserError(start, "updates", f"no {name}, as it makes all models from one")
        self.algorithm.check_beside(self.backend.aggregator, self.attack is not None)
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
        """Returns how clients' models are made and scored, given the built algorithm, which is not
        `scheduled` yet.
        """
        if self.personalization is not None:
            return self.personalization.build(task)
        personalization = self.algorithm.personalization(task, built)
        assert personalization is not None  # `defaults.resolve` gave one where it has none.
        if self.round_rates is None:
            return personalization
        return rate_schedules.unscheduled(personalization)

    def scheduled(self, built: algorithm_lib.Algorithm) -> algorithm_lib.Algorithm:
        """Returns the algorithm at the rates of each round."""
        return rate_schedules.scheduled(built, self.round_rates)

    @property
    def round_rates(self) -> rate_schedules.RoundRates | None:
        """The rates of each round, if they change."""
        return self.algorithm.round_rates(self.loop.total_rounds)

    @property
    def algorithm_name(self) -> str:
        """What the tables' `algorithm` column says."""
        name = name_of(type(self.algorithm))
        if self.personalization is None:
            return name
        personalization = name_of(type(self.personalization))
        if self.training == "federated":
            return name if personalization == "none" else f"{name}+{personalization}"
        # Without rounds there is no training to name: fine-tuning of new weights is local training.
        tuning = "finetuning" if personalization == "none" else personalization
        return "local" if tuning == "finetuning" and self.training == "local" else tuning


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
