"""Processes that import TensorFlow once, and fork a process for one task after the other.

    python -m launch.sweeps.pool MODULE DIRECTORY

A line on stdin is a task of the sweep in DIRECTORY: the arguments of MODULE's command, the log that
it writes to, and the signals that it heeds. A line on stdout says how its process ended. That is a
process like any other, with flags, signals, memory and a log of its own; it shares with the next
what was imported before. SIGTERM is handed on to it, and all end with the program that started
them.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple, TextIO

from motley_tff.commandline import children

# A terminal sends these to all its processes, and the task's own is the one that heeds them.
_OF_TERMINALS = (signal.SIGINT, signal.SIGHUP)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class End(NamedTuple):
    """How a process ended: its exit status, or minus the signal's number; and what it took."""

    status: int
    cpu_seconds: float | None = None
    peak_kilobytes: float | None = None


class Worker:
    """One process of the pool, seen from the program that starts it."""

    def __init__(
        self,
        module: str,
        directory: pathlib.Path,
        environment: Mapping[str, str],
        ignored: Sequence[signal.Signals],
        log: pathlib.Path,
    ):
        command = [sys.executable, "-m", "launch.sweeps.pool", module, str(directory)]
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                children.bound_to_parent(command, (*ignored, *_OF_TERMINALS)),
                env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
            )  # fmt: skip

    def start(self, arguments: Sequence[str], log: pathlib.Path) -> None:
        """Starts the next task; the one before has ended."""
        heeded = [n for n in _OF_TERMINALS if signal.getsignal(n) is not signal.SIG_IGN]
        task = {"arguments": list(arguments), "log": str(log.absolute()), "heeded": heeded}
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It was killed, as `poll` will find.
            self._process.stdin.write(f"{json.dumps(task)}\n".encode())
            self._process.stdin.flush()

    def poll(self) -> End | None:
        """Returns how the task ended, None while it runs."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], 0)[0]:
            return None
        line = self._process.stdout.readline()
        return End(*json.loads(line)) if line else End(self._process.wait())

    def signal(self, number: int) -> None:
        """Sends the task a signal; SIGKILL ends the worker, too."""
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        """Whether it can take another task."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the worker, whose task has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _serve(answers: TextIO) -> bool:
    """Forks a process for each line of stdin, and waits until it has ended; returns True in that
    process, False at the end of stdin.
    """
    running: list[int] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        for pid in running:
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, hand_on)
    while line := sys.stdin.buffer.readline():
        worker, child = os.getpid(), os.fork()
        if child == 0:
            _become(json.loads(line), worker)
            return True
        running.append(child)
        _, status, usage = os.wait4(child, 0)
        running.clear()
        end = End(
            os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss
        )
        print(json.dumps(end), file=answers, flush=True)
    return False


def _become(task: Mapping[str, Any], worker: int) -> None:
    """Makes a forked process that of a task, as if it had been started for it alone."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != worker:
        os._exit(128 + signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in task["heeded"]:
        is_interrupt = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    with open(os.devnull, "rb") as nothing, open(task["log"], "ab") as log:
        for descriptor, file in enumerate((nothing, log, log)):
            os.dup2(file.fileno(), descriptor)
    sys.argv[1:] = task["arguments"]


def main() -> None:
    """Serves tasks until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # What libraries print is no answer.
    module = importlib.import_module(sys.argv[1])
    importlib.import_module("motley_tff.experiment.runner")  # With TensorFlow.
    gc.freeze()
    sys.argv[0] = str(module.__file__)
    if _serve(answers):
        module.run()


if __name__ == "__main__":
    main()
