"""Contenders that train rounds: the backends, for any task, a process of another Python that runs
`torch_loops.py`, and the product of two matrices.
"""

import contextlib
import dataclasses
import functools
import itertools
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from launch.benchmarks.measuring import (
    ALL_THREADS,
    ONE_CLIENT,
    SGEMM,
    TORCH,
    BenchmarkError,
    Contender,
    Sizes,
)
from motley_tff.algorithms import FedAvg, optimizers
from motley_tff.backends import base, sequential
from motley_tff.core import algorithm as algorithm_lib, cores, random_streams, task as task_lib

SEED = 0
_SGEMM_SIZE, _SGEMM_TIMES = 2048, 10
_LOOPS = pathlib.Path(__file__).parents[1] / "experiments" / "pytorch" / "torch_loops.py"
# Of the first batch's loss under equal weights.
_TOLERANCE = 1e-4


class Setup(NamedTuple):
    """FedAvg on a task, with clients' SGD; every training client takes part in every round."""

    task: task_lib.Task
    learning_rate: float
    batch_size: int

    @property
    def algorithm(self) -> algorithm_lib.Algorithm:
        """FedAvg with server SGD at rate 1, one epoch a round."""
        sgd = functools.partial(optimizers.OptimizerConfig, "sgd")
        params = FedAvg(sgd(self.learning_rate), sgd(1.0), train_batch_size=self.batch_size)
        return params.build(self.task, self.task.model.initial_weights(SEED))


def backend(name: str, implementation: Any, setup: Setup, rounds: int = 1) -> Contender:
    """Returns a backend that trains so many rounds a run from the initial weights."""
    process = implementation.training(setup.task, setup.algorithm)
    state, ids = process.initialize(), setup.task.train.ids
    keys = (random_streams.key(SEED, "local_training", r) for r in range(1, rounds + 1))
    plan = [base.Round(r, ids, key) for r, key in enumerate(keys, 1)]

    def run(number: int) -> dict[str, float]:
        end = state
        for call_rounds in base.by_call(plan[:number], process.rounds_per_call):
            end, results = process.next(end, call_rounds)
        process.weights(end)
        return {"loss": float(results[-1].means["loss"])}  # The vectorized backend's is NumPy's.

    return Contender(name, run, rounds)


def sequential_backend(threads: int) -> tuple[str, sequential.SequentialBackend]:
    """Returns (name, backend) as the trainers set it up with `--threads_per_client`."""
    if threads == ALL_THREADS:
        return ONE_CLIENT, sequential.SequentialBackend(1)
    at_once = max(1, cores.num_available() // threads)
    return f"sequential, {at_once} clients at once", sequential.SequentialBackend(at_once)


def sequential_only(setup: Setup, threads: int) -> list[Contender]:
    """Returns the sequential backend, of one thread on one core too, and the matrix product."""
    contenders = [backend(*sequential_backend(threads), setup)]
    if threads != ALL_THREADS:
        contenders.append(backend(ONE_CLIENT, sequential.SequentialBackend(1), setup))
    gflop = _gflop(setup.task)
    return [*(dataclasses.replace(c, gflop=gflop) for c in contenders), _matrix_product()]


def _gflop(task: task_lib.Task) -> float:
    """Returns the arithmetic of a round: three times that of predictions, as TensorFlow counts.

    What is counted is what runs: of MobileNetV2 10% more than its layers taken one by one. 0.0,
    not counted, of a model that loops: TensorFlow does not know how often.
    """
    examples = task.train.fetch(task.train.ids[0])["train"]
    raw = {name: tf.constant(values[:1]) for name, values in examples.items()}
    x, _ = task.preprocess(raw, False, tf.zeros([2], tf.int32))

    def predict(x, *weights):
        return task.model.predict(weights, x, False, None)

    weights = [tf.TensorSpec(shape, tf.float32) for shape in task.model.shapes]
    graph = tf.function(predict, autograph=False).get_concrete_function(x, *weights).graph
    if any("While" in op.type for op in graph.get_operations()):
        return 0.0
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    count = tf.compat.v1.profiler.profile(graph, options=options).total_float_ops
    # All clients have as many examples.
    return 3e-9 * count * len(next(iter(examples.values()))) * len(task.train)


def _matrix_product() -> Contender:
    """Returns the product of two large matrices: what the machine's float32 can do at best."""
    matrix = tf.random.stateless_uniform([_SGEMM_SIZE, _SGEMM_SIZE], [0, 0])

    def run(number: int) -> None:
        for _ in range(number):
            product = tf.matmul(matrix, matrix)
        product.numpy()

    return Contender(SGEMM, run, _SGEMM_TIMES, gflop=2e-9 * _SGEMM_SIZE**3 * _SGEMM_TIMES)


@contextlib.contextmanager
def torch_contenders(
    setup: Setup, model: str, sizes: Sizes, threads: int
) -> Iterator[list[Contender]]:
    """Yields a round in PyTorch for each setting of threads and memory layout.

    Yields none without `--torch_python`, or in a process of another than all threads. `model` is
    the class in `torch_loops.py`. BenchmarkError if equal weights give another loss there.
    """
    python = sizes.torch_python
    if python is None or threads != ALL_THREADS:
        yield []
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path, started = pathlib.Path(folder) / "arrays.npz", []
        loss, has_images = _save(setup, path)
        layouts = ["contiguous_format", "channels_last"] if has_images else ["plain"]
        for number, layout in itertools.product(dict.fromkeys((cores.num_available(), 1)), layouts):
            command = [python, str(_LOOPS), model, str(path), str(number), layout]
            first, contender = stack.enter_context(_process(command))
            if not abs(first - loss) <= _TOLERANCE * abs(loss):
                raise BenchmarkError(f"PyTorch's first loss of {model}", first, f"ours, {loss}")
            contender.name = f"{TORCH}{layout}, threads: {number}"
            started.append(contender)
        yield started


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[tuple[float, Contender]]:
    """Yields the first loss of a process that has the model, and what trains rounds in it."""
    pipe = subprocess.PIPE
    # Its end closes the pipes, and so ends the loop on the other side.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        requests, answers = process.stdin, process.stdout
        assert requests is not None and answers is not None

        def answer() -> str:
            if line := answers.readline():
                return line
            raise BenchmarkError("the process of --torch_python ended", advice="see above")

        def run(number: int) -> None:
            for _ in range(number):
                print("round", file=requests, flush=True)
                answer()

        yield float(answer()), Contender("", run, pids=(process.pid,))


def _save(setup: Setup, path: pathlib.Path) -> tuple[float, bool]:
    """Writes what `torch_loops.py` reads; returns (loss of the first batch, it is of images)."""
    task, key = setup.task, tf.zeros([2], tf.int32)
    weights = tuple(map(tf.constant, setup.algorithm.initial_weights))
    arrays: dict[str, Any] = {f"w{i}": np.asarray(w) for i, w in enumerate(weights)}
    batches: list[int] = []  # Whose each is.
    for client, client_id in enumerate(task.train.ids):
        examples = task.train.fetch(client_id)["train"]
        for start in range(0, len(next(iter(examples.values()))), setup.batch_size):
            rows = slice(start, start + setup.batch_size)
            raw = {name: tf.constant(values[rows]) for name, values in examples.items()}
            x, y = task.preprocess(raw, False, key)
            arrays |= {f"x{len(batches)}": x.numpy(), f"y{len(batches)}": y.numpy()}
            batches.append(client)
    np.savez(path, **arrays, client=batches, learning_rate=setup.learning_rate)
    outputs = task.model.predict(weights, tf.constant(arrays["x0"]), False, key)
    values, counts = task.loss(tf.constant(arrays["y0"]), outputs)
    return float(tf.reduce_sum(values * counts) / tf.reduce_sum(counts)), arrays["x0"].ndim > 2
