"""The scheduler of one machine: so many processes side by side."""

import collections
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from launch.sweeps import plans, processes
from motley_tff import commandline
from motley_tff.core import signals

_SECONDS_BETWEEN_LOOKS = 0.1


def run(
    plan: plans.Plan,
    directory: pathlib.Path,
    tasks: Sequence[plans.Task],
    max_parallel: int,
    on_done: Callable[[plans.Task, dict[str, Any]], None],
) -> None:
    """Runs tasks until all are done or a signal asks for the end.

    Args:
      plan: The sweep.
      directory: Its directory.
      tasks: What is left of it.
      max_parallel: How many at once.
      on_done: Called with each task that ended, and its results.
    """
    waiting = collections.deque(tasks)
    running: list[processes.Process] = []
    num_cores = processes.share_of_cores(max_parallel)
    try:
        while waiting or running:
            while waiting and len(running) < max_parallel:
                with signals.held():  # One that comes before the note would leave it behind.
                    process = processes.Process(plan, directory, waiting.popleft(), num_cores)
                    running.append(process)
            for process in [p for p in running if not p.is_running()]:
                running.remove(process)
                on_done(process.task, process.keep())
            commandline.raise_if_ended()
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    finally:
        processes.end(running)
