"""Rounds of the EMNIST CNN: the bare loop, the backends, stock TFF."""

import contextlib
import functools
from collections.abc import Iterator

from launch.benchmarks import ALL_THREADS, images, rounds, stock
from launch.benchmarks.measuring import Contender, Plan
from launch.benchmarks.sizes import Sizes
from motley_tff.backends.tff import backend as tff_backend
from motley_tff.backends.tff.runtime import tff_runtime
from motley_tff.core.lazy import tff

_LEARNING_RATE = 0.1


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure; stock TFF uses all threads, as it does by default."""
    task = images.create_task([sizes.emnist_images] * sizes.emnist_clients)
    training = rounds.Training(task, _LEARNING_RATE, sizes.emnist_batch_size)
    title = (
        f"one FedAvg round of the EMNIST CNN, {sizes.emnist_clients} clients x "
        f"{sizes.emnist_images} images, batch {sizes.emnist_batch_size}"
    )
    with tff_runtime(intra_op_threads=threads or None) as worker:
        listed = [
            *rounds.sequential_only(training, threads),
            rounds.backend("tff", tff_backend.TffBackend(), training, worker_pid=worker.pid),
        ]
        if threads == ALL_THREADS:
            listed.extend(_stock(training, worker.pid))
        yield Plan(title, listed)


def _stock(training: rounds.Training, worker_pid: int) -> Iterator[Contender]:
    clients = training.task.train
    datasets = [
        stock.image_batches(clients.fetch(i)["train"], training.batch_size) for i in clients.ids
    ]
    fed_avg = functools.partial(
        stock.fed_avg,
        model_fn=stock.emnist_cnn,
        datasets=datasets,
        learning_rate=training.learning_rate,
        worker_pid=worker_pid,
    )
    yield fed_avg("defaults")
    yield fed_avg(
        "dataset iterator",
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )
