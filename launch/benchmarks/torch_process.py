"""PyTorch's side of a workload: a process of another Python that runs `torch_loops.py`."""

import contextlib
import itertools
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from launch import benchmarks
from launch.benchmarks.measuring import BenchmarkError, Contender, Sizes
from launch.benchmarks.rounds import Setup
from motley_tff.core import cores

_LOOPS = pathlib.Path(__file__).parents[1] / "experiments" / "pytorch" / "torch_loops.py"
# Of the first batch's loss under equal weights.
_TOLERANCE = 1e-4


@contextlib.contextmanager
def contenders(setup: Setup, model: str, sizes: Sizes, threads: int) -> Iterator[list[Contender]]:
    """Yields a round in PyTorch for each setting of threads and memory layout.

    Yields none without `--torch_python`, or in a process of another than all threads. `model` is
    the class in `torch_loops.py`. BenchmarkError if equal weights give another loss there.
    """
    python = sizes.torch_python
    if python is None or threads != benchmarks.ALL_THREADS:
        yield []
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path, started = pathlib.Path(folder) / "arrays.npz", []
        loss, has_images = _save(setup, path)
        layouts = ["contiguous_format", "channels_last"] if has_images else ["plain"]
        for number, layout in itertools.product(dict.fromkeys((cores.usable(), 1)), layouts):
            command = [python, str(_LOOPS), model, str(path), str(number), layout]
            first, contender = stack.enter_context(_process(command))
            if not abs(first - loss) <= _TOLERANCE * abs(loss):
                raise BenchmarkError(f"PyTorch's first loss of {model}", first, f"ours, {loss}")
            contender.name = f"{benchmarks.TORCH}{layout}, threads: {number}"
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
