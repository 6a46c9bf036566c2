"""What tasks with one label an image share: loss, accuracy, and the task. Outputs are logits."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from datasets import cross_entropy as cross_entropy_lib
from motley_tff.core import clients as clients_lib, functional_model, task as task_lib


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (softmax cross entropy, ones), in the shape of the labels."""
    losses = cross_entropy_lib.cross_entropy(labels, logits)
    return losses, tf.ones_like(losses)


def accuracy(labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (1.0 where the largest logit is the label's [batch], ones [batch])."""
    correct = tf.cast(tf.equal(tf.argmax(logits, -1, tf.int32), labels), tf.float32)
    return correct, tf.ones_like(correct)


def image_task(
    model: Callable[[int], tf.keras.Model],
    image_shape: tuple[int, int, int],
    num_classes: int,
    clients: Mapping[str, clients_lib.Clients],
    facts: Mapping[str, Any],
    **fields: Any,
) -> task_lib.Task:
    """Returns a cross-device task of telling images' classes, 0 to `num_classes`, exclusive.
    `model` makes the model from their number, `image_shape` is height, width and channels of what
    it sees, **fields are the task's others: name, preprocessing.
    """
    return task_lib.Task(
        setting="cross_device",
        model=functional_model.from_keras(
            functools.partial(model, num_classes), np.zeros((1, *image_shape), np.float32)
        ),
        loss=cross_entropy,
        metrics=(task_lib.Metric("accuracy", accuracy, higher_is_better=True),),
        facts={**facts, "num_classes": num_classes},
        train=clients["train"],
        valid=clients["valid"],
        test=clients["test"],
        **fields,
    )
