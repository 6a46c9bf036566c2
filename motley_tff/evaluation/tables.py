"""The rows of all tables of an evaluation, without the keys of the run.

Rows are made as they are read: a population of any size needs no more than its scores.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff import metrics
from motley_tff.core import candidate_labels, candidates
from motley_tff.core.candidates import Tuning
from motley_tff.core.task import Task
from motley_tff.evaluation import evaluate, example_scores
from motley_tff.evaluation.client_scores import ClientScores, known_groups, values_at
from motley_tff.evaluation.evaluate import Accept, Row, client_cell
from motley_tff.evaluation.parts import OOD, SPLITS
from motley_tff.metrics import clusters, hurt
from motley_tff.metrics.client_values import ClientValues
from motley_tff.tables import columns


def rows(
    task: Task,
    labels: Sequence[str],
    scores: Mapping[str, ClientScores],
    tuning: Tuning,
    include_baseline: bool,
    accept: Accept | None = None,
    hurt_margin: float | None = None,
    estimates_hurt: bool = True,
) -> dict[str, Iterable[Row]]:
    """Chooses candidates and returns `{table: rows}`, which can be read once, but for `summary`.

    Args:
      labels: The candidates' labels; the first is the baseline.
      scores: `{split: scores}` with `valid` and `test`; of `train` only the curves are reported.
      tuning: See `evaluate.choose`, as for `include_baseline` and `accept`. Silos also have cells
        under either way to choose.
      hurt_margin: See `hurt.with_margin`; of test clients only, as validation clients choose.
      estimates_hurt: Whether it is estimated who is truly hurt, which takes 5 ms or more.
    """
    is_silo = task.setting == "cross_silo"
    tunings = columns.WAYS if is_silo else (tuning,)
    chosen = {t: evaluate.choose(task, scores, t, include_baseline, accept) for t in tunings}
    views = [(split, scores[split], chosen[tuning][split]) for split in SPLITS]
    by_tuning = {s: {t: chosen[t][s] for t in columns.WAYS if is_silo} for s in SPLITS}
    values = {s: values_at(task, scores[s], chosen[tuning][s]) for s in SPLITS}
    if estimates_hurt:
        values["test"] = hurt.with_margin(values["test"], hurt_margin)
    summary_rows = []
    for split, split_scores, candidate in views:
        row = summary_row(task, labels, split, split_scores, candidate, values[split])
        row |= example_scores.roc_auc_cells(task, split_scores, candidate)
        for t, c in by_tuning[split].items():
            row |= metrics.of_way(t, _label(labels, c), values_at(task, split_scores, c))
        summary_rows.append(row)
    chain = itertools.chain.from_iterable
    return {
        "candidates": chain(_candidate_rows(task, labels, s, scores[s]) for s in scores),
        "clients": chain(
            _client_rows(task, labels, *view, by_tuning[view[0]], values[view[0]]) for view in views
        ),
        "clusters": chain(_cluster_rows(task, s, scores[s]) for s in SPLITS),
        "scores": chain(example_scores.example_rows(task, *view) for view in views),
        "summary": summary_rows,
    }


def _client_rows(
    task: Task,
    labels: Sequence[str],
    split: str,
    scores: ClientScores,
    chosen: np.ndarray,
    by_tuning: Mapping[Tuning, np.ndarray],
    values: ClientValues,
) -> Iterator[Row]:
    """Yields the clients' rows with the cells under distribution shift and those of silos."""
    cells: dict[str, Any] = {**_ood_columns(task, scores, chosen)}
    effects = values.true_effects
    probability = np.full(len(chosen), np.nan) if effects is None else effects.probability_hurt
    cells["probability_hurt"] = evaluate.empty_cells(probability)
    for tuning, own in by_tuning.items():
        tuned = values_at(task, scores, own)
        cells[f"candidate_{tuning}"] = [labels[candidate] for candidate in own]
        cells[f"personalized_{tuning}"] = tuned.personalized
        cells[f"is_hurt_{tuning}"] = np.where(tuned.is_scored, tuned.is_hurt, np.array(None))
    for i, row in enumerate(evaluate.client_rows(task, labels, split, scores, chosen)):
        yield row | {name: column[i] for name, column in cells.items()}


def _candidate_rows(
    task: Task, labels: Sequence[str], split: str, scores: ClientScores
) -> Iterator[Row]:
    """Yields a row for each client and candidate."""
    metric = task.metric.name
    curves = {"value": scores.values[metric], "loss": scores.values["loss"]}
    if OOD in scores.further:
        curves["ood_value"] = scores.further[OOD][metric]
    for i, client_id in enumerate(scores.client_ids):
        keys = {"split": split, "client_id": client_cell(task, client_id), "metric": metric}
        values = zip(*(column[i].tolist() for column in curves.values()), strict=True)
        for label, cells in zip(labels, values, strict=True):
            yield {**keys, "candidate": label, **dict(zip(curves, cells, strict=True))}


def _cluster_rows(task: Task, split: str, scores: ClientScores) -> Iterator[Row]:
    """Yields how many clients of each known group are in each cluster."""
    if scores.clusters is None:
        return
    known = known_groups(task, scores.client_ids)
    groups = np.full(len(scores.clusters), "") if known is None else known
    for cluster, members in clusters.composition(scores.clusters, groups).items():
        for group, number in members.items():
            cells = {"cluster_id": cluster + 1, "group": group or None, "num_clients": number}
            yield {"split": split, **cells}


def summary_row(
    task: Task,
    labels: Sequence[str],
    split: str,
    scores: ClientScores,
    chosen: np.ndarray,
    values: ClientValues,
) -> dict[str, Any]:
    """Returns the statistics of a split's values at each client's candidate, without the run's
    keys.
    """
    num_diverged = candidates.diverged_for(scores.values[task.metric.name])
    diverged = [name for name, number in zip(labels, num_diverged, strict=True) if number]
    references = [task.reference[i] for i in scores.client_ids if i in task.reference]
    row = {
        "split": split,
        "candidate": _label(labels, chosen),
        "diverged_candidates": " ".join(diverged),
        **metrics.summarize(values),
        "reference_mean": np.mean(references) if references else None,
    }
    for metric in task.summarized:
        row |= metrics.of_further(metric.name, values_at(task, scores, chosen, metric))
    for name, column in _ood_columns(task, scores, chosen).items():
        finite = column[np.isfinite(column)]
        row[f"{name}_mean"] = np.mean(finite) if len(finite) else None
    return row


def _ood_columns(task: Task, scores: ClientScores, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the metric of both models under distribution shift, if there are such scores."""
    if OOD not in scores.further:
        return {}
    values = scores.further[OOD][task.metric.name].astype(np.float64)
    return {"ood_baseline": values[:, 0], "ood_personalized": candidates.take(values, chosen)}


def _label(labels: Sequence[str], chosen: np.ndarray) -> str:
    return candidate_labels.of_clients([labels[candidate] for candidate in np.unique(chosen)])
