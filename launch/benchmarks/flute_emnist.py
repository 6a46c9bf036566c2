"""FLUTE's published run: rounds of 10 of EMNIST's 3,400 writers, with the real sizes, batch 20.

FLUTE (Dimitriadis et al. 2022, arXiv 2203.13789) publishes 8 min 22 s for 1,500 of them on four GPU
processes. Images are noise, which does not matter to a clock; no evaluations are run in between.
"""

import contextlib
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from launch.benchmarks import emnist_cnn, population, rounds
from launch.benchmarks.measuring import Contender, Plan, Sizes
from motley_tff.backends import base
from motley_tff.core import clients, random_streams, task as task_lib

_LEARNING_RATE = 0.1
_FILE_NAME = "emnist_client_sizes_train.csv"
_CLIENTS, _POOL_SIZE = 3_400, 2_000


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure."""
    measured = min(sizes.flute_measured_rounds, sizes.flute_rounds)
    task, source = _task(sizes)
    training = rounds.Training(task, _LEARNING_RATE, sizes.emnist_batch_size)
    title = (
        f"{sizes.flute_rounds:,} FedAvg rounds of the EMNIST CNN, {sizes.flute_clients} of "
        f"{len(task.train):,} clients each, sizes {source}, batch {sizes.emnist_batch_size}"
    )
    name, backend = rounds.sequential_backend(threads)
    process = backend.training(task, training.algorithm)
    plan = [
        rounds.sampled(task.train, sizes.flute_clients, r) for r in range(1, sizes.flute_rounds + 1)
    ]
    scale = sizes.flute_rounds / measured
    yield Plan(title, [Contender(name, lambda n: _train(process, plan[:n]), measured, scale)])


def _train(process: base.TrainingProcess, plan: Sequence[base.Round]) -> dict[str, float]:
    losses: list[float] = []
    process.run(process.initialize(), plan, lambda r, _: losses.append(r.means["loss"]))
    return {"loss of the last round": losses[-1]}


def _task(sizes: Sizes) -> tuple[task_lib.Task, str]:
    """Returns (EMNIST's task on images out of one pool, where the clients' sizes are from)."""
    path = pathlib.Path(sizes.data_dir or "") / "client_sizes" / _FILE_NAME
    if sizes.data_dir and path.exists():
        client_sizes, source = population.read_client_sizes([path]), "as they are"
    else:
        drawn, source = population.draw_client_sizes(None, _CLIENTS)
        client_sizes = np.minimum(drawn, _POOL_SIZE).tolist()
    rng = random_streams.generator(rounds.SEED, "synthetic_data", 0)
    pool = emnist_cnn.examples(0, 0, max(_POOL_SIZE, *client_sizes))
    # Views: that many images would take half a gigabyte.
    starts = [int(rng.integers(len(pool["label"]) - n + 1)) for n in client_sizes]
    train = {
        f"{i:04d}": {"train": {name: values[start : start + n] for name, values in pool.items()}}
        for i, (start, n) in enumerate(zip(starts, client_sizes, strict=True))
    }
    return emnist_cnn.task_of(clients.InMemoryClients(train)), source
