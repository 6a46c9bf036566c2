"""What predicting nothing is worth: the score of one constant, said of every example.

A model that is worse has learned nothing of use, however much better than it a personalized one is;
reports say so.
"""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from motley_tff.core.clients import Clients
from motley_tff.core.task import Task


def scores(task: Task) -> dict[str, float]:
    """Returns `{split: mean over its clients of the reported metric}` of a constant prediction.

    On silos, whose labels are in memory, the constant is made of all training labels: their mean
    (of -1 and +1 its sign counts: the more frequent one), of classes the most frequent. Of
    thousands of clients no label is read: of n classes a constant is right once in n. Where the
    task has a reference of its own (text), reports have that (`reference_mean`), and this is empty.
    """
    if task.reference:
        return {}
    if task.setting == "cross_device":
        chance = 1.0 / task.model.shapes[-1][-1]
        return dict.fromkeys(("valid", "test"), chance) if _has_one_class(task) else {}
    constant = _constant(task)
    return {
        split: float(
            np.mean([_score(task, y, constant) for y in _labels(task, task.splits[split], split)])
        )
        for split in ("valid", "test")
    }


def _has_one_class(task: Task) -> bool:
    """Returns whether an example's label is one class, and the metric how often it is met."""
    key, spec = tf.TensorSpec([2], tf.int32), task.valid.spec["evaluation"]
    traced = tf.function(lambda raw, key: task.preprocess(raw, False, key)[1], autograph=False)
    label = traced.get_concrete_function(spec, key).structured_outputs
    return task.metric.name == "accuracy" and len(label.shape) == 1 and label.dtype.is_integer


def _labels(task: Task, clients: Clients, part: str) -> Iterator[tf.Tensor]:
    for client_id in clients.ids:
        examples = clients.fetch(client_id)[part]
        yield task.preprocess(examples, False, tf.zeros([2], tf.int32))[1]


def _constant(task: Task) -> np.ndarray:
    """Returns the one output: a number, or logits of the most frequent class."""
    labels = np.concatenate([np.asarray(y) for y in _labels(task, task.train, "train")])
    if labels.dtype.kind == "f":
        return labels.mean(dtype=np.float64).astype(np.float32)
    counts = np.bincount(labels, minlength=task.model.shapes[-1][-1])
    return np.eye(len(counts), dtype=np.float32)[counts.argmax()]


def _score(task: Task, labels: tf.Tensor, constant: np.ndarray) -> float:
    outputs = np.repeat(constant[None], len(labels), axis=0)
    values, weights = task.metric.function(labels, outputs)
    return float(tf.reduce_sum(values * weights) / tf.reduce_sum(weights))
