"""What an evaluation of clients gives: every candidate's scores, as arrays over clients."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.core.task import Task
from motley_tff.experiment import held_out

SPLITS = ("valid", "test")
_BESIDE = (held_out.HOLDOUT, held_out.OOD)


@dataclasses.dataclass(frozen=True)
class Scores:
    """Every candidate's scores on one split.

    Attributes:
      client_ids: The clients, in order, as in all arrays.
      values: `{metric or "loss": float32 [num_clients, num_candidates]}`.
      num_personalization_examples: int64 [num_clients], as the evaluation's.
      clusters: int64 [num_clients], 0-based, or None where clients belong to none.
      examples: Of each client (labels [n], scores [n, num_candidates * the task's num_scores]),
        where the task exports scores, else empty.
      beside: `{part: scores}` of the same models on further parts, see `experiment.held_out`.
    """

    client_ids: tuple[str, ...]
    values: Mapping[str, np.ndarray]
    num_personalization_examples: np.ndarray
    num_evaluation_examples: np.ndarray
    clusters: np.ndarray | None = None
    examples: Sequence[tuple[np.ndarray, np.ndarray]] = ()
    beside: Mapping[str, "Scores"] = dataclasses.field(default_factory=dict)


def parts(task: Task, split: str) -> tuple[str, ...]:
    """Returns the parts that a split's clients are scored on, the evaluation part first."""
    further = _BESIDE if split in SPLITS else ()
    spec = task.splits[split].spec
    return (task.evaluation_part(split), *(part for part in further if part in spec))


def collect(task: Task, split: str, ids: tuple[str, ...], outputs: Sequence[Any]) -> Scores:
    """Returns a split's scores from what the clients' work gave back, in the order of `ids`."""
    part, *further = parts(task, split)
    beside = {name: _collect_part(task, split, name, ids, outputs) for name in further}
    return dataclasses.replace(_collect_part(task, split, part, ids, outputs), beside=beside)


def _collect_part(task, split, part, ids, outputs) -> Scores:
    names = ("loss", *(metric.name for metric in task.metrics))

    def sizes(part):
        return np.array([o["num_examples"][part] for o in outputs], np.int64)

    return Scores(
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


def join(blocks: Sequence[Scores]) -> Scores:
    """Returns the scores of several blocks of clients as one."""
    if len(blocks) == 1:
        return blocks[0]
    arrays = [to_arrays(block) for block in blocks]
    return from_arrays({name: np.concatenate([a[name] for a in arrays]) for name in arrays[0]})


def to_arrays(scores: Scores) -> dict[str, np.ndarray]:
    """Returns scores as named arrays; `from_arrays` takes them back."""
    arrays = {
        "client_ids": np.array(scores.client_ids),
        "num_personalization_examples": scores.num_personalization_examples,
        "num_evaluation_examples": scores.num_evaluation_examples,
        **{f"values/{name}": values for name, values in scores.values.items()},
    }
    if scores.clusters is not None:
        arrays["clusters"] = scores.clusters
    if scores.examples:
        labels, outputs = zip(*scores.examples, strict=True)
        arrays |= {"labels": np.concatenate(labels), "outputs": np.concatenate(outputs)}
    for part, beside in scores.beside.items():
        arrays |= {f"beside/{part}/{name}": a for name, a in to_arrays(beside).items()}
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> Scores:
    """Returns the scores that `to_arrays` made arrays of; a KeyError if one is missing."""
    sizes = arrays["num_evaluation_examples"]
    examples: Sequence[tuple[np.ndarray, np.ndarray]] = ()
    if "labels" in arrays:
        ends = np.cumsum(sizes)[:-1]
        split = (np.split(arrays[name], ends) for name in ("labels", "outputs"))
        examples = list(zip(*split, strict=True))
    return Scores(
        client_ids=tuple(arrays["client_ids"].tolist()),
        values=below(arrays, "values"),
        num_personalization_examples=arrays["num_personalization_examples"],
        num_evaluation_examples=sizes,
        clusters=arrays.get("clusters"),
        examples=examples,
        beside={
            part: from_arrays(below(arrays, f"beside/{part}"))
            for part in dict.fromkeys(name.split("/")[0] for name in below(arrays, "beside"))
        },
    )


def below(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Returns the arrays whose names begin with `<prefix>/`, without it."""
    start = f"{prefix}/"
    return {n[len(start) :]: array for n, array in arrays.items() if n.startswith(start)}
