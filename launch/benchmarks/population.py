"""Rounds on a population of true size: start-up, seconds a round, and memory that must not grow.

Sizes are resampled from real ones. A graph makes a client's examples from its id, small ones, so
that finding, loading and forgetting clients is what counts.
"""

import contextlib
import gc
import math
import pathlib
import time
from collections.abc import Iterator

import numpy as np
import psutil
import tensorflow as tf

from datasets.kinds import silos
from datasets.models import linear
from launch.benchmarks import rounds
from launch.benchmarks.measuring import Contender, Plan, Sizes
from motley_tff.backends import base
from motley_tff.core import clients, errors, functional_model, random_streams, task as task_lib
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

_NUM_FEATURES = 8
_BATCH_SIZE = 20
_LEARNING_RATE = 0.01
# Of 247,069 real clients: EMNIST's and Landmarks' training ones, StackOverflow's held-out ones.
_MEAN_SIZE, _STD_SIZE = 137.0, 573.0
_MEGABYTE = 1e6


@contextlib.contextmanager
def population(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure; UserError if there is no round that memory could grow in."""
    if sizes.population_rounds <= (settled := sizes.population_settled_round):
        least = f"{errors.name('population_settled_round')}={settled}"
        expected = f"more than {least}, after which growth counts"
        raise UserError(errors.name("population_rounds"), sizes.population_rounds, expected)
    name, backend = rounds.sequential_backend(threads)
    resampled, source = draw_client_sizes(sizes.data_dir, sizes.population_clients)
    title = (
        f"{sizes.population_rounds} rounds of {sizes.population_cohort} clients out of "
        f"{sizes.population_clients:,}, sizes {source}, examples made from the client's id"
    )
    yield title, [Contender(name, lambda _: _run(sizes, resampled, backend), once=True)]


def draw_client_sizes(data_dir: str | None, number: int) -> tuple[np.ndarray, str]:
    """Returns (number of examples of each client, where they are from).

    The files `client_sizes/*.csv` in `data_dir` have it in their last column.
    """
    rng = random_streams.generator(rounds.SEED, "synthetic_data", 0)
    real: list[int] = []
    for path in sorted(pathlib.Path(data_dir, "client_sizes").glob("*.csv")) if data_dir else ():
        try:
            real.extend(int(list(row.values())[-1]) for row in csv_files.read(path))
        except ValueError as error:
            expected = f"whole numbers in the last column ({error})"
            raise UserError(str(path), None, expected) from error
    if real:
        return rng.choice(np.array(real), number), f"resampled from {len(real):,} real ones"
    variance = math.log(1 + (_STD_SIZE / _MEAN_SIZE) ** 2)
    drawn = rng.lognormal(math.log(_MEAN_SIZE) - variance / 2, math.sqrt(variance), number)
    return np.maximum(1, drawn.astype(np.int64)), "log-normal"


def _task(sizes: np.ndarray) -> task_lib.Task:
    """Returns a regression task with these numbers of examples of each client.

    A client's id says its number and its size; the held-out sets are of the first one.
    """
    ids = [f"{i:06d}_{size}" for i, size in enumerate(sizes)]

    def part(client_ids: list[str], *names: str) -> clients.Clients:
        return clients.InGraphClients(client_ids, lambda i: {name: _examples(i) for name in names})

    held_out = part(ids[:1], "personalization", "evaluation")
    return task_lib.Task(
        dataset="population",
        setting="cross_device",
        model=functional_model.from_keras(linear.Linear, np.zeros((1, _NUM_FEATURES), np.float32)),
        loss=silos.squared_error,
        metrics=(task_lib.Metric("squared_error", silos.squared_error, higher_is_better=False),),
        preprocess=lambda examples, training, key: (examples["x"], examples["y"]),
        train=part(ids, "train"),
        valid=held_out,
        test=held_out,
    )


def _examples(client_id: tf.Tensor) -> dict[str, tf.Tensor]:
    parts = tf.strings.to_number(tf.strings.split([client_id], "_").values, tf.int32)
    number, size = tf.unstack(parts, num=2)
    seed = tf.stack([number, 0])
    x = tf.random.stateless_uniform([size, _NUM_FEATURES], seed, alg="philox")
    return {"x": x, "y": tf.reduce_sum(x, axis=1)}


def _run(sizes: Sizes, client_sizes: np.ndarray, backend: base.Backend) -> dict[str, float]:
    """Runs all rounds; returns times in seconds and resident memory in megabytes."""
    begin = time.perf_counter()
    task = _task(client_sizes)
    algorithm = rounds.Setup(task, _LEARNING_RATE, _BATCH_SIZE).algorithm
    process = backend.training(task, algorithm)
    state, ids = process.initialize(), task.train.ids
    seconds: list[float] = []
    memory: list[float] = []
    start_up = 0.0
    for number in range(1, sizes.population_rounds + 1):
        rng = random_streams.generator(rounds.SEED, "client_sampling", number)
        chosen = rng.choice(len(ids), min(sizes.population_cohort, len(ids)), replace=False)
        key = random_streams.key(rounds.SEED, "local_training", number)
        drawn = base.Round(number, tuple(ids[i] for i in chosen), key)
        state, (result,) = process.next(state, [drawn])
        seconds.append(result.seconds)
        start_up = start_up or time.perf_counter() - begin
        gc.collect()
        memory.append(psutil.Process().memory_info().rss / _MEGABYTE)
    settled = sizes.population_settled_round
    at_first = memory[settled - 1]
    return {
        "start-up with the first round, s": start_up,
        "a round, median s": float(np.median(seconds)),
        f"resident after round {settled}, MB": at_first,
        f"resident after round {len(memory)}, MB": memory[-1],
        "growth, MB": memory[-1] - at_first,
        "largest growth, MB": max(memory[settled - 1 :]) - at_first,
    }
