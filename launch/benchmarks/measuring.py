"""Runs contenders in child processes and measures them.

One process for each thread setting of a workload. The parent, which never imports TensorFlow, tells
the children which contender to run next, so that those of all processes take turns and a slow spell
of the machine hits all of them alike.
"""

import contextlib
import gc
import importlib
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import psutil
from absl import flags

from launch import benchmarks
from launch.benchmarks.sizes import Sizes
from motley_tff import commandline
from motley_tff.core.errors import UserError

Facts = Mapping[str, float]
_END_SECONDS = 10.0


class BenchmarkError(UserError):
    """A contender failed."""

    exit_status = 1


class Contender(NamedTuple):
    """Something to measure.

    Attributes:
      name: How the table calls it; `bare loop` is what the others are compared with, and names
        that begin with `stock TFF` are what they are faster than.
      run: Does so many rounds, or clients, of the work; may return numbers that are worth showing.
        Before anything is timed it does one.
      amount: How many a run has.
      scale: The work is this much larger than what a run does; seconds are multiplied by it.
      once: Without warm-up and without repeats.
      worker_pid: TFF's worker if it takes part: its memory counts as well.
    """

    name: str
    run: Callable[[int], Facts | None]
    amount: int = 1
    scale: float = 1.0
    once: bool = False
    worker_pid: int | None = None


class Plan(NamedTuple):
    """What one process of a workload measures.

    Attributes:
      title: The work in words.
      contenders: Who does it.
    """

    title: str
    contenders: Sequence[Contender]


class Measured(NamedTuple):
    """One run of a contender.

    Attributes:
      seconds: Wall time, scaled to the whole work.
      cpu_seconds: Of all cores, likewise; it suffers less from neighbours.
      peak_bytes: Largest resident memory meanwhile, that of TFF's worker included.
      facts: What the contender says.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    facts: Facts


class Result(NamedTuple):
    """All runs of a contender.

    Attributes:
      name: The contender's.
      threads: Of its process; 0 for all.
      scale: As in `Contender`.
      first_call_seconds: The warm-up: tracing, compiling, and one run; None without one.
      runs: In order; the i-th runs of all contenders of a workload were neighbours in time.
    """

    name: str
    threads: int
    scale: float
    first_call_seconds: float | None
    runs: list[Measured]


def run_workload(name: str, sizes: Sizes, repeats: int) -> tuple[str, list[Result]]:
    """Measures a workload's contenders in turn.

    Returns:
      (its title, the results in the order of the processes and their contenders).

    Raises:
      BenchmarkError: If a process fails.
    """
    settings = benchmarks.REGISTRY[name]
    with contextlib.ExitStack() as stack:
        module = f"{benchmarks.__name__}.{name}"
        children = [stack.enter_context(_child(module, sizes, threads)) for threads in settings]
        plans = [child.receive() for child in children]
        results, turns = [], []
        for child, (_, contenders), threads in zip(children, plans, settings, strict=True):
            for contender, (label, scale, once) in enumerate(contenders):
                first = None if once else child.ask("warm_up", contender).seconds
                results.append(Result(label, threads, scale, first, []))
                turns.append((child, contender, 1 if once else repeats))
        for turn in range(repeats):
            for (child, contender, times), result in zip(turns, results, strict=True):
                if turn < times:
                    result.runs.append(child.ask("run", contender))
    return plans[0][0], results


class _Child:
    """The parent's end of a process that runs contenders."""

    def __init__(self, process: Any, connection: multiprocessing.connection.Connection):
        self._process, self._connection = process, connection

    def ask(self, command: str, contender: int) -> Measured:
        """Has a contender do its warm-up or a run."""
        self._connection.send((command, contender))
        return self.receive()

    def receive(self) -> Any:
        """Returns the next answer."""
        try:
            kind, answer = self._connection.recv()
        except EOFError as error:
            self._process.join(_END_SECONDS)
            raise BenchmarkError(
                f"a benchmark process ended with status {self._process.exitcode}; "
                "its last words are above"
            ) from error
        if kind == "error":
            raise BenchmarkError(answer)
        return answer


@contextlib.contextmanager
def _child(module: str, sizes: Sizes, threads: int) -> Iterator[_Child]:
    # Not forked: TensorFlow must read its thread setting anew.
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=_serve, args=(child_end, module, sizes, threads), daemon=True)
    process.start()
    child_end.close()
    try:
        yield _Child(process, parent_end)
    finally:
        parent_end.close()  # Which ends an idle child.
        process.join(_END_SECONDS)
        if process.is_alive():
            process.kill()


# --- in the child ---------------------------------------------------------------------------------


def _serve(
    connection: multiprocessing.connection.Connection, module: str, sizes: Sizes, threads: int
) -> None:
    """Sends the plan, then answers until the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent's to answer.
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["motley_benchmark"])
    commandline.silence_libraries()
    try:
        _prepare_tensorflow(threads)
        with importlib.import_module(module).contenders(sizes, threads) as plan:
            listed = [(c.name, c.scale, c.once) for c in plan.contenders]
            connection.send(("plan", (plan.title, listed)))
            with contextlib.suppress(EOFError, ConnectionError):  # The parent hung up.
                while True:
                    command, number = connection.recv()
                    connection.send(("measured", _measure(plan.contenders[number], command)))
    except UserError as error:
        connection.send(("error", str(error)))


def _prepare_tensorflow(threads: int) -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)


def _measure(contender: Contender, command: str) -> Measured:
    pids = [os.getpid()] + ([contender.worker_pid] if contender.worker_pid else [])
    amount, scale = (contender.amount, contender.scale) if command == "run" else (1, 1.0)
    gc.collect()
    _forget_peaks(pids)
    cpu, start = _cpu_seconds(pids), time.perf_counter()
    facts = contender.run(amount)
    seconds, cpu = time.perf_counter() - start, _cpu_seconds(pids) - cpu
    return Measured(seconds * scale, cpu * scale, sum(map(_peak, pids)), facts or {})


def _cpu_seconds(pids: Sequence[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(t.user + t.system for t in times)


def _forget_peaks(pids: Sequence[int]) -> None:
    """Has the kernel count the peak anew, where it can; else peaks are those since the start."""
    for pid in pids:
        with contextlib.suppress(OSError):
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak(pid: int) -> int:
    """Returns the largest resident memory of a process in bytes; 0 if it cannot be known."""
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        match = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
        if match:
            return int(match[1]) * 1024
    return 0
