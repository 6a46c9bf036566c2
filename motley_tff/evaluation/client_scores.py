"""Every candidate's scores on every client, as arrays, and the clients' values at one candidate."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.core import candidates, paired
from motley_tff.core.task import Metric, Task
from motley_tff.evaluation import parts
from motley_tff.metrics import per_client
from motley_tff.metrics.client_values import ClientValues
from motley_tff.metrics.per_client.examples import ClientExamples


@dataclasses.dataclass(frozen=True)
class ClientScores:
    """Every candidate's scores on the clients of one split.

    Attributes:
      client_ids: The clients, in order, as in all arrays.
      values: `{metric, "loss" or paired statistic: float32 [num_clients, num_candidates]}`.
      num_personalization_examples: int64 [num_clients], as the evaluation's.
      clusters: int64 [num_clients], 0-based, or None where clients belong to none.
      examples: Of each client (labels [n], scores [n, num_candidates * the task's num_scores]),
        where the task exports scores, else empty.
      further: `{part: values}` of the same models on further parts, see `evaluation.parts`.
      further_sizes: `{part: int64 [num_clients]}`, their examples.
    """

    client_ids: tuple[str, ...]
    values: Mapping[str, np.ndarray]
    num_personalization_examples: np.ndarray
    num_evaluation_examples: np.ndarray
    clusters: np.ndarray | None = None
    examples: Sequence[tuple[np.ndarray, np.ndarray]] = ()
    further: Mapping[str, Mapping[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    further_sizes: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def on(self, part: str) -> ClientScores:
        """Returns the scores on a further part in place of the evaluation part."""
        return dataclasses.replace(
            self, values=self.further[part], num_evaluation_examples=self.further_sizes[part]
        )


def values_at(
    task: Task, scores: ClientScores, chosen: np.ndarray, metric: Metric | None = None
) -> ClientValues:
    """Returns each client's baseline, and the metric at its candidate, int [num_clients]; of the
    reported metric, which it is by default, also what its differences rest on.
    """
    evidence: dict[str, Any] = {
        name: at(scores, name, chosen)
        for name in ("delta_se", "num_gained", "num_lost")
        if metric is None and name in scores.values
    }
    metric = metric or task.metric
    values = scores.values[metric.name].astype(np.float64)
    return ClientValues(
        client_ids=np.array(scores.client_ids),
        baseline=values[:, 0],
        personalized=candidates.take(values, chosen),
        higher_is_better=metric.higher_is_better,
        num_evaluation_examples=scores.num_evaluation_examples,
        clusters=scores.clusters,
        groups=known_groups(task, scores.client_ids),
        **evidence,
    )


def at(scores: ClientScores, name: str, chosen: np.ndarray) -> np.ndarray:
    """Returns a metric or paired statistic at each client's candidate, float64 [num_clients];
    not-a-number where scores that an earlier version saved lack it.
    """
    if name not in scores.values:
        return np.full(len(chosen), np.nan)
    return candidates.take(scores.values[name].astype(np.float64), chosen)


def known_groups(task: Task, client_ids: Sequence[str]) -> np.ndarray | None:
    """Returns the known group of each client, if the data say so for all of them."""
    known = task.facts.get("client_groups", {})
    if not client_ids or any(i not in known for i in client_ids):
        return None
    return np.array([str(known[i]) for i in client_ids])


def stack(outputs: Sequence[Any], higher_is_better: bool) -> dict[str, np.ndarray]:
    """Returns the outputs of the clients' work as arrays over clients, or over their examples, by
    names such as `curves/test/loss`; in place of the sums of examples the statistics of them.
    """
    clients = [dict(_flat(output)) for output in outputs]
    arrays = {}
    for name in clients[0]:
        columns = [client[name] for client in clients]
        if name.startswith(("scores/", "example_sums/")):  # Behind the examples there is padding.
            count = f"num_examples/{name.split('/')[1]}"
            columns = [c[: client[count]] for c, client in zip(columns, clients, strict=True)]
            arrays[name] = np.concatenate(columns)
        else:
            arrays[name] = np.stack(columns)
    for name in [n for n in arrays if n.startswith("example_sums/") and n.endswith("/values")]:
        _, part, _ = name.split("/")
        sums, weights = arrays.pop(name), arrays.pop(f"example_sums/{part}/weights")
        statistics = paired.statistics(
            higher_is_better, sums, weights, arrays[f"num_examples/{part}"]
        )
        arrays |= {f"curves/{part}/{n}": column for n, column in statistics.items()}
    return arrays


def arrays_of(task: Task, outputs: Sequence[Any]) -> dict[str, np.ndarray]:
    """Returns `stack` of the outputs of clients' work on a task, with the metrics that are computed
    of clients' examples, `curves/test/macro_f1`; of what is kept of these, the exported scores.
    """
    arrays = stack(outputs, task.metric.higher_is_better)
    if not task.by_client:
        return arrays
    for name in [
        name for name in arrays if name.startswith("scores/") and name.endswith("/outputs")
    ]:
        _, part, _ = name.split("/")
        labels, kept = arrays[f"scores/{part}/labels"], arrays[name]
        num_candidates = kept.shape[1] // task.num_kept
        by_candidate = kept.reshape(len(labels), num_candidates, task.num_kept)
        scores = by_candidate[..., : task.num_scores] if task.keeps_scores else None
        examples = ClientExamples(labels, by_candidate[..., -1], scores, task.label_unit or 1.0)
        arrays |= {
            f"curves/{part}/{metric.name}": _by_client(
                metric, examples, arrays[f"num_examples/{part}"]
            )
            for metric in task.by_client
        }
        if task.exports_scores and scores is not None:
            arrays[name] = scores.reshape(len(labels), num_candidates * task.num_scores)
        else:
            del arrays[name], arrays[f"scores/{part}/labels"]
    return arrays


def _by_client(metric: Metric, examples: ClientExamples, sizes: np.ndarray) -> np.ndarray:
    """Returns the metric of each client's examples, float32 [num_clients, num_candidates]."""
    ends = np.cumsum(sizes)
    values = [
        per_client.of_client(metric.name, examples.between(end - size, end))
        for end, size in zip(ends, sizes, strict=True)
    ]
    return np.stack(values).astype(np.float32)


def _flat(output: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    for name, value in output.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


def join(batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns the arrays of several batches of clients as those of one, without those that a batch
    saved by an earlier version lacks.
    """
    names = [name for name in batches[0] if all(name in batch for batch in batches)]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in names}


def of_split(
    task: Task, split: str, client_ids: tuple[str, ...], arrays: Mapping[str, np.ndarray]
) -> ClientScores:
    """Returns a split's scores from the arrays of `stack`."""
    part, *further = parts.scored(task, split)
    personalization_part = task.personalization_part(split)
    names = ("loss", *(metric.name for metric in task.metrics), *paired.STATISTICS)
    values = {
        p: {name: arrays[key] for name in names if (key := f"curves/{p}/{name}") in arrays}
        for p in (part, *further)
    }
    sizes = arrays[f"num_examples/{part}"].astype(np.int64)
    examples = [
        np.split(arrays[f"scores/{part}/{name}"], np.cumsum(sizes)[:-1])
        for name in ("labels", "outputs")
        if f"scores/{part}/{name}" in arrays
    ]
    return ClientScores(
        client_ids=client_ids,
        values=values.pop(part),
        num_personalization_examples=arrays[f"num_examples/{personalization_part}"].astype(
            np.int64
        ),
        num_evaluation_examples=sizes,
        clusters=arrays["cluster"].astype(np.int64) if "cluster" in arrays else None,
        examples=list(zip(*examples, strict=True)),
        further=values,
        further_sizes={p: arrays[f"num_examples/{p}"].astype(np.int64) for p in further},
    )
