"""Runs tasks' processes side by side and keeps what came of them: rows, or why there are none.

A process dies with the one that started it, whatever ends that; all it writes is whole or resumed.
"""

import collections
import json
import os
import pathlib
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from launch.sweeps import results
from launch.sweeps.plans import Plan, SweepRun, SweepTask
from launch.sweeps.pool import End, Worker
from motley_tff import commandline
from motley_tff.commandline import children
from motley_tff.core import candidates, cores, signals
from motley_tff.core.errors import UserError
from motley_tff.experiment import summaries
from motley_tff.files import csv_files

# Slurm sends its signals to all of a job's processes: those that mean "time is running out" are for
# the one that started a task's.
_IGNORED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
# Time to write a checkpoint in, when asked to end.
_SECONDS_TO_END = 60.0
_KILOBYTES_PER_MEGABYTE = 1024.0
_SECONDS_BETWEEN_LOOKS = 0.1


class PlannedTask(NamedTuple):
    """A task of the sweep in a directory."""

    plan: Plan
    directory: pathlib.Path
    task: SweepTask


# What is called with each task that ended, and its results.
OnDone = Callable[[PlannedTask, dict[str, Any]], None]


class Process:
    """A task's running process, of a worker that has ended its last one, or of a new one."""

    def __init__(
        self,
        plan: Plan,
        directory: pathlib.Path,
        task: SweepTask,
        num_cores: int,
        worker: Worker | None = None,
    ):
        self.planned = PlannedTask(plan, directory, task)
        self._plan, self._directory, self.task = self.planned
        self._start = time.monotonic()
        self._end: End | None = None
        self._log = directory / "logs" / f"{task.name}.log"
        _, _, module, *arguments = plan.command(task, directory)
        if worker is None:
            own = {"OMP_NUM_THREADS": str(num_cores), "TMPDIR": str(directory / "scratch")}
            environment = os.environ | own | plan.environment
            worker = Worker(module, directory, environment, _IGNORED_SIGNALS, self._log)
        self.worker = worker
        worker.start(arguments, self._log)

    @property
    def was_ended(self) -> bool:
        """Whether the process ended because a signal asked for it, its work kept for the next."""
        ends = [128 + number for number in signals.ENDING]
        return self._end is not None and self._end.status in ends

    def is_running(self) -> bool:
        """Returns whether the process still runs."""
        with signals.delay():
            self._end = self._end or self.worker.poll()
            return self._end is None

    def signal(self, number: int) -> None:
        """Sends a signal, if the process still runs."""
        if self.is_running():
            self.worker.signal(number)

    def keep(self) -> dict[str, Any]:
        """Writes and returns what came of an ended process; UserError if it cannot be written."""
        path = results.path_of(self._directory, self.task)
        content = results.load(path) or self._of_trainer()
        seconds = round(time.monotonic() - self._start, 3)
        content |= {"seconds": seconds, "host": socket.gethostname()}
        _, cpu_seconds, kilobytes = self._end or End(0)
        if cpu_seconds is not None and kilobytes is not None:
            content["cpu_seconds"] = round(cpu_seconds, 3)
            content["peak_memory_mb"] = round(kilobytes / _KILOBYTES_PER_MEGABYTE, 1)
        results.save(path, content)
        return content

    def _of_trainer(self) -> dict[str, Any]:
        if self._end is not None and self._end.status:
            # A line of the user's to mend, before anything was written: others will fail alike.
            is_refused = self._end.status == UserError.exit_status
            has_begun = results.begun_path(self._directory, self.task).exists()
            return failure(self.task, self._reason(self._end.status), has_begun or not is_refused)
        if self.task.group is not None:
            return failure(self.task, f"left no results; see {self._log.name}")
        run = self.task.runs[0]
        try:
            return from_directory(self._directory / "runs" / run.run_id, self._plan, run)
        except (UserError, OSError, KeyError, ValueError) as error:
            return failure(self.task, f"its files cannot be read: {error}")

    def _reason(self, code: int) -> str:
        """Returns why the process failed: the last line of its log, or the signal that ended it."""
        if code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return f"ended by {signal.Signals(-code).name}{hint}"
        with open(self._log, "rb") as log:
            return children.last_line(log) or f"exit status {code}"


def run(waiting: collections.deque[PlannedTask], at_once: int, on_done: OnDone) -> None:
    """Runs tasks, so many at once, until all are done or a signal asks for the end; `on_done` may
    take some that wait away.
    """
    running: list[Process] = []
    idle: list[Process] = []
    num_cores = share_of_cores(at_once)
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                with signals.delay():  # One that comes before the note would leave it behind.
                    planned = waiting.popleft()
                    running.append(Process(*planned, num_cores, _idle_worker(idle, planned)))
            for process in [p for p in running if not p.is_running()]:
                running.remove(process)
                idle += [process] * process.worker.is_running
                on_done(process.planned, process.keep())
            commandline.raise_if_ended()
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    finally:
        end(running)
        for process in idle:
            process.worker.close()


def _idle_worker(idle: list[Process], planned: PlannedTask) -> Worker | None:
    """Takes a worker of the same sweep, or closes one of another: it holds memory for nothing."""
    process = next((p for p in idle if p.planned.directory == planned.directory), None)
    if process is None and idle:
        idle.pop(0).worker.close()
    if process is None:
        return None
    idle.remove(process)
    return process.worker


def end(running: Sequence[Process]) -> None:
    """Asks processes to end, as trainers do with a checkpoint, and waits until they have."""
    for process in running:
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + _SECONDS_TO_END
    for process in running:
        while process.is_running():
            if time.monotonic() > deadline:
                process.signal(signal.SIGKILL)
            time.sleep(0.05)
        process.worker.close()


def failure(task: SweepTask, reason: str, has_begun: bool = True) -> dict[str, Any]:
    """Returns what is kept of a task that came to nothing."""
    rows = [results.failed_run(run, reason) for run in task.runs]
    return {"runs": rows, "status": "failed", "reason": reason, "has_begun": has_begun}


def share_of_cores(num_processes: int) -> int:
    """Returns how many cores each of so many processes may use."""
    return max(1, cores.num_available() // num_processes)


def from_directory(directory: pathlib.Path, plan: Plan, run: SweepRun) -> dict[str, Any]:
    """Returns what is kept of a trainer's finished run."""
    record = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    higher = record["higher_is_better"]
    rows = list(csv_files.read(directory / "summary.csv"))
    chosen = rows[-1]["round"]
    if plan.grid.selects_round(run.point):
        chosen = candidates.best_round(rows, *summaries.chosen_by(record))
    reported = [row for row in rows if row["round"] == chosen]
    tuning = summaries.chosen_by(record) if "tuning_metric" in record else None
    result = results.of_run(run, reported, record["metric"], higher, tuning)
    return {"runs": [result], "status": "finished", "data_files": record.get("data_files", {})}
