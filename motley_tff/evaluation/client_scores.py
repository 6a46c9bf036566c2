"""Every candidate's scores on every client, as arrays, and the clients' values at one candidate."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.core import candidates
from motley_tff.core.task import Task
from motley_tff.evaluation import parts
from motley_tff.evaluation.parts import SPLITS as SPLITS
from motley_tff.metrics.client_values import ClientValues


@dataclasses.dataclass(frozen=True)
class ClientScores:
    """Every candidate's scores on the clients of one split.

    Attributes:
      client_ids: The clients, in order, as in all arrays.
      values: `{metric or "loss": float32 [num_clients, num_candidates]}`.
      num_personalization_examples: int64 [num_clients], as the evaluation's.
      clusters: int64 [num_clients], 0-based, or None where clients belong to none.
      examples: Of each client (labels [n], scores [n, num_candidates * the task's num_scores]),
        where the task exports scores, else empty.
      further: `{part: scores}` of the same models on further parts, see `evaluation.parts`.
    """

    client_ids: tuple[str, ...]
    values: Mapping[str, np.ndarray]
    num_personalization_examples: np.ndarray
    num_evaluation_examples: np.ndarray
    clusters: np.ndarray | None = None
    examples: Sequence[tuple[np.ndarray, np.ndarray]] = ()
    further: Mapping[str, "ClientScores"] = dataclasses.field(default_factory=dict)


def values_at(task: Task, scores: ClientScores, chosen: np.ndarray) -> ClientValues:
    """Returns each client's baseline, and the metric at its candidate, int [num_clients]."""
    values = scores.values[task.metric.name].astype(np.float64)
    return ClientValues(
        client_ids=np.array(scores.client_ids),
        baseline=values[:, 0],
        personalized=candidates.take(values, chosen),
        higher_is_better=task.metric.higher_is_better,
        num_evaluation_examples=scores.num_evaluation_examples,
        clusters=scores.clusters,
        groups=known_groups(task, scores.client_ids),
    )


def known_groups(task: Task, client_ids: Sequence[str]) -> np.ndarray | None:
    """Returns the known group of each client, if the data say so for all of them."""
    known = task.facts.get("client_groups", {})
    if not client_ids or any(i not in known for i in client_ids):
        return None
    return np.array([str(known[i]) for i in client_ids])


def collect(task: Task, split: str, ids: tuple[str, ...], outputs: Sequence[Any]) -> ClientScores:
    """Returns a split's scores from the outputs of the clients' work, in the order of `ids`."""
    part, *further = parts.scored(task, split)
    scores = {name: _collect_part(task, split, name, ids, outputs) for name in (part, *further)}
    return dataclasses.replace(scores.pop(part), further=scores)


def _collect_part(task, split, part, ids, outputs) -> ClientScores:
    names = ("loss", *(metric.name for metric in task.metrics))

    def sizes(part):
        return np.array([o["num_examples"][part] for o in outputs], np.int64)

    return ClientScores(
        client_ids=ids,
        values={n: np.stack([o["curves"][part][n] for o in outputs]) for n in names},
        num_personalization_examples=sizes(task.personalization_part(split)),
        num_evaluation_examples=sizes(part),
        clusters=(
            np.array([o["cluster"] for o in outputs], np.int64) if "cluster" in outputs[0] else None
        ),
        examples=[
            (o["scores"][part]["labels"][:n], o["scores"][part]["outputs"][:n])
            for o, n in zip(outputs, sizes(part), strict=True)
            if "scores" in o
        ],
    )


def join(batches: Sequence[ClientScores]) -> ClientScores:
    """Returns the scores of several batches of clients as one."""
    if len(batches) == 1:
        return batches[0]
    arrays = [to_arrays(batch) for batch in batches]
    return from_arrays({name: np.concatenate([a[name] for a in arrays]) for name in arrays[0]})


def to_arrays(scores: ClientScores) -> dict[str, np.ndarray]:
    """Returns scores as named arrays, which `from_arrays` reads."""
    arrays = {
        "client_ids": np.array(scores.client_ids),
        "num_personalization_examples": scores.num_personalization_examples,
        "num_evaluation_examples": scores.num_evaluation_examples,
        **under("values", scores.values),
    }
    if scores.clusters is not None:
        arrays["clusters"] = scores.clusters
    if scores.examples:
        labels, outputs = zip(*scores.examples, strict=True)
        arrays |= {"labels": np.concatenate(labels), "outputs": np.concatenate(outputs)}
    for part, further in scores.further.items():
        arrays |= under(f"further/{part}", to_arrays(further))
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> ClientScores:
    """Returns the scores that `to_arrays` made arrays of; a KeyError if one is missing."""
    sizes = arrays["num_evaluation_examples"]
    examples: Sequence[tuple[np.ndarray, np.ndarray]] = ()
    if "labels" in arrays:
        ends = np.cumsum(sizes)[:-1]
        columns = (np.split(arrays[name], ends) for name in ("labels", "outputs"))
        examples = list(zip(*columns, strict=True))
    return ClientScores(
        client_ids=tuple(arrays["client_ids"].tolist()),
        values=below("values", arrays),
        num_personalization_examples=arrays["num_personalization_examples"],
        num_evaluation_examples=sizes,
        clusters=arrays.get("clusters"),
        examples=examples,
        further={
            part: from_arrays(below(f"further/{part}", arrays))
            for part in dict.fromkeys(name.split("/")[0] for name in below("further", arrays))
        },
    )


def under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns arrays under the names `<prefix>/<name>`, which `below` takes apart."""
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def below(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the arrays whose names begin with `<prefix>/`, without it."""
    start = f"{prefix}/"
    return {n[len(start) :]: array for n, array in arrays.items() if n.startswith(start)}
