"""The yardstick of fine-tuning: train and score client after client in one `tf.function`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from launch.benchmarks import bare_loop
from motley_tff.core import task as task_lib
from motley_tff.core import tensor_random


def build(
    task: task_lib.Task, num_epochs: int, batch_size: int, learning_rate: float
) -> Callable[[Any, int], tf.Tensor]:
    """Returns `(weights, number of clients) -> mean accuracy after the last epoch`.

    Every client starts from the weights; it is scored before and after every epoch.

    Args:
      task: Its test clients must be of equal size.
      num_epochs: At least 1.
      batch_size: Of training; evaluation takes all examples at once.
      learning_rate: Of plain SGD.
    """

    def train_epoch(weights, examples, key):
        n = tf.shape(next(iter(examples.values())))[0]
        order = tensor_random.permutation(key, n)

        def step(first, weights):
            rows = order[first : tf.minimum(first + batch_size, n)]
            raw = {field: tf.gather(values, rows) for field, values in examples.items()}
            step_key = tensor_random.fold(key, tensor_random.STEP, first)
            x, y = task.preprocess(raw, True, step_key)
            weights, _ = bare_loop.sgd_step(task, weights, x, y, step_key, learning_rate)
            return first + batch_size, weights

        return _loop(lambda first, _: first < n, step, (0, weights))[1]

    def one_client(weights, parts, number):
        def one_epoch(epoch, weights, curve):
            key = tf.stack([number, epoch])
            weights = train_epoch(weights, parts["personalization"], key)
            score = _score(task, weights, parts["evaluation"], key)
            return epoch + 1, weights, curve + tf.one_hot(epoch, num_epochs + 1) * score

        first = _score(task, weights, parts["evaluation"], tf.stack([number, 0]))
        start = (tf.constant(1), weights, tf.one_hot(0, num_epochs + 1) * first)
        return _loop(lambda epoch, *_: epoch <= num_epochs, one_epoch, start)[2]

    @tf.function(autograph=False)
    def every_client(weights, examples, num_clients):
        def body(i, curves):
            parts = tf.nest.map_structure(lambda values: values[i], examples)
            return i + 1, curves + one_client(weights, parts, i)

        curves = tf.zeros([num_epochs + 1])
        return _loop(lambda i, _: i < num_clients, body, (0, curves))[1][-1]

    examples = tf.nest.map_structure(tf.constant, _stacked(task))

    def run(weights: Any, num_clients: int) -> tf.Tensor:
        weights = tuple(map(tf.convert_to_tensor, weights))
        return every_client(weights, examples, tf.constant(num_clients)) / num_clients

    return run


def _loop(condition, body, start):
    return tf.while_loop(condition, body, start, parallel_iterations=1)


def _score(task, weights, examples, key):
    """Returns the metric's mean over all examples."""
    x, y = task.preprocess(examples, False, key)
    values, _ = task.metric.function(y, task.model.predict(weights, x, False, key))
    return tf.reduce_mean(values)


def _stacked(task):
    """Returns the test clients' parts as arrays, `{part: {field: [clients, n, ...]}}`."""
    clients = [task.test.fetch(client_id) for client_id in task.test.ids]
    return {
        part: {field: np.stack([client[part][field] for client in clients]) for field in fields}
        for part, fields in task.test.spec.items()
    }
