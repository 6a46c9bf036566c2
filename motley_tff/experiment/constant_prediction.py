"""Scores of constant predictions: of one constant for every example, and of each client's own.

A model that scores worse has learned nothing of use, however much a personalized one improves on
it; reports say so.
"""

import functools
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from motley_tff.core.clients import DerivedClients
from motley_tff.core.task import Task

_MAX_DEVICES = 500
_SCORED = ("valid", "test")


def scores(task: Task) -> dict[str, float]:
    """Returns `{split: mean over its clients of the reported metric}` of a constant prediction.

    Of examples in memory the constant is made of all training labels: their mean (of -1 and +1 its
    sign counts: the more frequent one), of classes the most frequent. Of more than 500 devices,
    those at even distances stand for all. Examples on disk are not read: of n classes a constant
    is right once in n. Where the task has a reference of its own (text), reports have that
    (`reference_mean`), and this is empty, as it is of generators, which have nothing to predict.
    """
    label = _label_spec(task)
    if label is None:
        return {}
    if not _is_in_memory(task):
        is_class = task.metric.name == "accuracy" and label.dtype.is_integer
        chance = 1.0 / task.model.shapes[-1][-1]
        return dict.fromkeys(("valid", "test"), chance) if is_class else {}
    constant = _constant(_labels(task, "train", "train"), task)
    return _means(
        (split, _score(task, y, constant))
        for split in _SCORED
        for y in _labels(task, split, task.evaluation_part(split))
    )


def own_scores(task: Task) -> dict[str, dict[str, float]]:
    """Returns `{its name: {split: mean over its clients}}` of a constant of each client's own: the
    mean, or the most frequent class, of its personalization set. A client without one takes the
    constant of all.

    Empty unless examples are in memory, and where `scores` is; of which clients, see there.
    """
    label = _label_spec(task)
    if label is None or not _is_in_memory(task):
        return {}
    of_all = functools.cache(lambda: _constant(_labels(task, "train", "train"), task))
    means = _means(
        (split, _score(task, y, _constant([known], task) if len(known) else of_all()))
        for split in _SCORED
        for known, y in zip(
            _labels(task, split, task.personalization_part(split)),
            _labels(task, split, task.evaluation_part(split)),
            strict=True,
        )
    )
    is_class = label.dtype.is_integer or task.metric.name == "accuracy"
    return {"own majority" if is_class else "own mean": means}


def _is_in_memory(task: Task) -> bool:
    is_in_memory = task.train.nbytes is not None and not isinstance(task.train, DerivedClients)
    return task.setting == "cross_silo" or is_in_memory


def _label_spec(task: Task) -> tf.TensorSpec | None:
    """Returns the type and shape of a batch's labels, None where no constant stands for them."""
    if task.reference or task.generate is not None:
        return None
    part = task.evaluation_part("valid")
    key, spec = tf.TensorSpec([2], tf.int32), task.valid.spec[part]
    traced = tf.function(lambda raw, key: task.preprocess(raw, False, key)[1], autograph=False)
    label = traced.get_concrete_function(spec, key).structured_outputs
    return label if len(label.shape) == 1 else None


def _labels(task: Task, split: str, part: str) -> Iterator[tf.Tensor]:
    clients = task.splits[split]
    limit = len(clients) if task.setting == "cross_silo" else _MAX_DEVICES
    for i in np.unique(np.linspace(0, len(clients) - 1, limit).astype(int)):
        examples = clients.fetch(clients.ids[i])[part]
        yield task.preprocess(examples, False, tf.zeros([2], tf.int32))[1]


def _constant(of_clients: Iterable[tf.Tensor], task: Task) -> np.ndarray:
    """Returns the one output: a number, or logits of the most frequent class."""
    labels = np.concatenate([np.asarray(y) for y in of_clients])
    if labels.dtype.kind == "f":
        return labels.mean(dtype=np.float64).astype(np.float32)
    counts = np.bincount(labels[labels >= 0], minlength=task.model.shapes[-1][-1])
    return np.eye(len(counts), dtype=np.float32)[counts.argmax()]


def _score(task: Task, labels: tf.Tensor, constant: np.ndarray) -> float:
    """Returns a client's score, not-a-number where it has nothing to be scored on."""
    outputs = np.repeat(constant[None], len(labels), axis=0)
    values, weights = task.metric.function(labels, outputs)
    return float(tf.reduce_sum(values * weights) / tf.reduce_sum(weights))


def _means(scores: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Returns the mean of each split's scores that are a number; a split may have none."""
    of_split: dict[str, list[float]] = {}
    for split, score in scores:
        if np.isfinite(score):
            of_split.setdefault(split, []).append(score)
    return {split: float(np.mean(values)) for split, values in of_split.items()}
