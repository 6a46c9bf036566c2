"""Gives a task the metrics that an evaluation is asked for, and the one that chooses."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping

from motley_tff.core import options, task as task_lib
from motley_tff.core.errors import Name, UserError
from motley_tff.core.task import Metric, Task
from motley_tff.evaluation.config import EvaluationConfig
from motley_tff.metrics import per_client

LOSS = "loss"


def with_metrics(task: Task, config: EvaluationConfig) -> Task:
    """Returns a task with the metrics of an evaluation's settings beside its own; UserError for one
    that makes no sense for it.
    """
    asked = [(options.name_of(config, "metrics"), name) for name in config.metrics]
    tuning_metric = config.tuning_metric or _default(task)
    if tuning_metric is not None:
        asked.append((options.name_of(config, "tuning_metric"), tuning_metric))
    known = _known(task)
    for option, name in asked:
        _check(task, option, name, known)
    names = list(dict.fromkeys(name for _, name in asked if name != task.metric.name))
    own = {metric.name for metric in task.metrics}
    added = tuple(known[name] for name in names if name not in {*own, LOSS})
    chooses_by = known[tuning_metric] if tuning_metric else task.metric
    return dataclasses.replace(
        task,
        metrics=(*task.metrics, *added),
        summarized=tuple(known[name] for name in names),
        chooses_by=None if chooses_by is task.metric else chooses_by,
    )


def _default(task: Task) -> str | None:
    """Returns the loss for classes of a user's data: few examples say little by their accuracy, and
    dozens of candidates are compared. Others' data keep what was published.
    """
    return LOSS if task.is_own_data and task.label_unit is None else None


def _known(task: Task) -> Mapping[str, Metric]:
    """Returns what a task may be scored by, by name: of words and pictures nothing but its own."""
    has_scores = task.score is not None and task.scored_classes <= task_lib.MAX_SCORED_CLASSES
    added = {
        name: Metric(
            name, metric.function, metric.higher_is_better,
            by_client=True, reads_scores=metric.needs_scores,
        )
        for name, metric in per_client.METRICS.items()
        if task.prediction is not None and metric.of_numbers == (task.label_unit is not None)
        if has_scores or not metric.needs_scores
    }  # fmt: skip
    own = {metric.name: metric for metric in task.metrics}
    return {LOSS: Metric(LOSS, task.loss, False), **added, **own}


def _check(task: Task, option: Name, name: str, known: Mapping[str, Metric]) -> None:
    """Raises a UserError for a metric that a task does not have."""
    offered = [m for m in known if m != LOSS or option.flag == "tuning_metric"]
    if name in offered:
        return
    predicts = "classes" if task.label_unit is None else "numbers"
    if task.prediction is None:
        predicts = "no class or number of an example"
    near = difflib.get_close_matches(name, offered, 1)
    expected = f"one of {', '.join(offered)}, as {task.dataset} predicts {predicts}"
    raise UserError(option, name, expected, f"did you mean {near[0]}?" if near else "")
