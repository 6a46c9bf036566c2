"""The scheduler of a cluster: Slurm, through submitit. A task is a job of an array.

A job that is pre-empted or runs out of time (SIGTERM; SIGUSR1 90 seconds before the limit) lets its
trainer write a checkpoint and goes back into the queue; its next start resumes from there.
"""

import contextlib
import dataclasses
import hashlib
import io
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from launch.sweeps import plans, processes, results
from launch.sweeps.plans import SweepTask
from launch.sweeps.processes import OnDone, PlannedTask
from motley_tff import commandline
from motley_tff.core import cores, errors, signals
from motley_tff.core.errors import UserError
from motley_tff.core.options import option

# Slurm's default MaxArraySize is 1001.
_MAX_JOBS = 1000
_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_BETWEEN_QUESTIONS = 5.0
# For shared file systems, on which a file shows up late.
_SECONDS_OF_GRACE = 20.0
_MAX_REQUEUES = 1000
# submitit asks this variable which signal it is that says that time is running out.
os.environ.setdefault("SUBMITIT_PREEMPT_SIGNAL", "USR1")


@dataclasses.dataclass(frozen=True)
class Resources:
    """What a job asks for; Slurm decides what is None. A job at its time limit continues later."""

    cpus_per_task: int = option(1, "Cores for each task", lower=1)
    max_parallel: int | None = option(
        None, "Tasks at once (default: as many as there are cores for; with slurm, all)", lower=1
    )
    slurm_partition: str | None = option(None, "Partition (default: the cluster's)")
    slurm_hours: float = option(12.0, "Time limit of a job, which then goes on in another")
    slurm_memory_gb: float | None = option(None, "Memory of a job (default: the partition's)")


class Job:
    """What a job does: one task of the sweep in `directory`."""

    def __init__(self, directory: str):
        self._directory = pathlib.Path(directory)
        self._process: processes.Process | None = None

    def __call__(self, number: int) -> None:
        """Runs a task, unless it is finished."""
        plan = plans.load(self._directory)
        task = plan.tasks[number]
        if results.is_finished(self._directory, task):
            return
        signal.signal(signal.SIGTERM, self._end)
        with signals.delay():  # One that comes before the note would leave it behind.
            self._process = processes.Process(plan, self._directory, task, cores.num_available())
        while self._process.is_running():
            time.sleep(_SECONDS_BETWEEN_LOOKS / 10)
        self._process.worker.close()
        if self._process.was_ended:  # By the signal that will end this process, too.
            sys.exit(128 + signal.SIGTERM)
        self._process.keep()

    def checkpoint(self, number: int) -> Any:
        """Returns what submitit puts back into the queue; called on SIGUSR1."""
        import submitit  # Takes 80 ms.

        self._stop()
        return submitit.helpers.DelayedSubmission(Job(str(self._directory)), number)

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Slurm itself puts a job back that it pre-empts with SIGTERM."""
        self._stop()
        sys.exit(128 + number)

    def _stop(self) -> None:
        if self._process is not None:
            processes.end([self._process])


def check() -> None:
    """Raises a UserError unless there is a Slurm to talk to."""
    missing = [name for name in ("sbatch", "squeue", "srun") if shutil.which(name) is None]
    if missing:
        name = errors.name("scheduler")
        expected = f"a machine that has Slurm's programs {', '.join(missing)}"
        raise UserError(name, "slurm", expected, f"log in to the cluster, or give {name}=local")


def run(tasks: Sequence[PlannedTask], on_done: OnDone, resources: Resources) -> None:
    """Runs tasks as arrays of jobs, so many of a sweep at once, until all are done; a signal
    cancels the rest.

    Jobs read the plan from the directory, which is on a file system that all nodes share. `on_done`
    is called with each task that ended, and its results. UserError if Slurm refuses the jobs.
    """
    names = {planned.directory: _job_name(planned.directory) for planned in tasks}
    for name in names.values():
        _cancel_leftovers(name)
    try:
        for start in range(0, len(tasks), _MAX_JOBS):
            waiting: list[tuple[PlannedTask, str]] = []
            for directory, name in names.items():
                some = [p for p in tasks[start : start + _MAX_JOBS] if p.directory == directory]
                if some:
                    numbers = [planned.task for planned in some]
                    job_ids = _submit(directory.absolute(), name, numbers, resources)
                    waiting += zip(some, job_ids, strict=True)
            _wait(waiting, on_done)
    except BaseException:
        for name in names.values():
            subprocess.run(["scancel", f"--name={name}"], capture_output=True, check=False)
        raise


def _job_name(directory: pathlib.Path) -> str:
    """Returns what the jobs of a sweep are called."""
    return "motley_" + hashlib.sha256(str(directory.absolute()).encode()).hexdigest()[:12]


def _submit(
    directory: pathlib.Path, name: str, tasks: Sequence[SweepTask], resources: Resources
) -> list[str]:
    import submitit  # Takes 80 ms.

    executor = submitit.SlurmExecutor(directory / "logs" / "slurm", max_num_timeout=_MAX_REQUEUES)
    memory = resources.slurm_memory_gb
    executor.update_parameters(
        job_name=name, time=max(1, round(60 * resources.slurm_hours)),
        cpus_per_task=resources.cpus_per_task,
        array_parallelism=resources.max_parallel or len(tasks), stderr_to_stdout=True,
        additional_parameters={"requeue": True}, partition=resources.slurm_partition,
        mem=f"{round(memory * 1024)}MB" if memory else None,
    )  # fmt: skip
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # Says once more what it raises.
            jobs = executor.map_array(Job(str(directory)), [task.number for task in tasks])
    except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
        messages = re.findall(r"sbatch: error: (.*)", str(error)) or [str(error)]
        advice = "check --slurm_partition, --slurm_hours, --slurm_memory_gb and --cpus_per_task"
        raise UserError("Slurm", f"jobs that it refuses ({messages[0]})", advice=advice) from error
    return [job.job_id for job in jobs]


def _wait(waiting: list[tuple[PlannedTask, str]], on_done: OnDone) -> None:
    """Waits until every task's job has left results, or has left the queue without any."""
    gone_since: dict[str, float] = {}
    asked_at, queued = 0.0, {job_id for _, job_id in waiting}
    while waiting:
        commandline.raise_if_ended()
        now = time.monotonic()
        if now - asked_at > _SECONDS_BETWEEN_QUESTIONS:
            asked_at, queued = now, _queued([job_id for _, job_id in waiting], queued)
        for planned, job_id in list(waiting):
            if job_id not in queued:
                gone_since.setdefault(job_id, now)
            is_late = now - gone_since.get(job_id, now) > _SECONDS_OF_GRACE
            content = _content(planned.directory, planned.task, job_id, is_late)
            if content is not None:
                waiting.remove((planned, job_id))
                on_done(planned, content)
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _content(
    directory: pathlib.Path, task: SweepTask, job_id: str, is_late: bool
) -> dict[str, Any] | None:
    """Returns a task's results, or None if they are still to come."""
    path = results.path_of(directory, task)
    content = results.load(path)
    if content is None and is_late:
        reason = f"Slurm job {job_id} ended without results; see logs/slurm"
        content = processes.failure(task, reason)
        results.save(path, content)
    return content if content is not None and ("seconds" in content or is_late) else None


def _queued(job_ids: Sequence[str], known: set[str]) -> set[str]:
    """Returns which jobs are in the queue or run; what is known if Slurm does not say."""
    arrays = ",".join(sorted({job_id.partition("_")[0] for job_id in job_ids}))
    answer = _squeue("--array", f"--jobs={arrays}", "--format=%i")
    if answer.returncode == 0:
        return set(answer.stdout.split())
    return set() if "Invalid job id" in answer.stderr else known


def _cancel_leftovers(name: str) -> None:
    """Ends the jobs that a start which was killed left, so that no task runs twice."""
    subprocess.run(["scancel", f"--name={name}"], capture_output=True, check=False)
    while True:
        answer = _squeue(f"--name={name}", "--format=%i")
        if answer.returncode:
            answered = f"no answer ({answer.stderr.strip()})"
            raise UserError("Slurm", answered, advice="check that its controller, slurmctld, runs")
        if not answer.stdout.split():
            return
        commandline.raise_if_ended()
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _squeue(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["squeue", "--noheader", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
