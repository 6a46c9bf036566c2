"""What predicting nothing is worth: the score of one constant, said of every example.

A model that is worse has learned nothing of use, however much better than it a personalized one is;
reports say so.
"""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from motley_tff.core.clients import DerivedClients
from motley_tff.core.task import Task

_MAX_DEVICES = 500


def scores(task: Task) -> dict[str, float]:
    """Returns `{split: mean over its clients of the reported metric}` of a constant prediction.

    Of examples in memory the constant is made of all training labels: their mean (of -1 and +1 its
    sign counts: the more frequent one), of classes the most frequent. Of more than 500 devices,
    those at even distances stand for all. Examples on disk are not read: of n classes a constant
    is right once in n. Where the task has a reference of its own (text), reports have that
    (`reference_mean`), and this is empty, as it is of generators, which have nothing to predict.
    """
    if task.reference or task.generate is not None:
        return {}
    label = _label_spec(task)
    if len(label.shape) != 1:
        return {}
    is_in_memory = task.train.nbytes is not None and not isinstance(task.train, DerivedClients)
    if task.setting == "cross_device" and not is_in_memory:
        is_class = task.metric.name == "accuracy" and label.dtype.is_integer
        chance = 1.0 / task.model.shapes[-1][-1]
        return dict.fromkeys(("valid", "test"), chance) if is_class else {}
    constant = _constant(task)
    return {
        split: float(np.mean([_score(task, y, constant) for y in _labels(task, split)]))
        for split in ("valid", "test")
    }


def _label_spec(task: Task) -> tf.TensorSpec:
    """Returns the type and shape of a batch's labels."""
    part = task.evaluation_part("valid")
    key, spec = tf.TensorSpec([2], tf.int32), task.valid.spec[part]
    traced = tf.function(lambda raw, key: task.preprocess(raw, False, key)[1], autograph=False)
    return traced.get_concrete_function(spec, key).structured_outputs


def _labels(task: Task, split: str) -> Iterator[tf.Tensor]:
    clients, part = task.splits[split], task.evaluation_part(split)
    limit = len(clients) if task.setting == "cross_silo" else _MAX_DEVICES
    for i in np.unique(np.linspace(0, len(clients) - 1, limit).astype(int)):
        examples = clients.fetch(clients.ids[i])[part]
        yield task.preprocess(examples, False, tf.zeros([2], tf.int32))[1]


def _constant(task: Task) -> np.ndarray:
    """Returns the one output: a number, or logits of the most frequent class."""
    labels = np.concatenate([np.asarray(y) for y in _labels(task, "train")])
    if labels.dtype.kind == "f":
        return labels.mean(dtype=np.float64).astype(np.float32)
    counts = np.bincount(labels[labels >= 0], minlength=task.model.shapes[-1][-1])
    return np.eye(len(counts), dtype=np.float32)[counts.argmax()]


def _score(task: Task, labels: tf.Tensor, constant: np.ndarray) -> float:
    outputs = np.repeat(constant[None], len(labels), axis=0)
    values, weights = task.metric.function(labels, outputs)
    return float(tf.reduce_sum(values * weights) / tf.reduce_sum(weights))
