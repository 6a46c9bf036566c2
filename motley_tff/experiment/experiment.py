"""The one experiment loop: train in rounds, evaluate, checkpoint, and leave the tables.

Everything a round does depends on the seed and the round's number alone, so a run that is cut and
resumed from a checkpoint writes the same bytes as one that was not (times aside).
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from motley_tff.backends import base
from motley_tff.core import algorithm as algorithm_lib
from motley_tff.core import random_streams, signals
from motley_tff.core import task as task_lib
from motley_tff.core.errors import UserError
from motley_tff.experiment import (
    checkpoints,
    client_scores,
    cohorts,
    evaluation,
    run_directory,
    score_blocks,
    summaries,
)
from motley_tff.experiment import progress as progress_lib
from motley_tff.experiment import studies as studies_lib
from motley_tff.experiment.config import LoopConfig
from motley_tff.files import csv_files, model_files
from motley_tff.tables import columns


class Experiment:
    """One run in one directory.

    Args:
      config: The loop's settings.
      task: The task.
      algorithm: Trains the global model.
      personalization: Scores candidates on each client.
      backend: Runs both.
      directory: Where files go; held by this process.
      algorithm_name: What the tables' `algorithm` column says.
      progress: Told what happens.
      bytes_before: What was communicated before the first round, in a warm start.
      release: Given each round's training means and each evaluation's means, for TensorBoard.

    Raises:
      UserError: If the settings do not fit the task.
    """

    def __init__(
        self,
        config: LoopConfig,
        task: task_lib.Task,
        algorithm: algorithm_lib.Algorithm,
        personalization: algorithm_lib.Personalization,
        backend: base.Backend,
        directory: run_directory.RunDirectory,
        algorithm_name: str,
        progress: progress_lib.Progress | None = None,
        bytes_before: algorithm_lib.Bytes = algorithm_lib.NO_BYTES,
        release: Callable[[Mapping[str, float], int], None] = lambda values, number: None,
    ):
        self._config, self._task, self._algorithm = config, task, algorithm
        self._personalization = personalization
        self._directory = directory
        self._progress = progress or progress_lib.Silent()
        self._bytes_before = bytes_before
        self._release = release
        self._run = {
            "run_id": directory.run_id,
            "dataset": task.dataset,
            "algorithm": algorithm_name,
            "base_random_seed": config.base_random_seed,
        }
        check_config(config, task)
        self._process = backend.training(task, algorithm)
        self._studies = studies_lib.Studies(
            config.evaluation, backend, task, personalization, config.base_random_seed
        )
        self._round_rows: list[dict[str, Any]] = []
        self._state: Any = None
        self._done = 0
        self._evaluated: set[int] = set()

    def run(self) -> list[dict[str, str]]:
        """Trains and evaluates to the end, from the last checkpoint if there is one.

        An interruption (Ctrl-C, SIGTERM) while training leaves a checkpoint of the last whole
        round behind.

        Returns:
          The rows of the last evaluation in `summary.csv`, as text.
        """
        self._restore()
        self._progress.start("train", self._config.total_rounds, self._done)
        try:
            while True:
                self._do_what_is_due()
                if self._done == self._config.total_rounds:
                    break
                self._train_to(self._next_stop())
        except (KeyboardInterrupt, SystemExit):
            self._checkpoint()
            raise
        finally:
            self._flush_rounds()
            self._progress.finish()
        return summaries.last(self._directory)

    def _do_what_is_due(self) -> None:
        """Checkpoints and evaluates after the round just done, if it is time and not yet done.

        The checkpoint comes first: a run that is cut during a long evaluation then resumes with
        the evaluation.
        """
        is_last = self._done == self._config.total_rounds
        self._check_model()
        if is_last:
            self._export()
        if is_last or self._done % self._config.rounds_per_checkpoint == 0:
            self._checkpoint()
        # An untrained model is looked at where there is no other: with no rounds at all.
        is_period = self._done > 0 and self._done % self._config.rounds_per_evaluation == 0
        is_due = is_last or is_period
        if is_due and self._done not in self._evaluated:
            self._flush_rounds()
            self._evaluate()

    def _check_model(self) -> None:
        """Stops a run whose global model blew up in a server step, before it is saved."""
        if self._done and not _is_finite(self._process.weights(self._state)):
            raise UserError(
                f"round {self._done}: the global model is not finite after the server's step; "
                "what was saved before is kept. Lower --server_learning_rate"
            )

    def _checkpoint(self) -> None:
        self._flush_rounds()
        if self._done and self._done not in checkpoints.rounds(self._directory.checkpoints):
            checkpoints.save(self._directory.checkpoints, self._done, self._state)

    def _restore(self) -> None:
        """Takes up the last checkpoint and drops what the tables say of later rounds."""
        self._state, self._done = self._process.initialize(), 0
        saved = checkpoints.rounds(self._directory.checkpoints)
        checkpoints.forget_old(self._directory.checkpoints)
        if saved:
            self._done = saved[-1]
            if self._done > self._config.total_rounds:
                raise UserError(
                    f"{self._directory.checkpoints} holds round {self._done}, past "
                    f"--total_rounds={self._config.total_rounds}; choose another --experiment_name"
                )
            self._state = checkpoints.load(self._directory.checkpoints, self._done, self._state)
        tables = {name: self._directory.table(name) for name in columns.EVALUATION_TABLES}
        csv_files.keep_rounds(self._directory.table("rounds"), self._done)
        csv_files.keep_rounds(tables["summary"], self._done)
        self._evaluated = csv_files.rounds(tables["summary"])
        # The summary is written last: without it an evaluation is not whole.
        for path in tables.values():
            csv_files.keep_rounds(path, max(self._evaluated, default=-1))
        score_blocks.forget(self._directory.path, self._evaluated)

    def _next_stop(self) -> int:
        """Returns the next round after which something else than training happens."""
        periods = (self._config.rounds_per_evaluation, self._config.rounds_per_checkpoint)
        return min(self._config.total_rounds, *((self._done // p + 1) * p for p in periods))

    def _train_to(self, stop: int) -> None:
        def on_round(result: base.RoundResult, state: Any) -> None:
            self._round_rows.append(self._round_row(result))
            if state is not None:
                self._state, self._done = state, result.number
            self._release({f"train/{n}": v for n, v in result.means.items()}, result.number)
            self._progress.advance(loss=result.means["loss"])  # Where Ctrl-C comes out.

        rounds = [self._round(number) for number in range(self._done + 1, stop + 1)]
        self._process.run(self._state, rounds, on_round)

    def _round(self, number: int) -> base.Round:
        ids = self._task.train.ids
        size = self._config.clients_per_train_round
        if size is not None and size < len(ids):
            seed = self._config.base_random_seed
            stream = random_streams.generator(seed, "client_sampling", number)
            ids = tuple(ids[i] for i in stream.choice(len(ids), size, replace=False))
        stream = random_streams.generator(self._config.base_random_seed, "cohort_faults", number)
        staying = cohorts.remaining(ids, self._config.dropout_rate, stream)
        return base.Round(number, staying, self._key("local_training", number))

    def _key(self, stream: str, number: int) -> np.ndarray:
        return random_streams.key(self._config.base_random_seed, stream, number)

    def _round_row(self, result: base.RoundResult) -> dict[str, Any]:
        down, up = self._algorithm.bytes_per_client
        return {
            "run_id": self._directory.run_id,
            "round": result.number,
            "num_clients": result.num_clients,
            **{self._round_column(name): result.means[name] for name in self._round_means()},
            "seconds": result.seconds,
            "bytes_down": down * (self._config.clients_per_train_round or len(self._task.train)),
            "bytes_up": up * result.num_clients,
        }

    def _round_means(self) -> tuple[str, ...]:
        return ("loss", self._task.metric.name, *self._algorithm.shares)

    def _round_column(self, name: str) -> str:
        return name if name in self._algorithm.shares else f"train_{name}"

    def _flush_rounds(self) -> None:
        names = columns.names(
            "rounds",
            metric=[self._task.metric.name],
            i=[share.split("_")[1] for share in self._algorithm.shares],
        )
        rows = [row for row in self._round_rows if row["round"] <= self._done]
        with signals.held():  # Cut in two, rows would be lost, or written twice.
            csv_files.append(self._directory.table("rounds"), names, rows)
            self._round_rows = []

    def _evaluate(self) -> None:
        number = self._done
        ids = {split: self._sample(split, number) for split in client_scores.SPLITS}
        silo = self._task.setting == "cross_silo"
        total = len(ids["valid"]) if silo else sum(len(i) for i in ids.values())
        self._progress.start(f"evaluate round {number}", total * self._studies.num_evaluations)
        key = self._key("personalization", number)
        scores, tables = self._studies.evaluate(
            *self._to_evaluate(), ids, key, self._progress.advance,
            score_blocks.ScoreBlocks(self._directory.path, number),
        )  # fmt: skip
        self._progress.finish()
        if number and not np.isfinite(scores["valid"].values[self._task.metric.name][:, 0]).any():
            raise UserError(
                f"round {number}: the global model's {self._task.metric.name} is not finite for "
                "any client; lower the learning rates"
            )
        sent = self._bytes_so_far()
        for row in tables["summary"]:
            row |= {"bytes_down_total": sent.down, "bytes_up_total": sent.up}
        self._append_tables(tables, number)
        self._evaluated.add(number)
        score_blocks.forget(self._directory.path, self._evaluated)
        for row in tables["summary"]:
            means = ("baseline_mean", "personalized_mean", "pct_clients_hurt")
            self._release({f"{row['split']}/{name}": row[name] for name in means}, number)

    def _bytes_so_far(self) -> algorithm_lib.Bytes:
        """Returns what all rounds so far communicated, and the warm start before them."""
        path = self._directory.table("rounds")
        rows = list(csv_files.read(path)) if path.exists() else []
        return algorithm_lib.Bytes(
            self._bytes_before.down + sum(int(row["bytes_down"]) for row in rows),
            self._bytes_before.up + sum(int(row["bytes_up"]) for row in rows),
        )

    def _to_evaluate(self) -> tuple[Any, Mapping[str, Any] | None]:
        """Returns what the personalization gets: (weights, clients' states)."""
        weights = self._process.weights(self._state)
        if self._personalization.wants_server_weights:
            return weights, self._process.client_states(self._state) or None
        return self._algorithm.global_model(weights), None

    def _append_tables(
        self, tables: Mapping[str, Iterable[Mapping[str, Any]]], number: int
    ) -> None:
        keys = {**self._run, "round": number}
        placeholders = columns.of_task(
            self._task.setting,
            [metric.name for metric in self._task.metrics[1:]],
            bool(self._config.evaluation.ood_examples),
        )
        for name in columns.EVALUATION_TABLES:
            names = columns.names(name, **placeholders)
            keys_of_table = {key: value for key, value in keys.items() if key in names}
            rows = iter(tables[name])
            first = next(rows, None)
            if first is not None:  # A table that has nothing to say is not written.
                full = ({**keys_of_table, **row} for row in itertools.chain([first], rows))
                path = self._directory.table(name)
                csv_files.append(path, names, full, columns.OPTIONAL)

    def _sample(self, split: str, number: int) -> Sequence[str]:
        """Returns the clients to evaluate: a sample while training, all at the end."""
        ids = self._task.splits[split].ids
        config = self._config
        size = {
            "valid": config.valid_clients_per_evaluation,
            "test": config.test_clients_per_evaluation,
        }[split]
        if number == config.total_rounds:
            size = config.final_evaluation_clients or len(ids)
        if self._task.setting == "cross_silo" or size >= len(ids):
            return ids
        stream = random_streams.generator(
            config.base_random_seed,
            "evaluation_sampling",
            number,
            client_scores.SPLITS.index(split),
        )
        return tuple(ids[i] for i in sorted(stream.choice(len(ids), size, replace=False)))

    def _export(self) -> None:
        server = self._process.weights(self._state)
        names = self._task.model.names
        model_files.save(
            self._directory.path / model_files.FILE_NAME,
            names,
            self._algorithm.global_model(server),
        )
        if self._algorithm.cluster_models is not None:
            for j, model in enumerate(self._algorithm.cluster_models(server), 1):
                path = self._directory.path / model_files.CLUSTER_FILE_NAME.format(j)
                model_files.save(path, names, model)
        states = self._process.client_states(self._state)
        if self._algorithm.personal_model is not None:
            models = {i: self._algorithm.personal_model(server, s) for i, s in states.items()}
            path = self._directory.path / model_files.PERSONAL_FILE_NAME
            model_files.save_personal(path, names, models)
        if self._algorithm.matrices is not None:
            in_order = [states[client_id] for client_id in self._task.train.ids]
            for name, matrix in self._algorithm.matrices(in_order).items():
                self._write_matrix(name, matrix)

    def _write_matrix(self, name: str, matrix: np.ndarray) -> None:
        """Writes a matrix over the training clients, a row and a column each."""
        ids = [evaluation.client_cell(self._task, i) for i in self._task.train.ids]
        rows = (
            {"client_id": mine, **dict(zip(ids, row, strict=True))}
            for mine, row in zip(ids, matrix, strict=True)
        )
        csv_files.write(self._directory.table(name), ("client_id", *ids), rows)


def check_config(config: LoopConfig, task: task_lib.Task) -> None:
    """Checks settings against the task's clients.

    Raises:
      UserError: If a round asks for more clients than there are, the only one could drop out, or a
        per-client choice for clients that have no validation data of their own.
    """
    size = config.clients_per_train_round
    if size is not None and size > len(task.train):
        raise UserError(
            f"--clients_per_train_round={size} but {task.dataset} has {len(task.train)} training "
            "clients; give at most that many"
        )
    if config.dropout_rate and len(task.train) == 1:
        raise UserError(
            f"--dropout_rate={config.dropout_rate:g} but {task.dataset} has one training client, "
            "who always answers; leave it out"
        )
    studies_lib.check(config.evaluation, task)
    if config.evaluation.tuning == "per_client" and task.setting != "cross_silo":
        raise UserError(
            "choosing per_client needs silos with validation data of their own; "
            f"{task.dataset} is cross-device, choose global"
        )


def _is_finite(weights: Any) -> bool:
    return all(np.isfinite(leaf).all() for leaf in tf.nest.flatten(weights))
