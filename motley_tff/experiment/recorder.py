"""What a run writes: rounds, evaluations, checkpoints and models, in one directory."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np

from motley_tff.backends import base
from motley_tff.core import candidates, errors, options, signals
from motley_tff.core.algorithm import Algorithm, Bytes
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task
from motley_tff.evaluation import evaluate, saved_scores
from motley_tff.experiment import checkpoints, schedule
from motley_tff.experiment.checkpoints import Trained
from motley_tff.experiment.config import LoopConfig
from motley_tff.experiment.round_evaluator import Tables
from motley_tff.experiment.run_directory import RunDirectory
from motley_tff.files import array_files, csv_files, model_files, picture_grids
from motley_tff.tables import columns

# ({name: mean}, round) -> scalars for TensorBoard
WriteScalars = Callable[[Mapping[str, float], int], None]
# rounds -> epsilon, None where there is no number
CountEpsilon = Callable[[int], float | None]


def round_cells(result: base.RoundResult, sent: Bytes, largest: Bytes) -> dict[str, Any]:
    """Returns what a table says of a round: its clients, times, bytes, and one client's most."""
    return {
        "round": result.number,
        "num_clients": result.num_clients,
        "seconds": result.seconds,
        "slowest_client_seconds": result.slowest_client_seconds,
        "server_seconds": result.server_seconds,
        "bytes_down": sent.down,
        "bytes_up": sent.up,
        "largest_bytes_down": largest.down,
        "largest_bytes_up": largest.up,
    }


class Recorder:
    """Writes one run's files, and takes them up where an earlier process left them.

    `bytes_before` is what was communicated before the first round, in a warm start. The tables
    have the evaluations after the rounds in `evaluated`; those of one evaluation are written while
    training goes on, and before the next checkpoint or evaluation is. A UserError there is raised
    by the next method that writes.
    """

    def __init__(
        self,
        config: LoopConfig,
        task: Task,
        algorithm: Algorithm,
        process: base.TrainingProcess,
        directory: RunDirectory,
        algorithm_name: str,
        bytes_before: Bytes,
        write_scalars: WriteScalars | None = None,
        epsilon: CountEpsilon | None = None,
    ):
        self._config, self._task, self._algorithm = config, task, algorithm
        self._process = process
        self._directory, self._bytes_before = directory, bytes_before
        self._write_scalars = write_scalars or (lambda means, number: None)
        self._keys = {
            "run_id": directory.run_id,
            "dataset": task.dataset,
            "algorithm": algorithm_name,
            "base_random_seed": config.base_random_seed,
        }
        self._epsilon = epsilon
        self._round_rows: list[dict[str, Any]] = []
        self._writer = futures.ThreadPoolExecutor(max_workers=1)
        self._written: futures.Future[int] | None = None
        self.evaluated: set[int] = set()
        # The rows of `summary.csv` so far, as text.
        self._summary: list[dict[str, str]] = []
        # The last round of each client that got the model, and up to which one that is known.
        self._last: dict[str, int] = {}
        self._counted = 0

    def restore(self, state: Any) -> Trained:
        """Returns the last checkpoint, and drops what tables say of later rounds.

        `state`, that before the first round, is returned if there is no checkpoint. Of a run whose
        rounds were raised the evaluation at the former end is dropped, too, and made again if it is
        due: it was of all clients.
        """
        folder, done = self._directory.checkpoints, 0
        saved = checkpoints.rounds(folder)
        checkpoints.forget_old(folder)
        if saved:
            done = saved[-1]
            if done > self._config.total_rounds:
                name = options.name_of(self._config, "total_rounds")
                expected = f"at least {done}, the last of {folder}"
                advice = f"choose another {errors.name('experiment_name')}"
                raise UserError(name, self._config.total_rounds, expected, advice)
            state = checkpoints.load(folder, done, state)
        tables = {name: self._directory.table(name) for name in columns.EVALUATION_TABLES}
        csv_files.keep_rounds(self._directory.table("rounds"), done)
        end = self._directory.record.get("raised_from")
        csv_files.keep_rounds(tables["summary"], done if end is None else min(done, end - 1))
        self.evaluated = csv_files.rounds(tables["summary"])
        if self.evaluated:
            self._summary = list(csv_files.read(tables["summary"]))
        # The summary is written last: without it an evaluation is not whole.
        for path in tables.values():
            csv_files.keep_rounds(path, max(self.evaluated, default=-1))
        saved_scores.forget(self._directory.path, self.evaluated)
        if end is not None:
            self._directory.write_record(raised_from=None)
        return Trained(state, done)

    @property
    def is_over(self) -> bool:
        """Whether training ends, as so many evaluations brought nothing better."""
        return schedule.is_over(self._config, self._task, self._summary)

    def add_rounds(self, results: Sequence[base.RoundResult]) -> None:
        """Takes note of rounds; the next checkpoint or evaluation writes them."""
        for result in results:
            self._round_rows.append({
                "run_id": self._directory.run_id,
                **{f"train_{n}": result.means[n] for n in ("loss", self._task.metric.name)},
                **{name: result.means[name] for name in self._algorithm.shares},
                **round_cells(result, *self._sent(result)),
                **(self._algorithm.rates(result.number) if self._algorithm.rates else {}),
                **self._spent(result.number),
            })  # fmt: skip
            means = {f"train/{name}": mean for name, mean in result.means.items()}
            self._write_scalars(means, result.number)

    def _spent(self, number: int) -> dict[str, float | None]:
        """Returns the cell of a private mean's epsilon after a round; none with other means."""
        return {} if self._epsilon is None else {"epsilon": self._epsilon(number)}

    def _sent(self, result: base.RoundResult) -> tuple[Bytes, Bytes]:
        """Returns what a round's clients were sent and sent back, and the most that one was."""
        per_client = self._algorithm.bytes_per_client
        if (since := self._algorithm.bytes_since) is None:
            asked = self._config.clients_per_train_round or len(self._task.train)
            sent = Bytes(per_client.down * asked, per_client.up * result.num_clients)
            return sent, per_client
        cohort_of = functools.partial(schedule.cohort, self._config, self._task)
        for number in range(self._counted + 1, result.number):  # Those before a run was cut.
            self._last.update(dict.fromkeys(cohort_of(number), number))
        cohort = cohort_of(result.number)
        missed = [result.number - self._last[i] if i in self._last else None for i in cohort]
        self._last.update(dict.fromkeys(cohort, result.number))
        self._counted = result.number
        down, up = [since(n).down for n in missed], since(None).up
        return Bytes(sum(down), up * result.num_clients), Bytes(max(down), up)

    def _flush_rounds(self) -> None:
        clusters = [share.split("_")[1] for share in self._algorithm.shares]
        schedule_ = [""] if self._algorithm.rates else []
        private = [""] if self._epsilon else []
        metric = [self._task.metric.name]
        names = columns.names(
            "rounds", metric=metric, i=clusters, schedule=schedule_, private=private
        )
        rows = self._round_rows
        with signals.delay():  # Cut in two, rows would be lost, or written twice.
            path = self._directory.table("rounds")
            csv_files.append(path, names, rows, columns.OPTIONAL, columns.LATER)
            self._round_rows = []

    def checkpoint(self, trained: Trained) -> None:
        """Writes the rounds, and the state after the last if it is not there."""
        self._wait()
        self._flush_rounds()
        number, folder = trained.num_rounds, self._directory.checkpoints
        if number and number not in checkpoints.rounds(folder):
            checkpoints.save(folder, number, trained.state)

    def add_evaluation(self, trained: Trained, tables: Tables, pictures: np.ndarray | None) -> None:
        """Writes the rounds so far, and what an evaluation after the last gave; of a run that may
        stop early also the models, if they are the best so far.
        """
        number = trained.num_rounds
        self._wait()
        self._flush_rounds()
        self.add_pictures(number, pictures)
        # What all rounds communicated, and the warm start before them.
        path, before = self._directory.table("rounds"), self._bytes_before
        rounds = list(csv_files.read(path)) if path.exists() else []
        down = before.down + sum(int(row["bytes_down"]) for row in rounds)
        up = before.up + sum(int(row["bytes_up"]) for row in rounds)
        spent = self._spent(number)
        for row in tables["summary"]:
            row |= {"bytes_down_total": down, "bytes_up_total": up, **spent}
            texts = {name: csv_files.cell(value) for name, value in row.items()}
            self._summary.append({**texts, "round": str(number)})
        # Before the summary, without which the evaluation is made again.
        if self._config.stop_after is not None:
            best = candidates.best_round(self._summary, *self._task.chosen_by)
            if best == str(number):
                self.export(trained)
        self._written = self._writer.submit(self._write_evaluation, tables, number)
        for row in tables["summary"]:
            means = ("baseline_mean", "personalized_mean", "pct_clients_hurt")
            self._write_scalars({f"{row['split']}/{name}": row[name] for name in means}, number)

    def add_pictures(self, number: int, pictures: np.ndarray | None) -> None:
        """Writes what the model makes after a round, if any: the pictures, a grid of the first."""
        if pictures is None:
            return
        self._directory.generated.mkdir(exist_ok=True)
        path = self._directory.generated / f"round_{number:05d}.npz"
        array_files.save(path, {"images": pictures})
        grid = self._directory.figures / f"generated_{number:05d}.png"
        picture_grids.save(grid, pictures)

    def close(self) -> None:
        """Writes what is left: the last rounds and the last evaluation."""
        try:
            self._flush_rounds()
        finally:
            self._wait()
            self._writer.shutdown()

    def _wait(self) -> None:
        """Waits until the last evaluation is written."""
        if self._written is not None:
            written, self._written = self._written, None
            self.evaluated.add(written.result())
            saved_scores.forget(self._directory.path, self.evaluated)

    def _write_evaluation(self, tables: Tables, number: int) -> int:
        keys = {**self._keys, "round": number}
        placeholders = columns.of_task(
            self._task.setting,
            [metric.name for metric in self._task.metrics[1:]],
            bool(self._config.evaluation.ood_examples),
            self._task.exports_scores,
            [metric.name for metric in self._task.summarized],
        ) | {"private": [""] if self._epsilon else []}
        for name in columns.EVALUATION_TABLES:
            names = columns.names(name, **placeholders)
            keys_of_table = {key: value for key, value in keys.items() if key in names}
            without_keys = iter(tables[name])
            first = next(without_keys, None)
            if first is not None:  # A table that has nothing to say is not written.
                rows = itertools.chain([first], without_keys)
                full = ({**keys_of_table, **row} for row in rows)
                path = self._directory.table(name)
                csv_files.append(path, names, full, columns.OPTIONAL, columns.LATER)
        return number

    def export(self, trained: Trained) -> None:
        """Writes the models and matrices of a state."""
        process = self._process
        server, states = process.weights(trained.state), process.client_states(trained.state)
        folder, names = self._directory.path, self._task.model.names
        algorithm = self._algorithm
        states = {i: algorithm.own_state(state) for i, state in states.items()}
        model_files.save(folder / model_files.FILE_NAME, names, algorithm.global_model(server))
        if algorithm.cluster_models is not None:
            for j, model in enumerate(algorithm.cluster_models(server), 1):
                model_files.save(folder / model_files.CLUSTER_FILE_NAME.format(j), names, model)
        if algorithm.personal_model is not None:
            models = {i: algorithm.personal_model(server, s) for i, s in states.items()}
            model_files.save_personal(folder / model_files.PERSONAL_FILE_NAME, names, models)
        if algorithm.matrices is not None:
            in_order = [states[client_id] for client_id in self._task.train.ids]
            ids = [evaluate.client_cell(self._task, i) for i in self._task.train.ids]
            header = ("client_id", *ids)
            for name, matrix in algorithm.matrices(in_order).items():
                cells = ((client_id, *row) for client_id, row in zip(ids, matrix, strict=True))
                lines = (dict(zip(header, line, strict=True)) for line in cells)
                csv_files.write(self._directory.table(name), header, lines)
