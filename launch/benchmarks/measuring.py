"""Runs contenders in child processes and measures them.

One process for each thread setting of a workload. The parent, which never imports TensorFlow, tells
the children which contender to run next, so that those of all processes take turns and a slow spell
of the machine hits all of them alike.

A workload is a context manager of its name, called with `(sizes, threads)`, that yields its `Plan`.
It runs in a process of its own for each thread setting that is listed here, because TensorFlow's
threads belong to a process.
"""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import psutil
from absl import flags

from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.core.options import option

_END_SECONDS = 10.0
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


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of all workloads; the defaults are those of the published experiments."""

    data_dir: str | None = option(
        None, "Folder with school.mat and client_sizes/*.csv; made-up data without it"
    )
    torch_python: str | None = option(
        None, "Path of a Python that has PyTorch, which then runs the same models as plain loops"
    )
    emnist_clients: int = option(10, "emnist_cnn: clients a round", lower=1)
    emnist_images: int = option(200, "emnist_cnn: images a client", lower=1)
    emnist_batch_size: int = option(20, "emnist_cnn: images a batch", lower=1)
    lstm_clients: int = option(4, "stackoverflow_lstm: clients a round", lower=1)
    lstm_sentences: int = option(64, "stackoverflow_lstm: sentences a client", lower=1)
    lstm_tokens: int = option(20, "stackoverflow_lstm: tokens a sentence", lower=1)
    lstm_batch_size: int = option(16, "stackoverflow_lstm: sentences a batch", lower=1)
    lstm_vocabulary: int = option(10_004, "stackoverflow_lstm: tokens there are", lower=1)
    lstm_units: int = option(670, "stackoverflow_lstm: units of the LSTM", lower=1)
    landmark_clients: int = option(4, "landmark_mobilenet: clients a round", lower=1)
    landmark_images: int = option(14, "landmark_mobilenet: images a client", lower=1)
    landmark_batch_size: int = option(16, "landmark_mobilenet: images a batch", lower=1)
    landmark_classes: int = option(2028, "landmark_mobilenet: classes", lower=1)
    ted_clients: int = option(4, "ted_transformer: clients a round", lower=1)
    ted_sentences: int = option(15, "ted_transformer: sentences a client", lower=1)
    ted_batch_size: int = option(16, "ted_transformer: sentences a batch", lower=1)
    ted_vocabulary: int = option(15_818, "ted_transformer: tokens there are", lower=1)
    school_rounds: int = option(500, "school_fedavg: rounds", lower=1)
    school_measured_rounds: int = option(
        5, "school_fedavg: rounds that slow contenders run", lower=1
    )
    school_batch_size: int = option(32, "school_fedavg: students a batch", lower=1)
    population_clients: int = option(342_477, "population: clients there are", lower=1)
    population_cohort: int = option(200, "population: clients a round", lower=1)
    population_rounds: int = option(200, "population: rounds", lower=1)
    population_settled_round: int = option(
        20, "population: memory growth counts after this round", lower=1
    )


class BenchmarkError(UserError):
    """A contender, or the process that it is in, failed."""

    exit_status = 1


class Measured(NamedTuple):
    """One run of a contender: times are scaled to the whole work."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    facts: Mapping[str, float]


@dataclasses.dataclass
class Contender:
    """Something to measure, and its measurements.

    Attributes:
      name: How the table calls it; `ONE_CLIENT` and its like are what the others are compared with.
      run: Does so many rounds of the work; may return numbers that are worth showing, of the same
        names as the other contenders. Before anything is timed it does one. None in the parent.
      amount: How many a run has.
      scale: The work is this much larger than what a run does; seconds are multiplied by it.
      once: Without warm-up and without repeats.
      pids: The processes whose time and memory count; by default the one that calls `run`.
      gflop: Arithmetic of a run in 10^9 operations, a multiplication and an addition counting two;
        0 if unknown.
      threads: Those of its process, 0 for all.
      first_call_seconds: Of the warm-up: tracing, compiling, and one run; None without one.
      runs: The i-th ones of all contenders of a workload are neighbours in time.
    """

    name: str
    run: Callable[[int], Mapping[str, float] | None] | None
    amount: int = 1
    scale: float = 1.0
    once: bool = False
    pids: tuple[int, ...] = ()
    gflop: float = 0.0
    threads: int = 0
    first_call_seconds: float | None = None
    runs: list[Measured] = dataclasses.field(default_factory=list)


# What one process of a workload measures: the work in words, and who does it.
Plan = tuple[str, Sequence[Contender]]


def run_workload(name: str, sizes: Sizes, repeats: int) -> Plan:
    """Measures a workload's contenders in turn; returns its title, and them in their order."""
    turns, title = [], ""
    with contextlib.ExitStack() as stack:
        for threads in REGISTRY[name][1]:
            child, (title, contenders) = stack.enter_context(_child(name, sizes, threads))
            turns += [(child, number, contender) for number, contender in enumerate(contenders)]
        for turn in range(-1, repeats):  # The first is the warm-up.
            for child, number, contender in turns:
                if turn == 0 or not contender.once:
                    child.send((number, turn < 0))
                    contender.runs.append(_answer(child))
    for *_, contender in turns:
        if not contender.once:
            contender.first_call_seconds = contender.runs.pop(0).seconds
    return title, [contender for *_, contender in turns]


@contextlib.contextmanager
def _child(name: str, sizes: Sizes, threads: int) -> Iterator[tuple[Connection, Plan]]:
    """Yields a pipe to a new process of a workload, and its plan."""
    context = multiprocessing.get_context("spawn")  # TensorFlow must read its threads anew.
    pipe, other_end = context.Pipe()
    process = context.Process(target=_serve, args=(other_end, name, sizes, threads))
    process.start()
    other_end.close()
    try:
        yield pipe, _answer(pipe)
    finally:  # An idle process ends by itself; one that still measures is killed.
        pipe.close()
        process.join(_END_SECONDS)
        process.kill()


def _answer(child: Connection) -> Any:
    try:
        answer = child.recv()
    except EOFError as error:
        where = "a benchmark process ended"
        raise BenchmarkError(where, advice="see its messages above") from error
    if isinstance(answer, UserError):
        raise answer
    return answer


def _serve(parent: Connection, name: str, sizes: Sizes, threads: int) -> None:
    """In the child: sends its plan, then a measurement for each request, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent answers Ctrl-C.
    flags.FLAGS(["motley_benchmark"])
    commandline.silence_libraries()
    import tensorflow as tf  # Takes 3 s, and the parent does without.

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    module = importlib.import_module(f"launch.benchmarks.{REGISTRY[name][0]}")
    try:
        with getattr(module, name)(sizes, threads) as (title, contenders):
            shown = [dataclasses.replace(c, run=None, threads=threads) for c in contenders]
            parent.send((title, shown))
            while True:
                number, is_warm_up = parent.recv()
                parent.send(_measure(contenders[number], is_warm_up))
    except UserError as error:
        parent.send(error)
    except (EOFError, BrokenPipeError):
        return


def _measure(contender: Contender, is_warm_up: bool) -> Measured:
    pids = contender.pids or (os.getpid(),)
    amount, scale = (1, 1.0) if is_warm_up else (contender.amount, contender.scale)
    assert contender.run is not None
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
        if match := re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE):
            return int(match[1]) * 1024
    return 0
