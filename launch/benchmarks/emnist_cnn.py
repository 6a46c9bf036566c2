"""Rounds of the EMNIST CNN on made-up images: the bare loop, the backends, stock TFF."""

import contextlib
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from datasets import emnist
from launch.benchmarks import ALL_THREADS, rounds, stock
from launch.benchmarks.measuring import Contender, Plan
from launch.benchmarks.sizes import Sizes
from motley_tff.backends.tff import backend as tff_backend
from motley_tff.backends.tff import worker as tff_worker
from motley_tff.core import clients, random_streams
from motley_tff.core import task as task_lib
from motley_tff.core.lazy import tff

_LEARNING_RATE = 0.1
_NUM_CLASSES = 62


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure; stock TFF uses all threads, as it does by default."""
    task = create_task([sizes.emnist_images] * sizes.emnist_clients)
    training = rounds.Training(task, _LEARNING_RATE, sizes.emnist_batch_size)
    title = (
        f"one FedAvg round of the EMNIST CNN, {sizes.emnist_clients} clients x "
        f"{sizes.emnist_images} images, batch {sizes.emnist_batch_size}"
    )
    with tff_worker.tff_runtime(intra_op_threads=threads or None) as worker:
        listed = [
            *rounds.sequential_only(training, threads),
            rounds.backend("tff", tff_backend.TffBackend(), training, worker_pid=worker.pid),
        ]
        if threads == ALL_THREADS:
            listed.extend(_stock(training, worker.pid))
        yield Plan(title, listed)


def _stock(training: rounds.Training, worker_pid: int) -> Iterator[Contender]:
    train = training.task.train
    datasets = [
        stock.image_batches(train.fetch(i)["train"], training.batch_size) for i in train.ids
    ]
    fed_avg = functools.partial(
        stock.fed_avg,
        model_fn=stock.emnist_cnn,
        datasets=datasets,
        learning_rate=training.learning_rate,
        worker_pid=worker_pid,
    )
    yield fed_avg("defaults")
    iterator = tff.learning.LoopImplementation.DATASET_ITERATOR
    yield fed_avg("dataset iterator", loop_implementation=iterator)


def create_task(train_sizes: Sequence[int], held_out_sizes: Sequence[int] = (1,)) -> task_lib.Task:
    """Returns EMNIST's task on noise: what images show does not matter to a clock.

    Args:
      train_sizes: Images of each training client.
      held_out_sizes: Images of each other client to personalize on, and as many to evaluate on.
    """
    train = {f"train_{i}": {"train": _examples(0, i, n)} for i, n in enumerate(train_sizes)}
    held_out = clients.InMemoryClients(
        {
            f"test_{i}": {"personalization": _examples(1, i, n), "evaluation": _examples(2, i, n)}
            for i, n in enumerate(held_out_sizes)
        }
    )
    sets = {"train": clients.InMemoryClients(train), "valid": held_out, "test": held_out}
    return emnist.make_task(sets, _NUM_CLASSES, {})


def _examples(part: int, client: int, size: int) -> dict[str, np.ndarray]:
    rng = random_streams.generator(0, "synthetic_data", part, client)
    return {
        "pixels": rng.integers(0, 256, (size, 28, 28), dtype=np.uint8),
        "label": rng.integers(0, _NUM_CLASSES, size).astype(np.int32),
    }
