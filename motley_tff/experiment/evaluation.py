"""Scores every candidate on every client, chooses on validation clients, makes the rows.

The same code serves every personalization and both settings: a personalization only says how one
client's candidates are scored. Clients are scored in blocks and rows are made as they are read, so
that a population of any size needs little more than the numbers of its scores.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from motley_tff import metrics as metrics_lib
from motley_tff.backends import base
from motley_tff.core import algorithm as algorithm_lib
from motley_tff.core import candidates as candidates_lib
from motley_tff.core import clients as clients_lib
from motley_tff.core import task as task_lib
from motley_tff.experiment import client_scores, held_out
from motley_tff.experiment.client_scores import SPLITS, Scores
from motley_tff.metrics import client_values
from motley_tff.metrics import clusters as clusters_lib

# The two ways to choose that silos are reported under, beside the one asked for.
TUNINGS: tuple[candidates_lib.Tuning, ...] = ("global", "per_client")
# Clients that are scored together, and kept together for a run that is cut.
BLOCK = 256

# (split, chosen candidate of each client) -> which clients accept it
Accept = Callable[[str, np.ndarray], np.ndarray]


class Blocks(Protocol):
    """Where the scores of finished blocks are kept while an evaluation is not whole."""

    def load(self, name: str, client_ids: Sequence[str]) -> dict[str, Scores] | None:
        """Returns a block's scores by split, or None if it is to be scored."""

    def save(self, name: str, scores: Mapping[str, Scores]) -> None:
        """Keeps a block's scores."""


class _NotKept:
    def load(self, name: str, client_ids: Sequence[str]) -> None:
        del name, client_ids

    def save(self, name: str, scores: Mapping[str, Scores]) -> None:
        del name, scores


class Evaluator:
    """Runs one personalization on one backend.

    Args:
      backend: Where the clients' work runs.
      task: Whose clients.
      personalization: What they do.
      name: Tells its blocks from those of other evaluators.
    """

    def __init__(
        self,
        backend: base.Backend,
        task: task_lib.Task,
        personalization: algorithm_lib.Personalization,
        name: str = "main",
    ):
        self._backend, self._task, self._name = backend, task, name
        if task.setting == "cross_silo":
            # The same silos on both splits: personalize once, score on both parts.
            train = ("train",) if personalization.scores_train else ()
            self._groups: tuple[tuple[str, ...], ...] = ((*SPLITS, *train),)
        else:
            self._groups = tuple((split,) for split in SPLITS)
        self._work = {
            group: personalization.work(
                tuple(
                    dict.fromkeys(
                        part for split in group for part in client_scores.parts(task, split)
                    )
                ),
                task.personalization_part(group[0]),
            )
            for group in self._groups
        }

    def score(
        self,
        weights: Any,
        client_states: Mapping[str, Any] | None,
        client_ids: Mapping[str, Sequence[str]],
        key: np.ndarray,
        on_client: Callable[[], None] = lambda: None,
        blocks: Blocks | None = None,
    ) -> dict[str, Scores]:
        """Returns each split's scores, those on training parts (`train`) last.

        Args:
          weights: The global model; the server's weights for a stateful personalization.
          client_states: `{client id: state}` for a stateful personalization, else None.
          client_ids: `{split: clients to score}`; the same for both splits of a silo task.
          key: int32 [2], the random key of this evaluation.
          on_client: Called after each client, for progress.
          blocks: Has blocks that an earlier process scored, and keeps whole ones.
        """
        kept = blocks or _NotKept()
        scores = {}
        for group in self._groups:
            ids = tuple(client_ids[group[0]])
            found = []
            for first in range(0, len(ids), BLOCK):
                name = f"{self._name}.{group[0]}.{first:09d}"
                mine = ids[first : first + BLOCK]
                block = kept.load(name, mine)
                if block is None:
                    block = self._score(group, weights, client_states, mine, key, on_client)
                    if len(mine) == BLOCK:  # What is short is soon scored again.
                        kept.save(name, block)
                else:
                    for _ in mine:
                        on_client()
                found.append(block)
            for split in group:
                scores[split] = client_scores.join([block[split] for block in found])
        return scores

    def _score(self, group, weights, client_states, ids, key, on_client) -> dict[str, Scores]:
        """Returns the scores of a block of clients on all splits of a group."""
        outputs = []
        states = None if client_states is None else [client_states[i] for i in ids]
        for _, metrics in self._backend.map_clients(
            base.ClientCall(
                self._task, self._work[group], weights, self._clients(group), ids, key, states
            )
        ):
            outputs.append(metrics)
            on_client()
        return {split: client_scores.collect(self._task, split, ids, outputs) for split in group}

    def _clients(self, group: tuple[str, ...]) -> clients_lib.Clients:
        """Returns whom a group scores: of silos those of the split that has all its parts."""
        return self._task.splits["test" if "test" in group else group[0]]


class Rows:
    """Rows that are made anew each time they are read.

    Args:
      parts: Functions that return rows.
    """

    def __init__(self, *parts: Callable[[], Iterable[dict[str, Any]]]):
        self._parts = parts

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for part in self._parts:
            yield from part()


@dataclasses.dataclass(frozen=True)
class Report:
    """An evaluation as rows, without the keys of the run.

    Attributes:
      clients: Rows for `clients.csv`.
      candidates: Rows for `candidates.csv`.
      clusters: Rows for `clusters.csv`: how many clients of each known group are in each cluster.
      scores: Rows for `scores.csv`, where the task exports them.
      summary: Rows for `summary.csv`.
    """

    clients: Rows
    candidates: Rows
    clusters: Rows
    scores: Rows
    summary: list[dict[str, Any]]


def choose(
    task: task_lib.Task,
    scores: Mapping[str, Scores],
    tuning: candidates_lib.Tuning,
    include_baseline: bool,
    accept: Accept | None = None,
) -> dict[str, np.ndarray]:
    """Returns `{split: candidate of each client}`, chosen on the validation scores.

    Args:
      task: The task.
      scores: `{split: scores}`.
      tuning: One candidate for all, or each silo its own.
      include_baseline: Whether the baseline may be chosen.
      accept: Says who takes it; the others stay with candidate 0. Everybody, if not given.
    """
    valid = scores["valid"].values[task.metric.name]
    best = candidates_lib.choose(valid, task.metric.higher_is_better, tuning, include_baseline)
    chosen = {s: np.broadcast_to(best, len(scores[s].client_ids)) for s in SPLITS}
    if accept is None:
        return chosen
    return {split: np.where(accept(split, mine), mine, 0) for split, mine in chosen.items()}


def summarize(
    task: task_lib.Task, labels: Sequence[str], split: str, scores: Scores, chosen: np.ndarray
) -> dict[str, Any]:
    """Returns a split's row of `summary.csv`, without the keys of the run.

    Args:
      task: The task.
      labels: The candidates' labels.
      split: Which split.
      scores: Its scores.
      chosen: Each client's candidate.
    """
    values = client_values_of(task, scores, chosen)
    ood = _ood_values(task, scores, chosen)
    references = [task.reference[i] for i in values.client_ids if i in task.reference]
    return {
        "split": split,
        "candidate": _label(labels, chosen),
        **metrics_lib.summarize(values),
        "reference_mean": np.mean(references) if references else None,
        **{f"ood_{name}_mean": np.mean(column) for name, column in ood.items()},
    }


def report(
    task: task_lib.Task,
    labels: Sequence[str],
    scores: Mapping[str, Scores],
    tuning: candidates_lib.Tuning,
    include_baseline: bool,
    accept: Accept | None = None,
) -> Report:
    """Chooses candidates on the validation scores and reports every split at them.

    Args:
      task: The task.
      labels: The candidates' labels; the first is the baseline.
      scores: `{split: scores}` with `valid` and `test`; of `train` only the curves are reported.
      tuning: One candidate for all, or each silo its own.
      include_baseline: Whether the baseline may be chosen.
      accept: See `choose`.
    """
    chosen = {
        how: choose(task, scores, how, include_baseline, accept)
        for how in (TUNINGS if task.setting == "cross_silo" else (tuning,))
    }
    looks = [_look(task, split, scores[split], chosen, tuning) for split in SPLITS]
    part = functools.partial
    return Report(
        clients=Rows(*(part(_client_rows, task, labels, one) for one in looks)),
        candidates=Rows(*(part(_candidate_rows, task, labels, *one) for one in scores.items())),
        clusters=Rows(*(part(_cluster_rows, task, one.split, one.scores) for one in looks)),
        scores=Rows(*(part(_score_rows, task, one) for one in looks)),
        summary=[
            summarize(task, labels, one.split, one.scores, one.chosen)
            | _tuning_summary(labels, one.tunings)
            for one in looks
        ],
    )


class _Look(NamedTuple):
    """A split at the chosen candidates; silos also under both ways to choose."""

    split: str
    scores: Scores
    chosen: np.ndarray
    tunings: Mapping[candidates_lib.Tuning, tuple[np.ndarray, client_values.ClientValues]]


def _look(task, split, scores, chosen, tuning) -> _Look:
    both = {how: chosen[how][split] for how in TUNINGS if task.setting == "cross_silo"}
    tunings = {how: (mine, client_values_of(task, scores, mine)) for how, mine in both.items()}
    return _Look(split, scores, chosen[tuning][split], tunings)


def _score_rows(task, look):
    scores = look.scores
    for client_id, candidate, (labels, outputs) in zip(
        scores.client_ids, look.chosen, scores.examples, strict=bool(scores.examples)
    ):
        for label, row in zip(labels, outputs, strict=True):
            yield {
                "split": look.split,
                "client_id": client_cell(task, client_id),
                "label": int(label > 0),
                "baseline_score": row[0],
                "personalized_score": row[candidate],
            }


def _cluster_rows(task, split, scores):
    if scores.clusters is None:
        return
    known = _groups(task, scores.client_ids)
    groups = np.full(len(scores.clusters), "") if known is None else known
    for cluster, members in clusters_lib.composition(scores.clusters, groups).items():
        for group, number in members.items():
            yield {
                "split": split,
                "cluster_id": cluster + 1,
                "group": group or None,
                "num_clients": number,
            }


def _tuning_cells(labels, tunings, i) -> dict[str, Any]:
    """Returns what a silo has under both ways to choose."""
    cells = {}
    for how, (chosen, values) in tunings.items():
        cells[f"candidate_{how}"] = labels[chosen[i]]
        cells[f"personalized_{how}"] = values.personalized[i]
        cells[f"is_hurt_{how}"] = values.is_hurt[i]
    return cells


def _tuning_summary(labels, tunings) -> dict[str, Any]:
    """Returns what a split of silos has under both ways to choose."""
    cells: dict[str, Any] = {}
    for how, (chosen, values) in tunings.items():
        cells[f"candidate_{how}"] = _label(labels, chosen)
        cells[f"personalized_mean_{how}"] = np.mean(values.personalized)
        cells[f"personalized_std_{how}"] = np.std(values.personalized)
        cells[f"pct_clients_hurt_{how}"] = metrics_lib.POPULATION["pct_clients_hurt"](values)
    return cells


def _label(labels, chosen) -> str:
    """Returns the candidate that all have, or says that they differ."""
    return labels[chosen[0]] if len(np.unique(chosen)) == 1 else "per_client"


def client_values_of(
    task: task_lib.Task, scores: Scores, chosen: np.ndarray
) -> client_values.ClientValues:
    """Returns a split's per-client values, each client's at its candidate."""
    values = scores.values[task.metric.name].astype(np.float64)
    return client_values.ClientValues(
        client_ids=np.array(scores.client_ids),
        baseline=values[:, 0],
        personalized=candidates_lib.take(values, chosen),
        higher_is_better=task.metric.higher_is_better,
        num_evaluation_examples=scores.num_evaluation_examples,
        clusters=scores.clusters,
        groups=_groups(task, scores.client_ids),
    )


def _groups(task, client_ids) -> np.ndarray | None:
    """Returns the known group of each client, if the data say so for all of them."""
    known = task.facts.get("client_groups", {})
    if not client_ids or any(i not in known for i in client_ids):
        return None
    return np.array([str(known[i]) for i in client_ids])


def client_cell(task: task_lib.Task, client_id: str) -> str:
    """Returns `<dataset>:<id>`, which keeps leading zeros and is no formula."""
    return f"{task.dataset}:{client_id}"


def _client_rows(task, labels, look):
    scores, chosen = look.scores, look.chosen
    values = client_values_of(task, scores, chosen)
    ood = _ood_values(task, scores, chosen)
    at_chosen = {name: candidates_lib.take(v, chosen) for name, v in scores.values.items()}
    for i, client_id in enumerate(scores.client_ids):
        row = {
            "split": look.split,
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
            "is_hurt": values.is_hurt[i],
            "reference": task.reference.get(client_id),
            "group": None if values.groups is None else values.groups[i],
        }
        for name in ("loss", *(m.name for m in task.metrics[1:])):
            before, after = scores.values[name][i, 0], at_chosen[name][i]
            if name == "loss":
                row |= {"baseline_loss": before, "personalized_loss": after}
            else:
                row |= {f"baseline_{name}": before, f"personalized_{name}": after}
        row |= {f"ood_{name}": column[i] for name, column in ood.items()}
        yield row | _tuning_cells(labels, look.tunings, i)


def _ood_values(task, scores, chosen) -> dict[str, np.ndarray]:
    """Returns the metric of both models on the other clients' examples, if there are scores."""
    if held_out.OOD not in scores.beside:
        return {}
    values = scores.beside[held_out.OOD].values[task.metric.name].astype(np.float64)
    return {"baseline": values[:, 0], "personalized": candidates_lib.take(values, chosen)}


def _candidate_rows(task, labels, split, scores):
    ood = scores.beside.get(held_out.OOD)
    for i, client_id in enumerate(scores.client_ids):
        for c, label in enumerate(labels):
            yield {
                "split": split,
                "client_id": client_cell(task, client_id),
                "candidate": label,
                "metric": task.metric.name,
                "value": scores.values[task.metric.name][i, c],
                "loss": scores.values["loss"][i, c],
                **({} if ood is None else {"ood_value": ood.values[task.metric.name][i, c]}),
            }
