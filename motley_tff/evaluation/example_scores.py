"""Scores of single examples, where a task exports them: their rows, and the ROC-AUC over them."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from motley_tff.core.task import Task
from motley_tff.evaluation.client_scores import ClientScores
from motley_tff.evaluation.evaluate import client_cell
from motley_tff.files import csv_files
from motley_tff.metrics import roc_auc
from motley_tff.tables import columns


def example_rows(
    task: Task, split: str, scores: ClientScores, chosen: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Yields a row for each example and class; the one score of two classes has no class."""
    classes: list[str | None] = [None]
    if task.scored_classes:
        numbers = range(task.scored_classes)
        classes = [task.label_names[i] if task.label_names else str(i) for i in numbers]
    for client_id, *arrays in _examples(task, scores, chosen):
        keys = {"split": split, "client_id": client_cell(task, client_id)}
        for name, *columns_of_class in zip(classes, *arrays, strict=True):
            keys |= csv_files.formula_safe({"class": name})
            for label, baseline, personalized in zip(*columns_of_class, strict=True):
                cells = {"baseline_score": baseline, "personalized_score": personalized}
                yield {**keys, "label": int(label), **cells}


def roc_auc_cells(task: Task, scores: ClientScores, chosen: np.ndarray) -> dict[str, float]:
    """Returns the ROC-AUC, pooled and averaged, of exported scores: the mean over those classes
    that have them all, for the means to be comparable; over all where none has.
    """
    clients = [arrays for _, *arrays in _examples(task, scores, chosen)]
    if not clients:
        return {}
    ids = np.repeat(np.arange(len(clients)), [labels.shape[1] for labels, *_ in clients])
    labels, *models = (np.concatenate(arrays, axis=1) for arrays in zip(*clients, strict=True))
    cells = {}
    for model, model_scores in zip(columns.MODELS, models, strict=True):
        by_class = [roc_auc.summarize(ids, *c) for c in zip(labels, model_scores, strict=True)]
        by_class = [aucs for aucs in by_class if np.isfinite(aucs).all()] or by_class
        for name, aucs in zip(roc_auc.RocAuc._fields, zip(*by_class, strict=True), strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # No class at all that has positives and negatives.
                cells[f"{model}_roc_auc_{name}"] = np.nanmean(aucs)
    return cells


def _examples(
    task: Task, scores: ClientScores, chosen: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Yields (client id, bool whether an example is of the class, float32 scores under the baseline
    and under the candidate), all [num_classes, n], of every client's examples of known classes.
    """
    examples = scores.examples
    for client_id, candidate, (labels, outputs) in zip(
        scores.client_ids, chosen, examples, strict=bool(examples)
    ):
        is_known = (labels >= 0) | (task.score is None)
        labels = labels[is_known]
        num_candidates = outputs.shape[1] // task.num_scores
        by_candidate = outputs[is_known].reshape(len(labels), num_candidates, task.num_scores)
        if task.scored_classes:
            is_of_class = labels[None] == np.arange(task.scored_classes)[:, None]
        else:
            is_of_class = labels[None] > 0
        yield client_id, is_of_class, by_candidate[:, 0].T, by_candidate[:, candidate].T
