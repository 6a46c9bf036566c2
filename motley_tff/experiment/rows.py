"""Chooses candidates on validation clients, and makes the tables' rows of an evaluation.

Rows are made as they are read: a population of any size needs no more than its scores.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motley_tff import metrics as metrics_lib
from motley_tff.core import candidate_labels, candidates as candidates_lib
from motley_tff.core.task import Task
from motley_tff.experiment import held_out
from motley_tff.experiment.client_scores import SPLITS, Scores
from motley_tff.files import csv_files
from motley_tff.metrics import clusters as clusters_lib, roc_auc
from motley_tff.metrics.client_values import ClientValues
from motley_tff.tables import columns

# (split, chosen candidate of each client) -> which clients accept it
Accept = Callable[[str, np.ndarray], np.ndarray]
_Row = dict[str, Any]


class Rows:
    """Rows that are made anew, by these functions, each time they are read."""

    def __init__(self, *parts: Callable[[], Iterable[dict[str, Any]]]):
        self._parts = parts

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for part in self._parts:
            yield from part()


@dataclasses.dataclass(frozen=True)
class Report:
    """An evaluation as rows of tables of these names, without the keys of the run."""

    clients: Rows
    candidates: Rows
    clusters: Rows
    scores: Rows
    summary: list[dict[str, Any]]


def choose(
    task: Task,
    scores: Mapping[str, Scores],
    tuning: candidates_lib.Tuning,
    include_baseline: bool,
    accept: Accept | None = None,
) -> dict[str, np.ndarray]:
    """Returns `{split: candidate of each client}`, chosen on the validation scores.

    Args:
      tuning: One candidate for all, or each silo its own.
      accept: Says who takes it; the others stay with candidate 0. Everybody, if not given.
    """
    valid = scores["valid"].values[task.metric.name]
    best = candidates_lib.choose(valid, task.metric.higher_is_better, tuning, include_baseline)
    chosen = {s: np.broadcast_to(best, len(scores[s].client_ids)) for s in SPLITS}
    if accept is None:
        return chosen
    return {s: np.where(accept(s, c), c, 0) for s, c in chosen.items()}


def summarize(
    task: Task, labels: Sequence[str], split: str, scores: Scores, chosen: np.ndarray
) -> dict[str, Any]:
    """Returns a split's row of `summary.csv` at each client's candidate, without the run's keys."""
    values = client_values_of(task, scores, chosen)
    ood = _ood_values(task, scores, chosen)
    references = [task.reference[i] for i in values.client_ids if i in task.reference]
    return {
        "split": split,
        "candidate": _label(labels, chosen),
        "diverged_candidates": _diverged(task, labels, scores),
        **metrics_lib.summarize(values),
        "reference_mean": np.mean(references) if references else None,
        **{f"ood_{name}_mean": _finite_mean(column) for name, column in ood.items()},
    }


def report(
    task: Task,
    labels: Sequence[str],
    scores: Mapping[str, Scores],
    tuning: candidates_lib.Tuning,
    include_baseline: bool,
    accept: Accept | None = None,
) -> Report:
    """Chooses candidates on the validation scores and reports every split at them.

    Args:
      labels: The candidates' labels; the first is the baseline.
      scores: `{split: scores}` with `valid` and `test`; of `train` only the curves are reported.
    """
    chosen = {
        how: choose(task, scores, how, include_baseline, accept)
        for how in (columns.WAYS if task.setting == "cross_silo" else (tuning,))
    }
    views = [_view(task, split, scores[split], chosen, tuning) for split in SPLITS]
    part = functools.partial
    return Report(
        clients=Rows(*(part(_client_rows, task, labels, view) for view in views)),
        candidates=Rows(*(part(_candidate_rows, task, labels, *item) for item in scores.items())),
        clusters=Rows(*(part(_cluster_rows, task, view.split, view.scores) for view in views)),
        scores=Rows(*(part(_score_rows, task, view) for view in views)),
        summary=[
            summarize(task, labels, view.split, view.scores, view.chosen)
            | {
                k: v
                for how, (c, values) in view.tunings.items()
                for k, v in metrics_lib.of_way(how, _label(labels, c), values).items()
            }
            | _roc_aucs(task, view)
            for view in views
        ],
    )


class _SplitView(NamedTuple):
    """A split at the chosen candidates; silos also under both ways to choose."""

    split: str
    scores: Scores
    chosen: np.ndarray
    tunings: Mapping[candidates_lib.Tuning, tuple[np.ndarray, ClientValues]]


def _view(
    task: Task,
    split: str,
    scores: Scores,
    chosen: Mapping[candidates_lib.Tuning, Mapping[str, np.ndarray]],
    tuning: candidates_lib.Tuning,
) -> _SplitView:
    candidates = {how: chosen[how][split] for how in columns.WAYS if task.setting == "cross_silo"}
    tunings = {h: (c, client_values_of(task, scores, c)) for h, c in candidates.items()}
    return _SplitView(split, scores, chosen[tuning][split], tunings)


class _ClientExamples(NamedTuple):
    """A client's examples of known classes, those of every class after the other.

    Attributes:
      labels: bool [num_classes, n], whether an example is of the class.
      baseline: float32 [num_classes, n], its score under the global model.
      personalized: The same under the client's own.
    """

    client_id: str
    labels: np.ndarray
    baseline: np.ndarray
    personalized: np.ndarray


def _examples(task: Task, view: _SplitView) -> Iterator[_ClientExamples]:
    """Yields the examples of every client of a split whose scores are exported."""
    examples = view.scores.examples
    for client_id, candidate, (labels, scores) in zip(
        view.scores.client_ids, view.chosen, examples, strict=bool(examples)
    ):
        is_known = (labels >= 0) | (task.score is None)
        labels = labels[is_known]
        by_candidate = scores[is_known].reshape(len(labels), -1, task.num_scores)
        if task.scored_classes:
            of_class = labels[None] == np.arange(task.scored_classes)[:, None]
        else:
            of_class = labels[None] > 0
        yield _ClientExamples(
            client_id, of_class, by_candidate[:, 0].T, by_candidate[:, candidate].T
        )


def _score_rows(task: Task, view: _SplitView) -> Iterator[_Row]:
    for client in _examples(task, view):
        cell = client_cell(task, client.client_id)
        for i in range(task.num_scores):
            keys = {"split": view.split, "client_id": cell}
            keys |= csv_files.formula_safe({"class": _class_name(task, i)})
            cells = (client.labels[i], client.baseline[i], client.personalized[i])
            for label, baseline, personalized in zip(*cells, strict=True):
                yield {
                    **keys,
                    "label": int(label),
                    "baseline_score": baseline,
                    "personalized_score": personalized,
                }


def _class_name(task: Task, i: int) -> str | None:
    """Returns what a class of one-vs-rest scores is called; None of the one score of two."""
    if not task.scored_classes:
        return None
    return task.label_names[i] if task.label_names else str(i)


def _roc_aucs(task: Task, view: _SplitView) -> dict[str, float]:
    """Returns the ROC-AUC, pooled and averaged, of exported scores: the mean over those classes
    that have them all, for the means to be comparable; over all where none has.
    """
    clients = list(_examples(task, view))
    if not clients:
        return {}
    sizes = [client.labels.shape[1] for client in clients]
    ids = np.repeat(np.arange(len(clients)), sizes)
    labels = np.concatenate([client.labels for client in clients], axis=1)
    found = {}
    for model in columns.MODELS:
        scores = np.concatenate([getattr(client, model) for client in clients], axis=1)
        each = [roc_auc.summarize(ids, *of) for of in zip(labels, scores, strict=True)]
        each = [of for of in each if np.isfinite(of).all()] or each
        for name, values in zip(roc_auc.RocAuc._fields, zip(*each, strict=True), strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # No class at all that has positives and negatives.
                found[f"{model}_roc_auc_{name}"] = np.nanmean(values)
    return found


def _cluster_rows(task: Task, split: str, scores: Scores) -> Iterator[_Row]:
    """Yields how many clients of each known group are in each cluster."""
    if scores.clusters is None:
        return
    known = _groups(task, scores.client_ids)
    groups = np.full(len(scores.clusters), "") if known is None else known
    for cluster, members in clusters_lib.composition(scores.clusters, groups).items():
        for group, number in members.items():
            cells = {"cluster_id": cluster + 1, "group": group or None, "num_clients": number}
            yield {"split": split, **cells}


def _tuning_cells(labels: Sequence[str], tunings: Mapping[Any, Any], i: int) -> dict[str, Any]:
    """Returns what a silo has under both ways to choose."""
    cells = {}
    for how, (chosen, values) in tunings.items():
        cells[f"candidate_{how}"] = labels[chosen[i]]
        cells[f"personalized_{how}"] = values.personalized[i]
        cells[f"is_hurt_{how}"] = values.is_hurt[i] if values.is_scored[i] else None
    return cells


def _diverged(task: Task, labels: Sequence[str], scores: Scores) -> str:
    numbers = candidates_lib.diverged_for(scores.values[task.metric.name])
    return " ".join(label for label, number in zip(labels, numbers, strict=True) if number)


def _label(labels: Sequence[str], chosen: np.ndarray) -> str:
    return candidate_labels.of_clients([labels[c] for c in np.unique(chosen)])


def client_values_of(task: Task, scores: Scores, chosen: np.ndarray) -> ClientValues:
    """Returns a split's per-client values, each client's at its candidate."""
    values = scores.values[task.metric.name].astype(np.float64)
    return ClientValues(
        client_ids=np.array(scores.client_ids),
        baseline=values[:, 0],
        personalized=candidates_lib.take(values, chosen),
        higher_is_better=task.metric.higher_is_better,
        num_evaluation_examples=scores.num_evaluation_examples,
        clusters=scores.clusters,
        groups=_groups(task, scores.client_ids),
    )


def _groups(task: Task, client_ids: Sequence[str]) -> np.ndarray | None:
    """Returns the known group of each client, if the data say so for all of them."""
    known = task.facts.get("client_groups", {})
    if not client_ids or any(i not in known for i in client_ids):
        return None
    return np.array([str(known[i]) for i in client_ids])


def client_cell(task: Task, client_id: str) -> str:
    """Returns `<dataset>:<id>`, which keeps leading zeros and is no formula."""
    return f"{task.dataset}:{client_id}"


def _client_rows(task: Task, labels: Sequence[str], view: _SplitView) -> Iterator[_Row]:
    scores, chosen = view.scores, view.chosen
    values = client_values_of(task, scores, chosen)
    ood = _ood_values(task, scores, chosen)
    at_chosen = {name: candidates_lib.take(v, chosen) for name, v in scores.values.items()}
    for i, client_id in enumerate(scores.client_ids):
        row = {
            "split": view.split,
            "client_id": client_cell(task, client_id),
            "cluster_id": None if scores.clusters is None else scores.clusters[i] + 1,
            "candidate": labels[chosen[i]],
            "num_personalization_examples": scores.num_personalization_examples[i],
            "num_evaluation_examples": scores.num_evaluation_examples[i],
            "metric": task.metric.name,
            "higher_is_better": task.metric.higher_is_better,
            "baseline": values.baseline[i],
            "personalized": values.personalized[i],
            "delta": values.delta[i],
            "is_hurt": values.is_hurt[i] if values.is_scored[i] else None,
            "reference": task.reference.get(client_id),
            "group": None if values.groups is None else values.groups[i],
        }
        for name in ("loss", *(m.name for m in task.metrics[1:])):
            row[f"baseline_{name}"] = scores.values[name][i, 0]
            row[f"personalized_{name}"] = at_chosen[name][i]
        row |= {f"ood_{name}": column[i] for name, column in ood.items()}
        yield row | _tuning_cells(labels, view.tunings, i)


def _ood_values(task: Task, scores: Scores, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the metric of both models on the other clients' examples, if there are scores."""
    if held_out.OOD not in scores.beside:
        return {}
    values = scores.beside[held_out.OOD].values[task.metric.name].astype(np.float64)
    return {"baseline": values[:, 0], "personalized": candidates_lib.take(values, chosen)}


def _finite_mean(values: np.ndarray) -> float | None:
    values = values[np.isfinite(values)]
    return float(np.mean(values)) if len(values) else None


def _candidate_rows(
    task: Task, labels: Sequence[str], split: str, scores: Scores
) -> Iterator[_Row]:
    metric = task.metric.name
    columns_of = {"value": scores.values[metric], "loss": scores.values["loss"]}
    if held_out.OOD in scores.beside:
        columns_of["ood_value"] = scores.beside[held_out.OOD].values[metric]
    for i, client_id in enumerate(scores.client_ids):
        keys = {"split": split, "client_id": client_cell(task, client_id)}
        values = zip(*(column[i].tolist() for column in columns_of.values()), strict=True)
        for label, cells in zip(labels, values, strict=True):
            own = dict(zip(columns_of, cells, strict=True))
            yield {**keys, "candidate": label, "metric": metric, **own}
