"""The yardstick: training steps over batches in one `tf.function`, with no federation around them.

The same functional model, the same batches in the same order with the same dropout as the clients
of one round have, one after the other on one set of weights, with plain SGD. Nothing is broadcast,
weighted, aggregated or measured but the loss.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from motley_tff.core import client_work, functional_model, random_streams, tensor_random
from motley_tff.core import clients as clients_lib
from motley_tff.core import task as task_lib


class Batches(NamedTuple):
    """All batches of some clients, for one epoch.

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


def batches(
    clients: clients_lib.Clients,
    client_ids: Sequence[str],
    walk: client_work.Pass,
    round_key: np.ndarray,
) -> Batches:
    """Returns what the work of some clients walks over in a round's first epoch."""
    parts = [clients.fetch(client_id)[walk.part] for client_id in client_ids]
    orders: list[np.ndarray] = []
    lengths: list[int] = []
    keys: list[tf.Tensor] = []
    first = 0
    for client_id, examples in zip(client_ids, parts, strict=True):
        n = len(next(iter(examples.values())))
        key = tensor_random.client_round_key(
            tf.constant(round_key), tf.constant(random_streams.client_key(client_id))
        )
        for part in (tensor_random.PASS, tensor_random.EPOCH):
            key = tensor_random.fold(key, part, 0)
        order = tensor_random.permutation(tensor_random.fold(key, tensor_random.SHUFFLE, 0), n)
        steps = int(client_work.steps_per_epoch(tf.constant(n), walk))
        size = min(walk.batch_size, n)
        taken = min(steps * size, n)
        orders.append(order.numpy()[:taken] + first)
        lengths.extend(min(size, taken - step * size) for step in range(steps))
        keys.extend(tensor_random.fold(key, tensor_random.STEP, step) for step in range(steps))
        first += n
    return Batches(
        {f: tf.concat([p[f] for p in parts], 0) for f in clients.spec[walk.part]},
        tf.constant(np.concatenate(orders), tf.int32),
        tf.constant(np.concatenate([[0], np.cumsum(lengths)]), tf.int32),
        tf.stack(keys),
    )


def build(
    task: task_lib.Task, learning_rate: float
) -> Callable[[functional_model.Weights, Batches], tuple[functional_model.Weights, tf.Tensor]]:
    """Returns `(weights, batches) -> (weights after them, mean loss)`; its first call compiles."""

    @tf.function(autograph=False)
    def loop(
        weights: functional_model.Weights, of: Batches
    ) -> tuple[functional_model.Weights, tf.Tensor]:
        def body(i: tf.Tensor, weights: functional_model.Weights, total: tf.Tensor) -> Any:
            rows = of.order[of.bounds[i] : of.bounds[i + 1]]
            raw = {field: tf.gather(values, rows) for field, values in of.examples.items()}
            x, y = task.preprocess(raw, True, of.keys[i])
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(weights)
                outputs = task.model.predict(weights, x, True, of.keys[i])
                values, entry_weights = task.loss(y, outputs)
                loss = tf.reduce_sum(values * entry_weights) / tf.reduce_sum(entry_weights)
            gradients = map(tf.convert_to_tensor, tape.gradient(loss, weights))
            pairs = zip(weights, gradients, strict=True)
            after = tuple(weight - learning_rate * gradient for weight, gradient in pairs)
            return i + 1, after, total + loss

        start = (tf.constant(0), weights, tf.constant(0.0))
        steps = tf.shape(of.keys)[0]
        _, weights, total = tf.while_loop(
            lambda i, *_: i < steps, body, start, parallel_iterations=1
        )
        return weights, total / tf.cast(steps, tf.float32)

    return lambda weights, of: loop(tuple(map(tf.convert_to_tensor, weights)), of)
