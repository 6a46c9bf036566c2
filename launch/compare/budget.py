"""Rounds and grids that fit into a time: `plan.json`, made by the first timings and then kept.

Of each method one task is timed twice, with few rounds and with more; what a round takes is the
difference. The plan is the largest grid that leaves half the rounds asked for, or else the one of
most rounds. A comparison that goes on, or is repeated, takes the plan that is there.
"""

import contextlib
import json
import math
import pathlib
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from launch.compare.methods import LEVELS, Method
from launch.sweeps import processes, results, running
from launch.sweeps.plans import Plan
from launch.sweeps.processes import PlannedTask
from launch.sweeps.running import SweepOptions
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

_BUDGET = errors.name("budget")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
# Of the two timings.
_ROUNDS = (2, 22)
# What timings are off by, and the tables and pictures at the end.
_MARGIN = 0.8
_FILE = "plan.json"
# Reports do not look into it.
_FOLDER = ".timing"


class Training(NamedTuple):
    """What each method is trained for: rounds, and how much of its grid, one of `LEVELS`."""

    total_rounds: int
    level: str = LEVELS[0]


class Timing(NamedTuple):
    """What a method takes: tasks at each level, seconds of a task without rounds and of a round."""

    num_tasks: Mapping[str, int]
    seconds: float
    seconds_a_round: float


Build = Callable[[Method, Training], Plan]


def parse(text: str) -> float:
    """Returns the seconds of a text such as `90s`, `10m` or `1.5h`; UserError if it is no such."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not seconds:
        raise UserError(_BUDGET, text, "a time such as 90s, 10m or 2h")
    return seconds


def fitting(
    timings: Mapping[str, Timing],
    most_rounds: int,
    seconds: float,
    at_once: int,
    spent: float = 0.0,
) -> Training:
    """Returns the training that fits into so many seconds, of which some are spent; UserError if
    none does.
    """
    choices = []
    for level in LEVELS:
        alone = sum(t.num_tasks[level] * t.seconds for t in timings.values())
        a_round = sum(t.num_tasks[level] * t.seconds_a_round for t in timings.values())
        left = (seconds - spent) * _MARGIN * at_once - alone
        rounds = most_rounds if a_round <= 0 and left > 0 else int(left // max(a_round, 1e-9))
        choices.append(Training(min(most_rounds, rounds), level))
    enough = [choice for choice in choices if 2 * choice.total_rounds >= most_rounds]
    training = enough[0] if enough else max(choices, key=lambda choice: choice.total_rounds)
    if training.total_rounds < 1:
        tasks = [(t.num_tasks[LEVELS[-1]], t.seconds + t.seconds_a_round) for t in timings.values()]
        needed = sum(number * each for number, each in tasks) / (_MARGIN * at_once)
        expected = f"{math.ceil(spent + needed)}s or more, for one setting of each method"
        advice = "give more, or fewer algorithms or seeds"
        raise UserError(_BUDGET, f"{seconds:.0f}s", expected, advice)
    return training


def load(directory: pathlib.Path, request: Mapping[str, Any]) -> Training | None:
    """Returns the plan that a comparison of the same request left, None without one."""
    path = directory / _FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["request"] != json.loads(json.dumps(request)):
            return None
        training = Training(int(content["total_rounds"]), str(content["level"]))
        if training.total_rounds < 1 or training.level not in LEVELS:
            raise ValueError(f"{training.total_rounds} rounds of {training.level!r}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        expected = "the plan that motley_compare wrote"
        raise UserError(str(path), str(error), expected, "remove it to plan again") from error
    return training


def make(
    directory: pathlib.Path,
    request: Mapping[str, Any],
    methods: Sequence[Method],
    build: Build,
    most_rounds: int,
    budget: float,
    options: SweepOptions,
) -> Training:
    """Times each method, plans, and writes `plan.json`; UserError if nothing fits."""
    start = time.monotonic()
    timings = {m.name: _timing(directory / _FOLDER, m, build, options) for m in methods}
    at_once = options.max_parallel or processes.share_of_cores(options.cpus_per_task)
    if options.scheduler == "slurm" and options.max_parallel is None:
        at_once = sum(timing.num_tasks[LEVELS[0]] for timing in timings.values())
    training = fitting(timings, most_rounds, budget, at_once, time.monotonic() - start)
    content = {
        "request": request, "budget_seconds": budget, **training._asdict(),
        "timings": {name: timing._asdict() for name, timing in timings.items()},
    }  # fmt: skip
    with csv_files.replacing(directory / _FILE) as file:
        json.dump(content, file, indent=1, sort_keys=True)
        file.write("\n")
    shutil.rmtree(directory / _FOLDER, ignore_errors=True)
    return training


def _timing(folder: pathlib.Path, method: Method, build: Build, options: SweepOptions) -> Timing:
    seconds = []
    for rounds in _ROUNDS if method.has_rounds else _ROUNDS[:1]:
        plan = build(method, Training(rounds))
        with contextlib.ExitStack() as stack:
            name = f"{method.name}.{rounds}"
            sweep = stack.enter_context(running.opened(str(folder), name, plan))
            sweep.write_record("running")
            running.run_tasks([sweep], options, _leave_out, f"timing {name}", most=1)
            content = results.load(results.path_of(sweep.path, plan.tasks[0])) or {}
            seconds.append(float(content.get("seconds", 0.0)))
    tasks = {level: len(build(method, Training(_ROUNDS[0], level)).tasks) for level in LEVELS}
    a_round = max(0.0, seconds[-1] - seconds[0]) / (_ROUNDS[1] - _ROUNDS[0])
    return Timing(tasks, max(0.0, seconds[0] - _ROUNDS[0] * a_round), a_round)


def _leave_out(planned: PlannedTask, reason: str) -> None:
    """Says nothing of a method that is refused: its own runs will."""
