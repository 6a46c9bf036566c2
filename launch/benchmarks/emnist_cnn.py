"""Rounds of the EMNIST CNN on made-up images: bare loop, sequential and TFF backend, stock TFF."""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from datasets import emnist
from launch.benchmarks import ALL_THREADS, rounds, stock, torch_process
from launch.benchmarks.measuring import Contender, Plan, Sizes
from motley_tff.backends.tff import backend as tff_backend
from motley_tff.backends.tff.runtime import tff_runtime
from motley_tff.core import clients, random_streams, task as task_lib
from motley_tff.core.lazy import tff

_LEARNING_RATE = 0.1


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure; stock TFF uses all threads, as it does by default."""
    task = create_task([sizes.emnist_images] * sizes.emnist_clients)
    training = rounds.Training(task, _LEARNING_RATE, sizes.emnist_batch_size)
    title = (
        f"one FedAvg round of the EMNIST CNN, {sizes.emnist_clients} clients x "
        f"{sizes.emnist_images} images, batch {sizes.emnist_batch_size}"
    )
    torch_python = sizes.torch_python if threads == ALL_THREADS else None
    with (
        tff_runtime(intra_op_threads=threads or None) as worker,
        torch_process.contenders(training, "EmnistCnn", torch_python) as torch,
    ):
        on_worker = [rounds.backend("tff", tff_backend.TffBackend(), training)]
        if threads == ALL_THREADS:
            on_worker.extend(_stock(training))
        on_worker = [contender._replace(worker_pids=(worker.pid,)) for contender in on_worker]
        yield Plan(title, [*rounds.sequential_only(training, threads), *on_worker, *torch])


def _stock(training: rounds.Training) -> Iterator[Contender]:
    train, rate = training.task.train, training.learning_rate
    batches = [stock.image_batches(train.fetch(i)["train"], training.batch_size) for i in train.ids]
    yield stock.fed_avg("defaults", stock.emnist_cnn, batches, rate)
    iterator = tff.learning.LoopImplementation.DATASET_ITERATOR
    yield stock.fed_avg(
        "dataset iterator", stock.emnist_cnn, batches, rate, loop_implementation=iterator
    )


def create_task(train_sizes: Sequence[int], held_out_sizes: Sequence[int] = (1,)) -> task_lib.Task:
    """Returns EMNIST's task on noise: what images show does not matter to a clock.

    Sizes are images of each client; a held-out one has as many to personalize on as to evaluate on.
    """
    train = {f"train_{i}": {"train": examples(0, i, n)} for i, n in enumerate(train_sizes)}
    return task_of(clients.InMemoryClients(train), held_out_sizes)


def task_of(train: clients.Clients, held_out_sizes: Sequence[int] = (1,)) -> task_lib.Task:
    """Returns EMNIST's task of these training clients and such held-out ones."""
    held_out = clients.InMemoryClients(
        {
            f"test_{i}": {"personalization": examples(1, i, n), "evaluation": examples(2, i, n)}
            for i, n in enumerate(held_out_sizes)
        }
    )
    sets = {"train": train, "valid": held_out, "test": held_out}
    return emnist.make_task(sets, emnist.NUM_CLASSES, {})


def examples(part: int, client: int, size: int) -> dict[str, np.ndarray]:
    """Returns so many images of noise and labels, other ones for each part and client."""
    rng = random_streams.generator(rounds.SEED, "synthetic_data", part, client)
    return {
        "pixels": rng.integers(0, 256, (size, 28, 28), dtype=np.uint8),
        "label": rng.integers(0, emnist.NUM_CLASSES, size).astype(np.int32),
    }
