"""Small runs of the trainers to be disturbed, and what has to hold of their files."""

import atexit
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil

from motley_tff.files import csv_files
from tests.trainers import programs

BACKENDS = ("sequential", "vectorized", "tff")
# Several evaluations and checkpoints, which do not fall together.
_SCHOOL = (
    "--experiment_name=run",
    "--dataset_name=school",
    "--use_synthetic_data",
    "--client_learning_rate=0.01",
    "--train_batch_size=32",
    "--total_rounds=12",
    "--rounds_per_evaluation=3",
    "--rounds_per_checkpoint=2",
)
TRAINERS = {
    "finetuning_trainer": ("--finetune_learning_rate=0.01,0.03", "--finetune_max_epochs=2"),
    "hypcluster_trainer": ("--num_clusters=2", "--num_warmstart_fedavg_rounds=3"),
    "knn_per_trainer": ("--num_neighbors=5", "--coefficients=0.3,1", "--knn_tuning=per_client"),
    # The algorithm that leaves most files.
    "mtl_trainer": ("--algorithm=mocha",),
}
_MARK = "MOTLEY_RELIABILITY_MARK"
_TIMES = {"command", "started", "updated", "seconds", "seconds_before", "peak_memory_mb"}
_PROGRESS = re.compile(
    r".*: (goes on after )?\d+/\d+(, \w+ \S+)*(, about \S+ left)?|.*; results go to .*"
)
_ORPHAN_SECONDS = 5.0
_ENDS = {".png": b"IEND\xaeB`\x82", ".csv": b"\n", ".json": b"\n"}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One trainer on one backend."""

    trainer: str
    backend: str

    def __str__(self) -> str:
        return f"{self.trainer} {self.backend}"

    def command(self, root: pathlib.Path, *flags: str) -> list[str]:
        """Returns the command line of the run whose files go to `root/run`; `flags` come last."""
        return [sys.executable, "-m", *self._words(root), *flags]

    def watched(self, root: pathlib.Path, *options: str) -> list[str]:
        """Returns the command line of the run inside `killed_in_a_write`."""
        wrapper = [sys.executable, "-m", "tests.reliability.killed_in_a_write"]
        return [*wrapper, f"--directory={root}", *options, *self._words(root)]

    def _words(self, root: pathlib.Path) -> list[str]:
        own = (*_SCHOOL, *TRAINERS[self.trainer], f"--backend={self.backend}")
        return [f"trainers.{self.trainer}", f"--root_output_dir={root}", *own]


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a program ended; `survivors` are processes of its own that did not."""

    status: int
    stderr: str
    survivors: Sequence[str] = ()

    @property
    def messages(self) -> list[str]:
        """What stderr says, progress aside."""
        return [line for line in self.stderr.splitlines() if not _PROGRESS.fullmatch(line)]

    @property
    def outlived(self) -> list[str]:
        """A line for each of the survivors."""
        return [f"{name} outlived it" for name in self.survivors]

    @property
    def is_quiet(self) -> bool:
        """Whether stderr has no more than one line of ours."""
        return len(self.messages) <= 1 and "Traceback" not in self.stderr


class Started:
    """A program in a session of its own; whatever it starts can be told by a mark."""

    def __init__(self, command: Sequence[str], **options: Any):
        self._mark = uuid.uuid4().hex
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        environment = {**programs.environment(), **options.pop("environment", {})}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        self.process = subprocess.Popen(
            command,
            env={**environment, _MARK: self._mark},
            cwd=programs.ROOT,
            start_new_session=True,
            **{**streams, "stderr": self._stderr, **options},
        )
        atexit.register(self.process.kill)

    def has_ended(self, seconds: float) -> bool:
        """Waits so long at most; returns whether it came to its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode is not None

    def send(self, number: int) -> None:
        """Sends a signal: Ctrl-C as a terminal does, to all it started; others to it alone."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def ending(self, seconds: float = 300.0) -> Ending:
        """Waits for the end, and for that of all that it started."""
        if not self.has_ended(seconds):
            self.process.kill()
            self.process.wait()
            return Ending(-signal.SIGKILL, f"did not end within {seconds:g} seconds\n")
        atexit.unregister(self.process.kill)
        left = [process.name() for process in self._survivors()]
        self._stderr.seek(0)
        return Ending(self.process.returncode, self._stderr.read(), left)

    def _survivors(self) -> list[psutil.Process]:
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while (left := self.children()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in left:
            process.kill()
        return left

    def children(self) -> list[psutil.Process]:
        """Returns the processes that it started, directly or not."""
        return [p for p in psutil.process_iter() if p.pid != self.process.pid and self._owns(p)]

    def _owns(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE:
                return process.environ().get(_MARK) == self._mark
        return False


def run(command: Sequence[str], **options: Any) -> Ending:
    """Runs a program to its end."""
    return Started(command, **options).ending()


def files(directory: pathlib.Path) -> set[str]:
    """Returns the relative names of a run's files, its lock aside."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(directory)) for path in files}


def damages(directory: pathlib.Path) -> list[str]:
    """Returns which files are not whole; a temporary one need not be."""
    names = sorted(name for name in files(directory) if not name.endswith(".tmp"))
    return [f"{name} is damaged" for name in names if not _is_whole(directory / name)]


def _is_whole(path: pathlib.Path) -> bool:
    try:
        _content(path)
    except Exception:  # Whatever a reader says of a broken file.
        return False
    return path.read_bytes().endswith(_ENDS.get(path.suffix, b""))


def differences(expected: pathlib.Path, actual: pathlib.Path) -> list[str]:
    """Returns in what the files of a run differ from those of another, times aside.

    Of checkpoints the newest counts: a signal leaves one of the round at which it came, and which
    one is kept beside the newest differs by it.
    """
    first, second = (_without_older_checkpoints(files(path)) for path in (expected, actual))
    words = [f"{name} is missing" for name in sorted(first - second)]
    words += [f"{name} is left" for name in sorted(second - first)]
    both = sorted(first & second)
    return words + [f"{n} differs" for n in both if _differ(expected / n, actual / n)]


def _without_older_checkpoints(names: set[str]) -> set[str]:
    older = sorted(name for name in names if name.startswith("checkpoints/"))[:-1]
    return names.difference(older)


def _differ(first: pathlib.Path, second: pathlib.Path) -> bool:
    try:
        return _content(first) != _content(second)
    except Exception:
        return True


def _content(path: pathlib.Path) -> Any:
    """Returns what a file says, without times, as values that can be compared."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {n: (a.dtype.str, a.shape, a.tobytes()) for n, a in arrays.items()}
    if path.suffix == ".json":
        record = json.loads(path.read_text())
        return {name: value for name, value in record.items() if name not in _TIMES}
    rows = list(csv_files.read(path)) if path.suffix == ".csv" else []  # Says if it is whole.
    if path.name == "rounds.csv":
        return [{n: cell for n, cell in row.items() if not n.endswith("seconds")} for row in rows]
    return path.read_bytes()
