"""Training on a text's real tokens alone: layers that take each token by itself, the one of 10,004
logits above all, are spared the padding, which no loss or metric counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from motley_tff.core.client_work import Batch
from motley_tff.core.layer_groups import Features
from motley_tff.core.lazy import tf
from motley_tff.core.task import Task


def predict(task: Task, weights: Sequence[tf.Tensor], batch: Batch) -> tuple[Batch, tf.Tensor]:
    """Returns a batch and the model's outputs on it in training: the batch itself, or its n real
    tokens as a batch of examples, with labels [n] and outputs [n, ...].
    """
    cut = task.model.cut_before_tokens
    if task.is_real is None or cut is None:
        return batch, task.model.predict(weights, batch.x, True, batch.key)
    x = batch.x
    if not isinstance(x, Features):
        x = Features(task.model.features(weights, x, cut, True), cut)
    is_real = task.is_real(batch.y) & (batch.mask > 0.0)[:, tf.newaxis]
    labels = tf.boolean_mask(batch.y, is_real)
    x = Features(tf.boolean_mask(x.values, is_real), x.cut)
    outputs = task.model.predict(weights, x, True, batch.key)
    return Batch(x, labels, tf.ones(tf.shape(labels)), batch.key), outputs
