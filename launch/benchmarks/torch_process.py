"""PyTorch's side of a workload: a process of another Python that runs `torch_loops.py`."""

import contextlib
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from launch import benchmarks
from launch.benchmarks import bare_loop
from launch.benchmarks.measuring import BenchmarkError, Contender
from launch.benchmarks.rounds import Training
from motley_tff.core import cores

_LOOPS = pathlib.Path(__file__).with_name("torch_loops.py")
# Of the first batch's loss under equal weights.
_TOLERANCE = 1e-4


@contextlib.contextmanager
def contenders(training: Training, model: str, python: str | None) -> Iterator[list[Contender]]:
    """Yields a round in PyTorch for each setting of threads and memory layout; none without it.

    Args:
      model: The class in `torch_loops.py`.
      python: Path of a Python that has PyTorch.

    Raises:
      BenchmarkError: If that Python fails, or equal weights give another loss.
    """
    if python is None:
        yield []
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = pathlib.Path(folder) / "arrays.npz"
        loss = _save(training, path)
        made = []
        layouts = ["contiguous_format", "channels_last"] if _has_images(training) else ["plain"]
        for threads in dict.fromkeys((cores.usable(), 1)):
            for layout in layouts:
                process = stack.enter_context(_process(python, model, path, threads, layout))
                first = float(process.ask(""))
                if not abs(first - loss) <= _TOLERANCE * abs(loss):
                    raise BenchmarkError(f"{model}: PyTorch's first loss is {first}, ours {loss}")
                made.append(process.contender(f"{benchmarks.TORCH}{layout}, threads: {threads}"))
        yield made


class _Process:
    def __init__(self, popen: subprocess.Popen):
        self._popen = popen

    def ask(self, line: str) -> str:
        """Returns the answer to a line; to none, what the process says when it is ready."""
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._popen.stdin.write(line)
        self._popen.stdin.flush()
        answer = self._popen.stdout.readline()
        if not answer:
            raise BenchmarkError("--torch_python: the process ended; what it said is above")
        return answer

    def contender(self, name: str) -> Contender:
        def run(number: int) -> None:
            for _ in range(number):
                self.ask("round\n")

        return Contender(name, run, worker_pids=(self._popen.pid,), is_elsewhere=True)


@contextlib.contextmanager
def _process(
    python: str, model: str, path: pathlib.Path, threads: int, layout: str
) -> Iterator[_Process]:
    command = [python, str(_LOOPS), model, str(path), str(threads), layout]
    pipe = subprocess.PIPE
    # Its end closes the pipes, and so ends the loop on the other side.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as popen:
        yield _Process(popen)


def _has_images(training: Training) -> bool:
    (walk,) = training.algorithm.work.passes
    return any(len(spec.shape) > 2 for spec in training.task.train.spec[walk.part].values())


def _save(training: Training, path: pathlib.Path) -> float:
    """Writes what `torch_loops.py` reads; returns the loss of the first batch."""
    task, algorithm = training.task, training.algorithm
    (walk,), (first,) = algorithm.work.passes, training.plan(1)
    batches = bare_loop.batches(task.train, first.client_ids, walk, first.key)
    weights = tuple(map(tf.constant, algorithm.initial_weights))
    arrays: dict[str, Any] = {f"w{i}": np.asarray(w) for i, w in enumerate(weights)}
    clients = np.repeat(
        np.arange(len(first.client_ids)), [_size(task.train, c) for c in first.client_ids]
    )
    order, bounds = batches.order.numpy(), batches.bounds.numpy()
    for i, rows in enumerate(np.split(order, bounds[1:-1])):
        raw = {name: tf.gather(values, rows) for name, values in batches.examples.items()}
        x, y = task.preprocess(raw, False, batches.keys[i])
        arrays |= {f"x{i}": x.numpy(), f"y{i}": y.numpy()}
    arrays["client"] = clients[order[bounds[:-1]]]
    arrays["learning_rate"] = training.learning_rate
    np.savez(path, **arrays)
    outputs = task.model.predict(weights, tf.constant(arrays["x0"]), False, batches.keys[0])
    values, counts = task.loss(tf.constant(arrays["y0"]), outputs)
    return float(tf.reduce_sum(values * counts) / tf.reduce_sum(counts))


def _size(clients: Any, client_id: str) -> int:
    return len(next(iter(clients.fetch(client_id)["train"].values())))
