"""The one experiment loop: train in rounds, evaluate, checkpoint, and leave the tables.

Everything a round does depends on the seed and the round's number alone, so a run that is cut and
resumed from a checkpoint writes the same bytes as one that was not (times aside). `schedule` says
what is due and on whom, `Recorder` writes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from motley_tff.backends import base
from motley_tff.core import errors, options, random_streams
from motley_tff.core.algorithm import NO_BYTES, Algorithm, Bytes, Personalization
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task
from motley_tff.evaluation import acceptance, parts
from motley_tff.evaluation.evaluator import Evaluator
from motley_tff.experiment import schedule, summaries
from motley_tff.experiment.config import LoopConfig
from motley_tff.experiment.progress import Progress, Silent
from motley_tff.experiment.recorder import Recorder
from motley_tff.experiment.run_directory import RunDirectory


class Experiment:
    """One run in one directory; a UserError if the settings do not fit the task.

    Args:
      directory: Where files go; held by this process.
      algorithm_name: What the tables' `algorithm` column says.
      bytes_before: What was communicated before the first round, in a warm start.
      write_scalars: Given `{name: mean}` and the round, after it and after its evaluation.
    """

    def __init__(
        self,
        config: LoopConfig,
        task: Task,
        algorithm: Algorithm,
        personalization: Personalization,
        backend: base.Backend,
        directory: RunDirectory,
        algorithm_name: str,
        progress: Progress | None = None,
        bytes_before: Bytes = NO_BYTES,
        write_scalars: Callable[[Mapping[str, float], int], None] = lambda values, number: None,
    ):
        check_config(config, task)
        self._config, self._task, self._algorithm = config, task, algorithm
        self._personalization, self._directory = personalization, directory
        self._progress, self._write_scalars = progress or Silent(), write_scalars
        self._recorder = Recorder(config, task, algorithm, directory, algorithm_name, bytes_before)
        self._process = backend.training(task, algorithm)
        self._evaluator = Evaluator(
            config.evaluation, backend, task, personalization, config.base_random_seed
        )
        self._state: Any = None
        self._done = 0

    def run(self) -> list[dict[str, str]]:
        """Trains and evaluates to the end, from the last checkpoint if there is one.

        An interruption (Ctrl-C, SIGTERM) while training leaves a checkpoint of the last whole round
        behind, if it is finite. Returns the last evaluation's rows of `summary.csv`, as text.
        """
        self._state, self._done = self._recorder.restore(self._process.initialize())
        self._progress.start("train", self._config.total_rounds, self._done)
        try:
            while True:
                self._do_what_is_due()
                if self._done == self._config.total_rounds:
                    break
                self._train_to(schedule.next_stop(self._config, self._done))
        except (KeyboardInterrupt, SystemExit):
            if self._is_finite():
                self._recorder.checkpoint(self._state, self._done)
            raise
        finally:
            self._recorder.close(self._done)
            self._progress.finish()
        return summaries.last(self._directory)

    def _do_what_is_due(self) -> None:
        """Exports, after the last round, and checkpoints and evaluates, if it is time and not yet
        done; UserError if the global model blew up in a server step, before it is saved.

        The checkpoint comes first: a run that is cut during a long evaluation then resumes with
        the evaluation.
        """
        config, done = self._config, self._done
        if not self._is_finite():
            rate = errors.name("server_optimizer.learning_rate", "server_learning_rate")
            found = "a global model that is not finite after the server's step"
            raise UserError(f"round {done}", found, "", f"lower {rate}; what was saved is kept")
        if not done and config.total_rounds:  # What a score of a trained model is seen beside.
            self._generate(0)
        if done == config.total_rounds:
            states = self._process.client_states(self._state)
            self._recorder.export(self._process.weights(self._state), states)
        if schedule.is_checkpoint_due(config, done):
            self._recorder.checkpoint(self._state, done)
        if schedule.is_evaluation_due(config, done) and done not in self._recorder.evaluated:
            self._recorder.flush_rounds(done)
            self._evaluate()

    def _is_finite(self) -> bool:
        """Returns whether the global model is; a new one (round 0) may be anything."""
        leaves = tf.nest.flatten(self._process.weights(self._state)) if self._done else ()
        return all(np.isfinite(leaf).all() for leaf in leaves)

    def _train_to(self, stop: int) -> None:
        def on_round(result: base.RoundResult, state: Any) -> None:
            self._recorder.add_round(result)
            if state is not None:
                self._state, self._done = state, result.number
            self._write_scalars({f"train/{n}": v for n, v in result.means.items()}, result.number)
            # Last: it raises if a signal asked for the end.
            self._progress.advance(loss=result.means["loss"])

        numbers = range(self._done + 1, stop + 1)
        rounds = [schedule.round_of(self._config, self._task, number) for number in numbers]
        self._process.run(self._state, rounds, on_round)

    def _evaluate(self) -> None:
        config, task, number = self._config, self._task, self._done
        ids = {s: schedule.evaluated(config, task, s, number) for s in parts.SPLITS}
        is_silo = task.setting == "cross_silo"
        # A silo is in both splits and scored once for both.
        total = len(ids["valid"]) if is_silo else sum(len(i) for i in ids.values())
        self._progress.start(f"evaluate round {number}", total * self._evaluator.num_evaluations)
        key = random_streams.key(config.base_random_seed, "personalization", number)
        scores, tables = self._evaluator.evaluate(
            *self._to_evaluate(), ids, key, self._progress.advance, self._recorder.blocks(number)
        )
        self._progress.finish()
        # Candidate 0 is the global model; a new one (round 0) may be anything.
        if number and not np.isfinite(scores["valid"].values[task.metric.name][:, 0]).any():
            found = f"a global model whose {task.metric.name} is not finite for any client"
            raise UserError(f"round {number}", found, "", "lower the learning rates")
        self._generate(number)
        self._recorder.add_evaluation(tables, number)
        for row in tables["summary"]:
            means = ("baseline_mean", "personalized_mean", "pct_clients_hurt")
            self._write_scalars({f"{row['split']}/{name}": row[name] for name in means}, number)

    def _generate(self, number: int) -> None:
        """Leaves pictures that the global model makes, if it makes some."""
        if self._task.generate is not None and (count := self._config.num_generated):
            weights = self._algorithm.global_model(self._process.weights(self._state))
            key = random_streams.key(self._config.base_random_seed, "generated", number)
            self._recorder.add_pictures(self._task.generate(weights, count, key), number)

    def _to_evaluate(self) -> tuple[Any, Mapping[str, Any] | None]:
        """Returns what the personalization gets: (weights, clients' states)."""
        weights = self._process.weights(self._state)
        if self._personalization.wants_server_weights:
            return weights, self._process.client_states(self._state) or None
        return self._algorithm.global_model(weights), None


def check_config(config: LoopConfig, task: Task) -> None:
    """Raises a UserError for settings that do not fit the task's clients."""
    size = config.clients_per_train_round
    if size is not None and size > len(task.train):
        expected = f"at most {len(task.train)}, the training clients of {task.dataset}"
        raise UserError(options.name_of(config, "clients_per_train_round"), size, expected)
    if config.dropout_rate and len(task.train) == 1:
        name, rate = options.name_of(config, "dropout_rate"), config.dropout_rate
        expected = f"0 with the one training client of {task.dataset}, who always answers"
        raise UserError(name, rate, expected, "leave it out")
    # Flags are parsed before the task's setting is known, and Python's callers pass no flags.
    for text in config.evaluation.acceptance:
        acceptance.parse(text, task.setting == "cross_silo")
    if config.evaluation.tuning == "per_client" and task.setting != "cross_silo":
        expected = f"silos with validation data of their own; {task.dataset} is cross-device"
        raise UserError("tuning=per_client", None, expected, "choose global")
