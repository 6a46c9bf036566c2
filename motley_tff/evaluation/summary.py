"""The row of `summary.csv`: what a split's clients have at their candidates, as statistics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff import metrics
from motley_tff.core import candidate_labels, candidates
from motley_tff.core.candidates import Tuning
from motley_tff.core.task import Task
from motley_tff.evaluation.client_scores import ClientScores, values_at
from motley_tff.evaluation.parts import OOD


def summary_row(
    task: Task, labels: Sequence[str], split: str, scores: ClientScores, chosen: np.ndarray
) -> dict[str, Any]:
    """Returns the statistics of a split at each client's candidate, without the run's keys."""
    num_diverged = candidates.diverged_for(scores.values[task.metric.name])
    diverged = [label for label, number in zip(labels, num_diverged, strict=True) if number]
    references = [task.reference[i] for i in scores.client_ids if i in task.reference]
    row = {
        "split": split,
        "candidate": _label(labels, chosen),
        "diverged_candidates": " ".join(diverged),
        **metrics.summarize(values_at(task, scores, chosen)),
        "reference_mean": np.mean(references) if references else None,
    }
    for name, column in ood_columns(task, scores, chosen).items():
        finite = column[np.isfinite(column)]
        row[f"{name}_mean"] = np.mean(finite) if len(finite) else None
    return row


def tuning_cells(
    task: Task,
    labels: Sequence[str],
    scores: ClientScores,
    chosen_by_tuning: Mapping[Tuning, np.ndarray],
) -> dict[str, Any]:
    """Returns the cells that a row has of silos, under both ways to choose a candidate."""
    cells: dict[str, Any] = {}
    for tuning, chosen in chosen_by_tuning.items():
        values = values_at(task, scores, chosen)
        cells |= metrics.of_way(tuning, _label(labels, chosen), values)
    return cells


def ood_columns(task: Task, scores: ClientScores, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the metric of both models under distribution shift, if there are such scores."""
    if OOD not in scores.further:
        return {}
    values = values_at(task, scores.further[OOD], chosen)
    return {"ood_baseline": values.baseline, "ood_personalized": values.personalized}


def _label(labels: Sequence[str], chosen: np.ndarray) -> str:
    return candidate_labels.of_clients([labels[candidate] for candidate in np.unique(chosen)])
