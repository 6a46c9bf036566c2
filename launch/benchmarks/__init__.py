"""The workloads of motley_benchmark, each a module of its name; imports no TensorFlow.

A workload's module has `contenders(sizes, threads)`, a context manager that yields its `Plan`. It
runs in a process of its own for each thread setting that is listed here, because TensorFlow's
threads belong to a process.
"""

from collections.abc import Mapping

# Threads within an operation in each of a workload's processes.
ALL_THREADS, ONE_THREAD = 0, 1

# Names of contenders, or how they begin, that the others' times are compared with.
BARE, ONE_CLIENT, STOCK, TORCH, SGEMM = (
    "bare loop", "sequential, one client at a time", "stock TFF, ", "PyTorch, ",
    "matrix product (SGEMM)",
)  # fmt: skip

REGISTRY: Mapping[str, tuple[int, ...]] = {
    "emnist_cnn": (ALL_THREADS, ONE_THREAD),
    "flute_emnist": (ONE_THREAD,),
    "stackoverflow_lstm": (ALL_THREADS, ONE_THREAD),
    "landmark_mobilenet": (ALL_THREADS, ONE_THREAD),
    "ted_transformer": (ALL_THREADS, ONE_THREAD),
    "school_fedavg": (ALL_THREADS,),
    "school_grid": (ALL_THREADS,),
    "finetuning_evaluation": (ALL_THREADS, ONE_THREAD),
    "digits_wgan_gp": (ALL_THREADS, ONE_THREAD),
    "digits_ddpm": (ALL_THREADS, ONE_THREAD),
    "population": (ONE_THREAD,),
    "tff_workers": (1, 2),  # Workers, of a thread each.
}
