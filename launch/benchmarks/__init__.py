"""The workloads of motley_benchmark; imports no TensorFlow.

A workload is a context manager of its name, called with `(sizes, threads)`, that yields its `Plan`.
It runs in a process of its own for each thread setting that is listed here, because TensorFlow's
threads belong to a process.
"""

from collections.abc import Mapping

# Threads within an operation in each of a workload's processes.
ALL_THREADS, ONE_THREAD = 0, 1

# Names of contenders, or how they begin, that the others' times are compared with.
ONE_CLIENT, TORCH, SGEMM = (
    "sequential, one client at a time", "PyTorch, ", "matrix product (SGEMM)",
)  # fmt: skip

# {name: (the module that has it, the thread settings of its processes)}
REGISTRY: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "emnist_cnn": ("models", (ALL_THREADS, ONE_THREAD)),
    "stackoverflow_lstm": ("models", (ALL_THREADS, ONE_THREAD)),
    "landmark_mobilenet": ("models", (ALL_THREADS, ONE_THREAD)),
    "ted_transformer": ("models", (ALL_THREADS, ONE_THREAD)),
    "school_fedavg": ("models", (ALL_THREADS,)),
    "population": ("population", (ONE_THREAD,)),
}
