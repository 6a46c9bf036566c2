"""Runs a trainer that gets a signal while it writes: at its n-th change of a directory.

    python -m tests.reliability.killed_in_a_write --directory=/tmp/r --at=7 --signal=9 \
        trainers.finetuning_trainer --root_output_dir=/tmp/r ...

A change is the opening of a file for writing, a rename, a removal or a new directory, as Python's
audit events tell of them. The signal comes just before it, or --milliseconds after, when the file
may be half-written. With --count_to=FILE the number of changes goes there. With --full_at=WORD
the disk is filled in place of a signal, when a file of such a name is first opened for writing.
"""

import argparse
import functools
import os
import pathlib
import runpy
import signal
import sys
import threading
from collections.abc import Callable

from tests.reliability import bench

_WRITING = os.O_WRONLY | os.O_RDWR
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")


class Watch:
    """An audit hook that counts changes beneath a directory, and strikes once: at the n-th, or when
    a file is opened for writing whose name has a word in it.
    """

    def __init__(self, directory: str, at: int, word: str | None, strike: Callable[[], object]):
        self.seen, self._is_over = 0, False
        self._directory, self._at = os.path.abspath(directory), at
        self._word, self._strike = word, strike

    def __call__(self, event: str, arguments: tuple) -> None:
        """Looks at an event."""
        if not (_is_change(event, arguments) and self._is_beneath(arguments[0])):
            return
        self.seen += 1
        is_named = bool(self._word) and event == "open" and self._word in str(arguments[0])
        if not self._is_over and (is_named or self.seen == self._at):
            self._is_over = True  # What follows is an event, too.
            self._strike()

    def _is_beneath(self, path: object) -> bool:
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        return os.path.abspath(os.fsdecode(path)).startswith(self._directory + os.sep)


def _send(number: int, milliseconds: float | None) -> None:
    """Sends this process a signal, now or later."""
    if milliseconds is None:
        signal.raise_signal(number)
        return
    later = threading.Timer(milliseconds / 1000, os.kill, (os.getpid(), number))
    later.daemon = True
    later.start()


def _is_change(event: str, arguments: tuple) -> bool:
    if event == "open":
        return bool(arguments[2] & _WRITING)
    return event in _CHANGES


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", required=True)
    parser.add_argument("--at", type=int, default=0, help="which change; 0 for none")
    parser.add_argument("--signal", type=int, default=signal.SIGKILL)
    parser.add_argument("--milliseconds", type=float)
    parser.add_argument("--full_at", help="part of a file's path")
    parser.add_argument("--count_to", type=pathlib.Path)
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main() -> None:
    """Runs the module as `python -m` would, watched."""
    options = _parse()
    strike = functools.partial(_send, options.signal, options.milliseconds)
    if options.full_at:
        strike = functools.partial(bench.fill, pathlib.Path(options.directory), 0)
    watch = Watch(options.directory, options.at, options.full_at, strike)
    sys.setswitchinterval(0.0005)  # The thread that strikes must not wait for a long write.
    sys.addaudithook(watch)
    sys.argv = [options.module, *options.arguments]
    try:
        runpy.run_module(options.module, run_name="__main__", alter_sys=True)
    finally:
        if options.count_to:
            options.count_to.write_text(str(watch.seen))


if __name__ == "__main__":
    main()
