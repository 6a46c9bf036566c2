"""Where HypCluster's models come from: independent FedAvg runs, or clients' first updates.

Each model that is trained is kept in the run's directory, so that a run that is cut does not begin
again. `warm_start.csv` has what its rounds took.
"""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import threadpoolctl

from motley_tff.backends import base
from motley_tff.backends.base import Backend, ClientCall, Round, RoundResult
from motley_tff.core import random_streams
from motley_tff.core.algorithm import NO_BYTES, Algorithm, Bytes
from motley_tff.core.client_work import ClientWork
from motley_tff.core.task import Task
from motley_tff.experiment import recorder, schedule
from motley_tff.experiment.config import LoopConfig
from motley_tff.experiment.progress import Progress
from motley_tff.files import csv_files, model_files
from motley_tff.tables import columns

Weights = tuple[np.ndarray, ...]
# initial weights -> FedAvg
Build = Callable[[Weights], Algorithm]

# Clients whose updates are clustered, and the length of the sketch of an update. With 256 the noise
# of inner products, 1 / 16, hid what two languages' updates differ in, about 0.25.
_MAX_CLIENTS, _SKETCH = 400, 2**14
_SPREAD = 0.1


def random_models(task: Task, seed: int, k: int) -> list[Weights]:
    """Returns k models drawn independently.

    Architectures that start at zero (linear models) would make k equal ones; those are drawn from
    N(0, 0.1^2), as the silo code starts its clusters from weights that are not zero.
    """
    models = [task.model.initial_weights(seed, index) for index in range(k)]
    if k == 1 or any(np.any(a != b) for a, b in zip(models[0], models[1], strict=True)):
        return models
    return [
        tuple(
            random_streams.generator(seed, "initial_weights", j, 1 + i)
            .normal(0.0, _SPREAD, w.shape)
            .astype(np.float32)
            for i, w in enumerate(model)
        )
        for j, model in enumerate(models)
    ]


@dataclasses.dataclass
class WarmStart:
    """Trains what a clustering algorithm starts from.

    Attributes:
      build: Makes FedAvg.
      loop: The run's, of which the seed, the cohort's size and the dropout rate count.
      directory: Where trained models are kept.
      communicated: What all of it sent and received.
    """

    task: Task
    backend: Backend
    build: Build
    loop: LoopConfig
    directory: pathlib.Path
    progress: Progress
    communicated: Bytes = NO_BYTES

    def _count(self, algorithm: Algorithm, asked: int, answered: int) -> None:
        """Counts what so many clients get and send back, also where a model was kept."""
        down, up = algorithm.bytes_per_client
        before = self.communicated
        self.communicated = Bytes(before.down + down * asked, before.up + up * answered)

    def fedavg(self, initial: Sequence[Weights], num_rounds: int) -> list[Weights]:
        """Returns every model after its own FedAvg run, with cohorts and shuffles of its own."""
        if not num_rounds:
            return list(initial)
        return [self._train(j, weights, num_rounds) for j, weights in enumerate(initial)]

    def _train(self, j: int, initial: Weights, num_rounds: int) -> Weights:
        algorithm = self.build(initial)
        rounds = [self._round(j, number) for number in range(1, num_rounds + 1)]
        num_clients = len(self.task.train)
        asked = num_rounds * min(self.loop.clients_per_train_round or num_clients, num_clients)
        self._count(algorithm, asked, sum(len(round_.client_ids) for round_ in rounds))
        path = self.directory / f"warm_start_{j + 1}.npz"
        if path.exists():
            return model_files.load(str(path), self.task.model.shapes)
        process = self.backend.training(self.task, algorithm)
        self.progress.start(f"warm start of model {j + 1}", num_rounds)
        state, results = process.initialize(), []
        for call_rounds in base.by_call(rounds, process.rounds_per_call):
            state, new_results = process.next(state, call_rounds)
            results += new_results
            for result in new_results:
                self.progress.advance(loss=result.means["loss"])
        self.progress.finish()
        self._write(j + 1, algorithm, asked // num_rounds, results)
        weights = tuple(process.weights(state))
        model_files.save(path, self.task.model.names, weights)
        return weights

    def _write(
        self, model: int, algorithm: Algorithm, asked: int, results: Sequence[RoundResult]
    ) -> None:
        """Writes what a model's rounds took, in place of an earlier process's rows of it."""
        path, per_client = self.directory / "warm_start.csv", algorithm.bytes_per_client
        known = csv_files.read(path) if path.exists() else ()
        rows: list[Mapping[str, Any]] = [row for row in known if row["model"] != str(model)]
        keys = {"run_id": self.directory.name, "model": model}
        for result in results:
            sent = Bytes(per_client.down * asked, per_client.up * result.num_clients)
            cells = recorder.round_cells(result, sent, per_client)
            rows.append({**keys, "train_loss": result.means["loss"], **cells})
        csv_files.write(path, columns.names("warm_start"), rows)

    def _round(self, j: int, number: int) -> Round:
        seed, size = self.loop.base_random_seed, self.loop.clients_per_train_round
        stream = random_streams.generator(seed, "warm_start", 0, j, number)
        cohort = schedule.sample(self.task.train.ids, size, stream)
        stream = random_streams.generator(seed, "cohort_faults", 0, j, number)
        staying = schedule.remaining(cohort, self.loop.dropout_rate, stream)
        return Round(number, staying, random_streams.key(seed, "warm_start", 1, j, number))

    def split(
        self, weights: Weights, k: int, is_shared: Sequence[bool] | None = None
    ) -> list[Weights]:
        """Returns k models that groups of clients pull one model to.

        Ours, against mode collapse. Clients that learn alike change a model alike: their updates
        from the same model, scaled to length 1, are clustered by k-means++ (on random sketches of
        2^14 numbers), and each group's mean update is applied to the model. Leaves that `is_shared`
        marks (by default none) are common to all models: the mean update of all clients moves them.
        """
        seed, start = self.loop.base_random_seed, time.monotonic()
        stream = functools.partial(random_streams.generator, seed, "cluster_seeding")
        ids = schedule.sample(self.task.train.ids, _MAX_CLIENTS, stream(0), in_order=True)
        algorithm = self.build(weights)
        self._count(algorithm, len(ids), len(ids))
        paths = [self.directory / f"warm_start_cluster_{j + 1}.npz" for j in range(k)]
        if all(path.exists() for path in paths):
            return [model_files.load(str(path), self.task.model.shapes) for path in paths]
        from sklearn import cluster  # Takes 0.6 s.

        self.progress.start("updates to start clusters from", 2 * len(ids))
        sketches = np.stack([_sketch(update) for update in self._updates(weights, ids)])
        norms = np.linalg.norm(sketches, axis=1, keepdims=True)
        groups = cluster.KMeans(k, n_init=10, random_state=int(stream(1).integers(2**31)))
        # Threads may add up in another order each time, and a client between two groups change.
        with threadpoolctl.threadpool_limits(1):
            labels = groups.fit_predict(sketches / np.maximum(norms, 1e-12))
        totals = [[np.zeros(w.shape, np.float64) for w in weights] for _ in range(k)]
        for label, update in zip(labels, self._updates(weights, ids), strict=True):
            for total, change in zip(totals[label], update, strict=True):
                total += change
        self.progress.finish()
        counts = np.maximum(np.bincount(labels, minlength=k), 1)
        means = [[total / counts[j] for total in totals[j]] for j in range(k)]
        for i, shared in enumerate(is_shared or ()):
            if shared:
                overall = sum(total[i] for total in totals) / len(ids)
                for mean in means:
                    mean[i] = overall
        models = [
            tuple((w - m).astype(np.float32) for w, m in zip(weights, mean, strict=True))
            for mean in means
        ]
        took = RoundResult(1, len(ids), {"loss": np.nan}, time.monotonic() - start)
        self._write(0, algorithm, len(ids), [took])
        for path, model in zip(paths, models, strict=True):
            model_files.save(path, self.task.model.names, model)
        return models

    def _updates(self, weights: Weights, ids: tuple[str, ...]) -> Iterator[Weights]:
        work = _as_metrics(self.build(weights).work)
        key = random_streams.key(self.loop.base_random_seed, "cluster_seeding", 2)
        for _, update in self.backend.map_clients(
            ClientCall(self.task, work, weights, self.task.train, ids, key)
        ):
            self.progress.advance()
            yield update


def _as_metrics(work: ClientWork) -> ClientWork:
    """Returns the work with its update where an evaluation's results are."""

    def finish(carry):
        output = work.finish(carry)
        return output._replace(update=(), metrics=output.update)

    return dataclasses.replace(work, finish=finish)


def _sketch(update: Any) -> np.ndarray:
    """Returns a count sketch [2^14]: inner products of sketches are, on average, those of updates.

    Every number goes with a random sign into a random place; the same for all clients.
    """
    flat = np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in update])
    # A fixed stream: it says nothing of the run, and two runs' sketches can be compared.
    stream = random_streams.generator(0, "cluster_seeding", 3)
    places = stream.integers(_SKETCH, size=len(flat))
    signs = stream.integers(2, size=len(flat)) * 2 - 1
    return np.bincount(places, weights=signs * flat, minlength=_SKETCH)
