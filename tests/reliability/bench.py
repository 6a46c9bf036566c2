"""A place for one fault: a run's directory, what is mounted there, and a start of the trainer."""

import contextlib
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.reliability import trainer_runs

_WAIT_SECONDS = 120.0


class UnavailableError(Exception):
    """This machine cannot have the fault; the message says what it lacks."""


class Bench:
    """Where one fault happens.

    Attributes:
      setting: The trainer.
      folder: For whatever the fault needs.
      root: The trainer's --root_output_dir, in there.
      flags: Further flags of all runs here.
      stack: What is to be undone when all is over.
    """

    def __init__(self, setting: trainer_runs.Setting, folder: pathlib.Path):
        self.setting, self.folder, self.root = setting, folder, folder / "results"
        self.root.mkdir(parents=True)
        self.flags: tuple[str, ...] = ()
        self.stack = contextlib.ExitStack()

    @property
    def directory(self) -> pathlib.Path:
        """Where the run's files are."""
        return self.root / "run"

    def start(self, prefix: Sequence[str] = (), **options: Any) -> trainer_runs.Started:
        """Starts the trainer, behind a command such as `prlimit` if one is given."""
        command = self.setting.command(self.root, *self.flags)
        return trainer_runs.Started([*prefix, *command], **options)

    def run(self, prefix: Sequence[str] = (), **options: Any) -> trainer_runs.Ending:
        """Runs the trainer to its end."""
        return self.start(prefix, **options).ending()

    def start_training(self) -> trainer_runs.Started:
        """Starts the trainer and waits for its first checkpoint."""
        started = self.start()
        self._await(started, lambda: any(self.directory.glob("checkpoints/*.npz")))
        return started

    def start_holding(self) -> trainer_runs.Started:
        """Starts the trainer and waits until it holds its directory."""
        started = self.start()
        self._await(started, (self.directory / "run.json").exists)
        return started

    def _await(self, started: trainer_runs.Started, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not condition():
            if started.has_ended(0.005) or time.monotonic() > deadline:
                raise AssertionError(f"came not this far: {started.ending(0.0)}")


@contextlib.contextmanager
def mounted(at: pathlib.Path, *arguments: str) -> Iterator[None]:
    """Has something mounted.

    Raises:
      UnavailableError: If that is not allowed here.
    """
    at.mkdir(exist_ok=True)
    if os.geteuid():
        raise UnavailableError("mounting needs root")
    result = subprocess.run(
        ["mount", *arguments, str(at)], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise UnavailableError(f"mounting is not allowed: {result.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def small_disk(at: pathlib.Path, kilobytes: int) -> contextlib.AbstractContextManager[None]:
    """Has a file system of so many kB mounted."""
    return mounted(at, "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs")


@contextlib.contextmanager
def read_only(path: pathlib.Path) -> Iterator[None]:
    """Has a directory read-only, for root, too."""
    with mounted(path, "--bind", str(path)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        yield


def fill(disk: pathlib.Path, free_kilobytes: int) -> pathlib.Path:
    """Fills a disk but for so many kB; returns the file that does it."""
    statistics = os.statvfs(disk)
    available = statistics.f_bavail * statistics.f_frsize
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(max(0, available - 1024 * free_kilobytes)))
    return ballast
