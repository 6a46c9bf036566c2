"""Evaluates after a round: the clients' scores, and whether the global model is finite."""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from motley_tff.backends import base
from motley_tff.core import errors, random_streams
from motley_tff.core.algorithm import Algorithm, Personalization
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task
from motley_tff.evaluation import parts
from motley_tff.evaluation.evaluator import Evaluator
from motley_tff.evaluation.saved_scores import SavedScores
from motley_tff.experiment import schedule
from motley_tff.experiment.checkpoints import Trained
from motley_tff.experiment.config import LoopConfig
from motley_tff.experiment.progress import Progress

# {table: rows without the keys of the run}
Tables = Mapping[str, Iterable[dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class RoundEvaluator:
    """Evaluates a run's models after a round.

    Attributes:
      process: What trains them.
      folder: The run's, where the scores of batches of clients are saved.
    """

    config: LoopConfig
    task: Task
    algorithm: Algorithm
    personalization: Personalization
    process: base.TrainingProcess
    evaluator: Evaluator
    folder: pathlib.Path
    progress: Progress

    def evaluate(self, trained: Trained) -> tuple[Tables, np.ndarray | None]:
        """Returns the tables of the clients that are due after a round, and `pictures`.

        Raises:
          UserError: If the global model is finite for no client.
        """
        config, task, number = self.config, self.task, trained.num_rounds
        ids = {s: schedule.evaluated(config, task, s, number) for s in parts.SPLITS}
        is_silo = task.setting == "cross_silo"
        # A silo is in both splits and scored once for both.
        total = len(ids["valid"]) if is_silo else sum(len(i) for i in ids.values())
        self.progress.start(f"evaluate round {number}", total * self.evaluator.num_evaluations)
        weights, client_states = self.process.weights(trained.state), None
        if self.personalization.wants_server_weights:
            states, own = self.process.client_states(trained.state), self.algorithm.own_state
            client_states = {i: own(state) for i, state in states.items()} or None
        else:
            weights = self.algorithm.global_model(weights)
        key = random_streams.key(config.base_random_seed, "personalization", number)
        saved = SavedScores(self.folder, number)
        scores, tables = self.evaluator.evaluate(
            weights, client_states, ids, key, self.progress.advance, saved,
            schedule.evaluations(config, number),
        )  # fmt: skip
        self.progress.finish()
        # Candidate 0 is the global model; a new one (round 0) may be anything.
        if number and not np.isfinite(scores["valid"].values[task.metric.name][:, 0]).any():
            model = f"a global model whose {task.metric.name} is not finite for any client"
            raise UserError(f"round {number}", model, "", "lower the learning rates")
        return tables, self.pictures(trained)

    def pictures(self, trained: Trained) -> np.ndarray | None:
        """Returns pictures that the global model makes; None if it makes none."""
        if self.task.generate is None or not self.config.num_generated:
            return None
        weights = self.algorithm.global_model(self.process.weights(trained.state))
        key = random_streams.key(self.config.base_random_seed, "generated", trained.num_rounds)
        return self.task.generate(weights, self.config.num_generated, key)

    def is_finite(self, trained: Trained) -> bool:
        """Returns whether the global model is; a new one (round 0) may be anything."""
        leaves = tf.nest.flatten(self.process.weights(trained.state)) if trained.num_rounds else ()
        return all(np.isfinite(leaf).all() for leaf in leaves)

    def check_finite(self, trained: Trained) -> None:
        """Raises a UserError if the global model blew up in a server step."""
        if not self.is_finite(trained):
            rate = errors.name("server_optimizer.learning_rate", "server_learning_rate")
            model = "a global model that is not finite after the server's step"
            advice = f"lower {rate}; what was saved is kept"
            raise UserError(f"round {trained.num_rounds}", model, "", advice)
