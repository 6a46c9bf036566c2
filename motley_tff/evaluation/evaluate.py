"""How clients are evaluated: personalize the model, score its candidates, choose one, write a row.

A personalization makes several models for each client, its *candidates*: one after each epoch of
fine-tuning, for example. Candidate 0 is the *baseline*: the global model itself (HypCluster's first
model, PersFL's teacher). An evaluation takes three steps:

1. `score_clients`: every client personalizes the model on its personalization set, and scores all
   candidates on its evaluation set. These scores are an array `[num_clients, num_candidates]`.
2. `choose`: the scores of the validation clients choose a candidate, either one for all clients
   (`global`) or one for each silo (`per_client`).
3. `client_rows`: every client gets a row with the scores of the baseline and of its candidate. A
   client is *hurt* if its candidate scores strictly worse than the baseline.

The other files add to this: `batches` scores many clients and keeps scores on disk, `evaluator`
repeats an evaluation on other `parts` of the clients' data, `tables` makes the other tables' rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.backends.base import Backend, ClientCall
from motley_tff.core import candidates, paired
from motley_tff.core.algorithm import Personalization
from motley_tff.core.candidates import Tuning
from motley_tff.core.task import Task
from motley_tff.evaluation import parts
from motley_tff.evaluation.client_scores import ClientScores, at, values_at

# (split, candidate of each client) -> which clients take it, bool [num_clients]; the others keep
# the baseline.
Accept = Callable[[str, np.ndarray], np.ndarray]
Row = dict[str, Any]


def score_clients(
    backend: Backend,
    task: Task,
    personalization: Personalization,
    splits: Sequence[str],
    weights: Any,
    client_states: Mapping[str, Any] | None,
    key: np.ndarray,
    client_ids: Sequence[str],
    times: int = 1,
) -> Iterator[Mapping[str, Any]]:
    """Personalizes the model for each client and yields the scores of all its candidates, which
    are arrays `[num_candidates]` for each part and metric (see `core.algorithm.Personalization`).

    Args:
      splits: The splits to score. Silos are in several splits, and are personalized once for all.
      weights: The global model; the server's weights for a stateful personalization.
      client_states: `{client id: state}` for a stateful personalization, else None.
      key: int32 [2], the random key of this evaluation.
      times: Which evaluation of its run it is, from 1 on.
    """
    scored_parts = dict.fromkeys(part for split in splits for part in parts.scored(task, split))
    work = personalization.work(tuple(scored_parts), task.personalization_part(splits[0]))
    # Silos may come with both splits: they are the same clients, and `test` has all their parts.
    # Devices come with one split.
    clients = task.splits["test" if "test" in splits else splits[0]]
    states = None if client_states is None else [client_states[i] for i in client_ids]
    call = ClientCall(task, work, weights, clients, client_ids, key, states, times)
    for _, scores in backend.map_clients(call):
        yield scores


def choose(
    task: Task,
    scores: Mapping[str, ClientScores],
    tuning: Tuning,
    include_baseline: bool,
    accept: Accept | None = None,
) -> dict[str, np.ndarray]:
    """Returns `{split: candidate of each client, int [num_clients]}`.

    Args:
      tuning: `global` takes the candidate with the best mean of the tuning metric over validation
        clients. `per_client` takes the best candidate of each silo on its own validation part.
      include_baseline: Whether the baseline may be chosen.
      accept: Says which clients accept their candidate; the others keep the baseline.
    """
    metric = task.tuning_metric
    valid = scores["valid"].values[metric.name]  # [num_clients, num_candidates]
    best = candidates.choose(valid, metric.higher_is_better, tuning, include_baseline)
    # One choice for all clients, or one for each silo: all splits list the silos in one order.
    chosen = {split: np.broadcast_to(best, len(scores[split].client_ids)) for split in parts.SPLITS}
    if accept is None:
        return chosen
    return {split: np.where(accept(split, c), c, 0) for split, c in chosen.items()}


def client_rows(
    task: Task, labels: Sequence[str], split: str, scores: ClientScores, chosen: np.ndarray
) -> Iterator[Row]:
    """Yields the row of each client in `clients.csv`: its baseline against its candidate."""
    values = values_at(task, scores, chosen)
    evidence = {name: empty_cells(at(scores, name, chosen)) for name in paired.STATISTICS}
    # The cell of an unscored client is empty: it is neither hurt nor not.
    delta, is_hurt = values.delta, np.where(values.is_scored, values.is_hurt, np.array(None))
    for i, (client_id, candidate) in enumerate(zip(scores.client_ids, chosen, strict=True)):
        row = {
            "split": split,
            "client_id": client_cell(task, client_id),
            "cluster_id": None if scores.clusters is None else scores.clusters[i] + 1,
            "candidate": labels[candidate],
            "num_personalization_examples": scores.num_personalization_examples[i],
            "num_evaluation_examples": scores.num_evaluation_examples[i],
            "metric": task.metric.name,
            "higher_is_better": task.metric.higher_is_better,
            "baseline": values.baseline[i],
            "personalized": values.personalized[i],
            "delta": delta[i],
            "is_hurt": is_hurt[i],
            **{name: column[i] for name, column in evidence.items()},
            "reference": task.reference.get(client_id),
            "group": None if values.groups is None else values.groups[i],
        }
        for name in ("loss", *(metric.name for metric in task.metrics[1:])):
            row[f"baseline_{name}"] = scores.values[name][i, 0]
            row[f"personalized_{name}"] = scores.values[name][i, candidate]
        yield row


def empty_cells(column: np.ndarray) -> np.ndarray:
    """Returns a column whose numbers are None where they are not finite."""
    return np.where(np.isfinite(column), column, np.array(None))


def client_cell(task: Task, client_id: str) -> str:
    """Returns `<dataset>:<id>`: a spreadsheet would cut an id's leading zeros, or take it for a
    formula.
    """
    return f"{task.dataset}:{client_id}"
