"""The workloads of motley_benchmark, one file each, found by name; imports no TensorFlow.

A workload's module has `contenders(sizes, threads)`, a context manager that yields its `Plan`. It
runs in a process of its own for each thread setting that is listed here, because TensorFlow's
threads belong to a process.
"""

from collections.abc import Mapping
from typing import NamedTuple

ALL_THREADS = 0
ONE_THREAD = 1


class Workload(NamedTuple):
    """Where a workload is.

    Attributes:
      module: Its module.
      threads: Threads within an operation in each of its processes; 0 lets TensorFlow use all.
    """

    module: str
    threads: tuple[int, ...]


REGISTRY: Mapping[str, Workload] = {
    name: Workload(f"launch.benchmarks.{name}", threads)
    for name, threads in {
        "emnist_cnn": (ALL_THREADS, ONE_THREAD),
        "stackoverflow_lstm": (ALL_THREADS, ONE_THREAD),
        "school_fedavg": (ALL_THREADS,),
        "school_grid": (ALL_THREADS,),
        "finetuning_evaluation": (ALL_THREADS, ONE_THREAD),
        "population": (ONE_THREAD,),
    }.items()
}
