"""The yardstick: training steps over batches in one `tf.function`, with no federation around them.

The same functional model, the same batches in the same order with the same dropout as the clients
of one round have, one after the other on one set of weights, with plain SGD. Nothing is broadcast,
weighted, aggregated or measured but the loss.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from motley_tff.core import client_work, random_streams, tensor_random
from motley_tff.core import task as task_lib


class Batches(NamedTuple):
    """All batches of one round.

    Attributes:
      examples: `{field: tensor [num_examples, ...]}`, all clients' examples.
      order: int32, rows of `examples` batch after batch.
      bounds: int32 [num_batches + 1], where each batch begins in `order`, and the end.
      keys: int32 [num_batches, 2], each batch's random key.
    """

    examples: dict[str, tf.Tensor]
    order: tf.Tensor
    bounds: tf.Tensor
    keys: tf.Tensor


def round_batches(
    task: task_lib.Task, client_ids: Sequence[str], walk: client_work.Pass, round_key: np.ndarray
) -> Batches:
    """Returns what the clients' work walks over in one round, for one epoch.

    Args:
      task: Whose training clients.
      client_ids: The cohort.
      walk: The pass.
      round_key: The round's key.
    """
    parts = [task.train.fetch(client_id)[walk.part] for client_id in client_ids]
    orders, lengths, keys = [], [], []
    first = 0
    for client_id, examples in zip(client_ids, parts, strict=True):
        n = len(next(iter(examples.values())))
        key = _epoch_key(round_key, client_id)
        order = tensor_random.permutation(tensor_random.fold(key, tensor_random.SHUFFLE, 0), n)
        steps = int(client_work.steps_per_epoch(tf.constant(n), walk))
        size = min(walk.batch_size, n)
        taken = min(steps * size, n)
        orders.append(order.numpy()[:taken] + first)
        for step in range(steps):
            lengths.append(min(size, taken - step * size))
            keys.append(tensor_random.fold(key, tensor_random.STEP, step))
        first += n
    return Batches(
        {f: tf.concat([p[f] for p in parts], 0) for f in task.train.spec[walk.part]},
        tf.constant(np.concatenate(orders), tf.int32),
        tf.constant(np.concatenate([[0], np.cumsum(lengths)]), tf.int32),
        tf.stack(keys),
    )


def _epoch_key(round_key: np.ndarray, client_id: str) -> tf.Tensor:
    key = tensor_random.client_round_key(
        tf.constant(round_key), tf.constant(random_streams.client_key(client_id))
    )
    key = tensor_random.fold(key, tensor_random.PASS, 0)
    return tensor_random.fold(key, tensor_random.EPOCH, 0)


def build(
    task: task_lib.Task, batches: Batches, learning_rate: float
) -> Callable[[Any], tuple[Any, tf.Tensor]]:
    """Returns `weights -> (weights after all batches, mean loss)`, compiled by its first call."""

    @tf.function(autograph=False)
    def loop(weights, examples, order, bounds, keys):
        def body(i, weights, total):
            rows = order[bounds[i] : bounds[i + 1]]
            raw = {field: tf.gather(values, rows) for field, values in examples.items()}
            x, y = task.preprocess(raw, True, keys[i])
            weights, loss = sgd_step(task, weights, x, y, keys[i], learning_rate)
            return i + 1, weights, total + loss

        start = (tf.constant(0), weights, tf.constant(0.0))
        steps = tf.shape(keys)[0]
        _, weights, total = tf.while_loop(
            lambda i, *_: i < steps, body, start, parallel_iterations=1
        )
        return weights, total / tf.cast(steps, tf.float32)

    return lambda weights: loop(tuple(map(tf.convert_to_tensor, weights)), *batches)


def sgd_step(
    task: task_lib.Task, weights: Any, x: Any, y: Any, key: Any, learning_rate: float
) -> tuple[Any, tf.Tensor]:
    """Returns (weights after one SGD step, the batch's mean loss)."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(weights)
        outputs = task.model.predict(weights, x, True, key)
        values, entry_weights = task.loss(y, outputs)
        loss = tf.reduce_sum(values * entry_weights) / tf.reduce_sum(entry_weights)
    gradients = tape.gradient(loss, weights)
    new = tuple(
        w - learning_rate * tf.convert_to_tensor(g) for w, g in zip(weights, gradients, strict=True)
    )
    return new, loss
