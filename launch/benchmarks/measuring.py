"""Runs contenders in child processes and measures them.

One process for each thread setting of a workload. The parent, which never imports TensorFlow, tells
the children which contender to run next, so that those of all processes take turns and a slow spell
of the machine hits all of them alike.
"""

import atexit
import contextlib
import dataclasses
import gc
import importlib
import multiprocessing
import os
import pathlib
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

import psutil
from absl import flags

from launch import benchmarks
from motley_tff import commandline
from motley_tff.core.errors import UserError

_END_SECONDS = 10.0


def _size(default: int, meaning: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": meaning})


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of all workloads; the defaults are those of the published experiments."""

    data_dir: str | None = None  # Where real data are; None for made-up data.
    torch_python: str | None = None  # A Python that has PyTorch; None leaves PyTorch out.
    emnist_clients: int = _size(10, "emnist_cnn: clients a round.")
    emnist_images: int = _size(200, "emnist_cnn: images a client.")
    emnist_batch_size: int = _size(20, "emnist_cnn: images a batch.")
    lstm_clients: int = _size(4, "stackoverflow_lstm: clients a round.")
    lstm_sentences: int = _size(64, "stackoverflow_lstm: sentences a client.")
    lstm_tokens: int = _size(20, "stackoverflow_lstm: tokens a sentence.")
    lstm_batch_size: int = _size(16, "stackoverflow_lstm: sentences a batch.")
    lstm_vocabulary: int = _size(10_004, "stackoverflow_lstm: tokens there are.")
    lstm_units: int = _size(670, "stackoverflow_lstm: units of the LSTM.")
    landmark_clients: int = _size(4, "landmark_mobilenet: clients a round.")
    landmark_images: int = _size(14, "landmark_mobilenet: images a client.")
    landmark_batch_size: int = _size(16, "landmark_mobilenet: images a batch.")
    landmark_classes: int = _size(2028, "landmark_mobilenet: classes.")
    ted_clients: int = _size(4, "ted_transformer: clients a round.")
    ted_sentences: int = _size(15, "ted_transformer: sentences a client.")
    ted_batch_size: int = _size(16, "ted_transformer: sentences a batch.")
    ted_vocabulary: int = _size(15_818, "ted_transformer: tokens there are.")
    school_rounds: int = _size(500, "school_fedavg: rounds.")
    school_measured_rounds: int = _size(5, "school_fedavg: rounds that slow contenders run.")
    school_batch_size: int = _size(32, "school_fedavg: students a batch.")
    population_clients: int = _size(342_477, "population: clients there are.")
    population_cohort: int = _size(200, "population: clients a round.")
    population_rounds: int = _size(200, "population: rounds.")
    population_settled_round: int = _size(20, "population: memory growth counts after this round.")


SIZE_FIELDS = tuple(f for f in dataclasses.fields(Sizes) if f.metadata)


class BenchmarkError(UserError):
    """A contender, or the process that it is in, failed."""

    exit_status = 1


class Contender(NamedTuple):
    """Something to measure.

    Attributes:
      name: How the table calls it; those of `benchmarks` are what the others are compared with.
      run: Does so many rounds of the work; may return numbers that are worth showing, of the same
        names as the other contenders. Before anything is timed it does one.
      amount: How many a run has.
      scale: The work is this much larger than what a run does; seconds are multiplied by it.
      once: Without warm-up and without repeats.
      pids: The processes whose time and memory count; by default the one that calls `run`.
      gflop: Arithmetic of a run in 10^9 operations, a multiplication and an addition counting two;
        0 if unknown.
    """

    name: str
    run: Callable[[int], Mapping[str, float] | None]
    amount: int = 1
    scale: float = 1.0
    once: bool = False
    pids: tuple[int, ...] = ()
    gflop: float = 0.0


# What one process of a workload measures: the work in words, and who does it.
Plan = tuple[str, Sequence[Contender]]


class Measured(NamedTuple):
    """One run of a contender: times are scaled to the whole work."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    facts: Mapping[str, float]


class Result(NamedTuple):
    """All runs of a contender in a process of so many threads (0 for all).

    The i-th runs of all contenders of a workload were neighbours in time. The first call is the
    warm-up: tracing, compiling, and one run; None without one.
    """

    name: str
    threads: int
    scale: float
    gflop: float
    first_call_seconds: float | None
    runs: list[Measured]


def run_workload(name: str, sizes: Sizes, repeats: int) -> tuple[str, list[Result]]:
    """Measures a workload's contenders in turn; returns its title, and results in their order."""
    _, settings = benchmarks.REGISTRY[name]
    results, turns = [], []
    with contextlib.ExitStack() as stack:
        # Not forked: TensorFlow must read its thread setting anew. The parent answers Ctrl-C.
        context = multiprocessing.get_context("spawn")
        ignore = (signal.SIGINT, signal.SIG_IGN)
        children = [futures.ProcessPoolExecutor(1, context, signal.signal, ignore)
                    for _ in settings]  # fmt: skip
        stack.callback(_end, children)
        plans = [_ask(c, _open, name, sizes, n) for c, n in zip(children, settings, strict=True)]
        for child, (_, contenders), threads in zip(children, plans, settings, strict=True):
            for number, (label, scale, once, gflop) in enumerate(contenders):
                first = None if once else _ask(child, _measure, number, True).seconds
                results.append(Result(label, threads, scale, gflop, first, []))
                turns.append((child, number, 1 if once else repeats))
        for turn in range(repeats):
            for (child, number, times), result in zip(turns, results, strict=True):
                if turn < times:
                    result.runs.append(_ask(child, _measure, number, False))
    return plans[0][0], results


def _ask(child: futures.Executor, function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what a function returns in a child."""
    try:
        return child.submit(function, *arguments).result()
    except BrokenProcessPool as error:
        where = "a benchmark process ended"
        raise BenchmarkError(where, advice="see its last words above") from error
    except UserError as error:
        raise BenchmarkError(error.where, error.finding, error.expected, error.advice) from error


def _end(children: Sequence[futures.Executor]) -> None:
    """Ends idle children, and kills those that still measure."""
    for child in children:
        child.shutdown(wait=False, cancel_futures=True)
    for process in multiprocessing.active_children():
        process.join(_END_SECONDS)
        if process.is_alive():
            process.kill()


# In a child: what it measures.
_contenders: list[Contender] = []


def _open(workload: str, sizes: Sizes, threads: int) -> tuple[str, list[tuple]]:
    """In the child: returns the work in words, and (name, scale, once, gflop) of who does it."""
    flags.FLAGS(["motley_benchmark"])
    commandline.silence_libraries()
    import tensorflow as tf  # Takes 3 s, and the parent does without.

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    module = f"{benchmarks.__name__}.{benchmarks.REGISTRY[workload][0]}"
    stack = contextlib.ExitStack()
    # These run in reverse.
    atexit.register(gc.collect)
    atexit.register(stack.close)
    atexit.register(_contenders.clear)
    plan = getattr(importlib.import_module(module), workload)(sizes, threads)
    title, contenders = stack.enter_context(plan)
    _contenders[:] = contenders
    return title, [(c.name, c.scale, c.once, c.gflop) for c in contenders]


def _measure(number: int, is_warm_up: bool) -> Measured:
    contender = _contenders[number]
    pids = contender.pids or (os.getpid(),)
    amount, scale = (1, 1.0) if is_warm_up else (contender.amount, contender.scale)
    gc.collect()
    for pid in pids:  # The kernel counts the peak anew, where it can; else since the start.
        with contextlib.suppress(OSError):
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    cpu, start = _cpu_seconds(pids), time.perf_counter()
    facts = contender.run(amount)
    seconds, cpu = time.perf_counter() - start, _cpu_seconds(pids) - cpu
    return Measured(seconds * scale, cpu * scale, sum(map(_peak, pids)), facts or {})


def _cpu_seconds(pids: Sequence[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(t.user + t.system for t in times)


def _peak(pid: int) -> int:
    """Returns the largest resident memory of a process in bytes; 0 if it cannot be known."""
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        match = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
        if match:
            return int(match[1]) * 1024
    return 0
