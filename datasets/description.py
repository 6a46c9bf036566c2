"""What a task's clients look like in numbers: counts, sizes, and how much their labels differ."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from motley_tff.core import task as task_lib

# Loading a client may mean reading a database: more than these are sampled.
_MAX_SIZED_CLIENTS = 2000
_MAX_LABELLED_EXAMPLES = 256


def client_sizes(task: task_lib.Task) -> dict[str, dict[str, int]]:
    """Returns `{split: {client id: number of examples, all parts together}}`, of more than 2,000
    clients of those at even distances.
    """
    return {
        split: {
            i: sum(len(next(iter(part.values()))) for part in clients.fetch(i).values())
            for i in _spread(clients.ids, _MAX_SIZED_CLIENTS)
        }
        for split, clients in task.splits.items()
    }


def size_skew(sizes: Sequence[int]) -> str:
    """Returns in words how unequal clients' numbers of examples are."""
    ordered = np.sort(sizes)
    tenth = ordered[-max(1, len(ordered) // 10) :]
    return (
        f"{ordered[0]:,} to {ordered[-1]:,} examples, median {np.median(ordered):,.0f}; the "
        f"largest {len(tenth):,} of {len(ordered):,} clients have {tenth.sum() / ordered.sum():.0%}"
    )


def _spread(ids: tuple[str, ...], count: int) -> list[str]:
    """Returns at most `count` ids at even distances."""
    return [ids[i] for i in np.unique(np.linspace(0, len(ids) - 1, count).astype(int))]


def sample(task: task_lib.Task) -> dict[str, Any]:
    """Returns the first training client's first example: `{field: value, words, size or shape}`."""
    examples = task.train.fetch(task.train.ids[0])["train"]
    return {field: _short(task, field, np.asarray(v)[0]) for field, v in examples.items()}


def _short(task: task_lib.Task, field: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    # Of a task without a field of labels, whose labels are tokens, names are words.
    is_named = task.label_names and task.label_field in (None, field)
    if is_named and value.dtype == np.int32:
        places = np.atleast_1d(value)
        words = (task.label_names[i] if i >= 0 else "of no training part" for i in places)
        return f"{value.tolist()} ({' '.join(word for word in words if word)})"
    return value if np.size(value) <= 8 else f"{value.dtype} {value.shape}"


def images(
    task: task_lib.Task, num_clients: int = 16, num_images: int = 20
) -> dict[str, np.ndarray] | None:
    """Returns what the model sees of some training clients, at even distances: `{client id: float32
    [n, height, width, channels]}`, in 0..1 where it sees -1..1; None if it sees no images.
    """
    pixels = {}
    for client_id in _spread(task.train.ids, num_clients):
        inputs, _ = _inputs_and_labels(task, client_id, num_images)
        if not tf.is_tensor(inputs) or len(inputs.shape) != 4:
            return None
        pixels[client_id] = inputs.numpy()
    if min(array.min() for array in pixels.values()) < 0:
        pixels = {client_id: (1 + array) / 2 for client_id, array in pixels.items()}
    return pixels


@dataclasses.dataclass(frozen=True)
class LabelShares:
    """How labels are distributed over some clients (Motley's Figure 10)."""

    client_ids: tuple[str, ...]
    labels: tuple[str, ...]  # Columns: the most frequent labels or tokens, or ranges of a target.
    shares: np.ndarray  # float64 [clients, columns]; what is left of 1 went to other labels.
    # Mean total-variation distance of the clients' labels, all of them, to their average, 0..1.
    distance: float


def label_shares(task: task_lib.Task, num_clients: int = 20, num_labels: int = 30) -> LabelShares:
    """Returns how labels, tokens or binned targets fall on training clients at even distances."""
    ids = _spread(task.train.ids, num_clients)
    labels = [_labels(task, client_id) for client_id in ids]
    if np.issubdtype(labels[0].dtype, np.floating):
        labels, names = _binned(labels, min(10, num_labels))
    else:
        values, counts = np.unique(np.concatenate(labels), return_counts=True)
        frequent = np.sort(values[np.argsort(-counts, kind="stable")[:num_labels]])
        names = {int(v): task.label_names[v] if task.label_names else str(v) for v in frequent}
    client = np.repeat(np.arange(len(ids)), [len(array) for array in labels])
    counts = pd.crosstab(client, np.concatenate(labels)).reindex(range(len(ids)), fill_value=0)
    shares = counts.div(counts.sum(axis=1).clip(lower=1), axis=0)
    every = np.ascontiguousarray(shares)
    distances = 0.5 * np.abs(every - every.mean(axis=0)).sum(axis=1)
    columns = shares.reindex(columns=list(names), fill_value=0.0).to_numpy()
    return LabelShares(tuple(ids), tuple(names.values()), columns, float(distances.mean()))


def _labels(task: task_lib.Task, client_id: str) -> np.ndarray:
    """Returns a client's labels that are no padding, [n]."""
    x, y = _inputs_and_labels(task, client_id, _MAX_LABELLED_EXAMPLES)
    first = tf.nest.map_structure(lambda t: t[:1], x)
    outputs = task.model.predict(task.model.initial_weights(0), first, False, None)
    weights = task.entry_weights(y, tf.repeat(outputs, len(y), axis=0))
    return y.numpy()[weights.numpy() > 0]


def _inputs_and_labels(task: task_lib.Task, client_id: str, count: int) -> tuple[Any, tf.Tensor]:
    examples = task.train.fetch(client_id)["train"]
    raw = {field: tf.convert_to_tensor(values[:count]) for field, values in examples.items()}
    return task.preprocess(raw, False, tf.constant([0, 0]))


def _binned(labels: list[np.ndarray], count: int) -> tuple[list[np.ndarray], dict[int, str]]:
    together = np.concatenate(labels)
    edges = np.linspace(together.min(), together.max(), count + 1)
    names = {i: f"{edges[i]:.2g}-{edges[i + 1]:.2g}" for i in range(count)}
    return [np.clip(np.digitize(array, edges) - 1, 0, count - 1) for array in labels], names
