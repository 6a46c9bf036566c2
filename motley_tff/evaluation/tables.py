"""The rows of all tables of an evaluation, without the keys of the run.

Rows are made as they are read: a population of any size needs no more than its scores.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.core.candidates import TUNINGS, Tuning
from motley_tff.core.task import Task
from motley_tff.evaluation import evaluate, example_scores, summary
from motley_tff.evaluation.client_scores import SPLITS, ClientScores, known_groups, values_at
from motley_tff.evaluation.evaluate import Accept, Row, client_cell
from motley_tff.evaluation.parts import OOD
from motley_tff.metrics import clusters


def rows(
    task: Task,
    labels: Sequence[str],
    scores: Mapping[str, ClientScores],
    tuning: Tuning,
    include_baseline: bool,
    accept: Accept | None = None,
) -> dict[str, Iterable[Row]]:
    """Chooses candidates and returns `{table: rows}`, which can be read once, but for `summary`.

    Args:
      labels: The candidates' labels; the first is the baseline.
      scores: `{split: scores}` with `valid` and `test`; of `train` only the curves are reported.
      tuning: See `evaluate.choose`, as for `include_baseline` and `accept`. Silos also have cells
        under either way to choose.
    """
    is_silo = task.setting == "cross_silo"
    tunings = TUNINGS if is_silo else (tuning,)
    chosen = {t: evaluate.choose(task, scores, t, include_baseline, accept) for t in tunings}
    views = [(split, scores[split], chosen[tuning][split]) for split in SPLITS]
    by_tuning = {s: {t: chosen[t][s] for t in TUNINGS} if is_silo else {} for s in SPLITS}
    chain = itertools.chain.from_iterable
    return {
        "candidates": chain(_candidate_rows(task, labels, s, scores[s]) for s in scores),
        "clients": chain(_client_rows(task, labels, *view, by_tuning[view[0]]) for view in views),
        "clusters": chain(_cluster_rows(task, s, scores[s]) for s in SPLITS),
        "scores": chain(example_scores.example_rows(task, *view) for view in views),
        "summary": [
            summary.summary_row(task, labels, *view)
            | summary.tuning_cells(task, labels, view[1], by_tuning[view[0]])
            | example_scores.roc_auc_cells(task, *view[1:])
            for view in views
        ],
    }


def _client_rows(
    task: Task,
    labels: Sequence[str],
    split: str,
    scores: ClientScores,
    chosen: np.ndarray,
    by_tuning: Mapping[Tuning, np.ndarray],
) -> Iterator[Row]:
    """Yields the clients' rows with the cells under distribution shift and those of silos."""
    cells: dict[str, Any] = {**summary.ood_columns(task, scores, chosen)}
    for tuning, candidates in by_tuning.items():
        values = values_at(task, scores, candidates)
        cells[f"candidate_{tuning}"] = [labels[candidate] for candidate in candidates]
        cells[f"personalized_{tuning}"] = values.personalized
        cells[f"is_hurt_{tuning}"] = evaluate.hurt_cells(values)
    for i, row in enumerate(evaluate.client_rows(task, labels, split, scores, chosen)):
        yield row | {name: column[i] for name, column in cells.items()}


def _candidate_rows(
    task: Task, labels: Sequence[str], split: str, scores: ClientScores
) -> Iterator[Row]:
    """Yields a row for each client and candidate."""
    metric = task.metric.name
    columns = {"value": scores.values[metric], "loss": scores.values["loss"]}
    if OOD in scores.further:
        columns["ood_value"] = scores.further[OOD].values[metric]
    for i, client_id in enumerate(scores.client_ids):
        keys = {"split": split, "client_id": client_cell(task, client_id), "metric": metric}
        values = zip(*(column[i].tolist() for column in columns.values()), strict=True)
        for label, cells in zip(labels, values, strict=True):
            yield {**keys, "candidate": label, **dict(zip(columns, cells, strict=True))}


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
