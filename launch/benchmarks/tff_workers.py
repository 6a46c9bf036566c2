"""Rounds of the EMNIST CNN on TFF workers that have a core each: what a second machine would give.

The machines are one, so that the network costs nothing: what is sent, is sent all the same.
"""

import contextlib
import os
from collections.abc import Iterator

from launch.benchmarks import emnist_cnn, rounds
from launch.benchmarks.measuring import Plan, Sizes
from motley_tff.backends.tff import backend as tff_backend, runtime, workers

_LEARNING_RATE = 0.1


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure: as many workers as threads, or nobody where cores are lacking."""
    cores = sorted(os.sched_getaffinity(0))
    task = emnist_cnn.create_task([sizes.worker_images] * sizes.worker_clients)
    training = rounds.Training(task, _LEARNING_RATE, sizes.emnist_batch_size)
    title = (
        f"one FedAvg round of the EMNIST CNN, {sizes.worker_clients} clients x "
        f"{sizes.worker_images} images, batch {sizes.emnist_batch_size}, each worker on a core"
    )
    if threads > len(cores):
        yield Plan(title, [])
        return
    with contextlib.ExitStack() as stack:
        targets, pids = [], []
        for core in cores[:threads]:
            with _on_core(core):  # Which a child inherits.
                worker, _ = stack.enter_context(
                    runtime.running_worker(threads=1, intra_op_threads=1)
                )
            targets.append(worker.target)
            pids.append(worker.pid)
        stack.enter_context(workers.tff_workers_runtime(targets))
        name = f"tff, {threads} worker{'s' * (threads > 1)}"
        trained = rounds.backend(name, tff_backend.TffBackend(), training)
        yield Plan(title, [trained._replace(worker_pids=tuple(pids))])


@contextlib.contextmanager
def _on_core(core: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
