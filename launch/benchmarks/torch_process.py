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
from launch.benchmarks.rounds import Training
from motley_tff.core import cores

_LOOPS = pathlib.Path(__file__).parents[1] / "experiments" / "pytorch" / "torch_loops.py"
# Of the first batch's loss under equal weights.
_TOLERANCE = 1e-4


@contextlib.contextmanager
def contenders(
    training: Training, model: str, sizes: Sizes, threads: int
) -> Iterator[list[Contender]]:
    """Yields a round in PyTorch for each setting of threads and memory layout.

    Yields none without `--torch_python`, or in a process of another than all threads. `model` is
    the class in `torch_loops.py`. BenchmarkError if equal weights give another loss there.
    """
    python = sizes.torch_python
    if python is None or threads != benchmarks.ALL_THREADS:
        yield []
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = pathlib.Path(folder) / "arrays.npz"
        loss, has_images = _save(training, path)
        made = []
        layouts = ["contiguous_format", "channels_last"] if has_images else ["plain"]
        for number, layout in itertools.product(dict.fromkeys((cores.usable(), 1)), layouts):
            name = f"{benchmarks.TORCH}{layout}, threads: {number}"
            process = _process(name, python, _LOOPS, model, path, number, layout)
            first, contender = stack.enter_context(process)
            if not abs(first - loss) <= _TOLERANCE * abs(loss):
                raise BenchmarkError(f"PyTorch's first loss of {model}", first, f"ours, {loss}")
            made.append(contender)
        yield made


@contextlib.contextmanager
def _process(name: str, *arguments: object) -> Iterator[tuple[float, Contender]]:
    """Yields the first loss of a process that has the model, and what trains rounds in it."""
    command, pipe = [str(argument) for argument in arguments], subprocess.PIPE
    # Its end closes the pipes, and so ends the loop on the other side.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as popen:
        to, back = popen.stdin, popen.stdout
        assert to is not None and back is not None

        def answer() -> str:
            if line := back.readline():
                return line
            raise BenchmarkError("the process of --torch_python ended", advice="see above")

        def run(number: int) -> None:
            for _ in range(number):
                to.write("round\n")
                to.flush()
                answer()

        yield float(answer()), Contender(name, run, pids=(popen.pid,))


def _save(training: Training, path: pathlib.Path) -> tuple[float, bool]:
    """Writes what `torch_loops.py` reads; returns (loss of the first batch, it is of images)."""
    task, key = training.task, tf.zeros([2], tf.int32)
    weights = tuple(map(tf.constant, training.algorithm.initial_weights))
    arrays: dict[str, Any] = {f"w{i}": np.asarray(w) for i, w in enumerate(weights)}
    of: list[int] = []
    for client, client_id in enumerate(task.train.ids):
        examples = task.train.fetch(client_id)["train"]
        for start in range(0, len(next(iter(examples.values()))), training.batch_size):
            rows = slice(start, start + training.batch_size)
            raw = {name: tf.constant(values[rows]) for name, values in examples.items()}
            x, y = task.preprocess(raw, False, key)
            arrays |= {f"x{len(of)}": x.numpy(), f"y{len(of)}": y.numpy()}
            of.append(client)
    np.savez(path, **arrays, client=of, learning_rate=training.learning_rate)
    outputs = task.model.predict(weights, tf.constant(arrays["x0"]), False, key)
    values, counts = task.loss(tf.constant(arrays["y0"]), outputs)
    return float(tf.reduce_sum(values * counts) / tf.reduce_sum(counts)), arrays["x0"].ndim > 2
