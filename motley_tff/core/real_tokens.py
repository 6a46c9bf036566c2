"""Predictions of a text's real tokens alone: layers that take each token by itself, the one of
10,004 logits above all, are spared the padding, which no loss or metric counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from motley_tff.core.client_work import Batch
from motley_tff.core.layer_groups import Cut, Features
from motley_tff.core.lazy import tf
from motley_tff.core.task import Task


def predict(
    task: Task, weights: Sequence[tf.Tensor], batch: Batch, training: bool
) -> tuple[Batch, tf.Tensor]:
    """Returns a batch and the model's outputs on it: the batch itself, or its n real tokens as a
    batch of examples, with labels [n] and outputs [n, ...].
    """
    cut = _cut(task)
    if cut is None:
        return batch, task.model.predict(weights, batch.x, training, batch.key)
    x, is_real = batch.x, _is_real(task, batch)
    if not isinstance(x, Features):
        x = Features(task.model.features(weights, x, cut, training), cut)
    x = Features(tf.boolean_mask(x.values, is_real), x.cut)
    labels = tf.boolean_mask(batch.y, is_real)
    outputs = task.model.predict(weights, x, training, batch.key)
    return Batch(x, labels, tf.ones(tf.shape(labels)), batch.key), outputs


def by_example(task: Task, batch: Batch, values: tf.Tensor) -> tf.Tensor:
    """Returns what each example of a batch has of values of the entries that `predict` made of it,
    float32 [n]: their sum over its real tokens, [batch].
    """
    if _cut(task) is None:
        return values
    rows = tf.where(_is_real(task, batch))[:, 0]
    return tf.math.unsorted_segment_sum(values, rows, tf.shape(batch.mask)[0])


def _cut(task: Task) -> Cut | None:
    return None if task.is_real is None else task.model.cut_before_tokens


def _is_real(task: Task, batch: Batch) -> tf.Tensor:
    assert task.is_real is not None
    return task.is_real(batch.y) & (batch.mask > 0.0)[:, tf.newaxis]
