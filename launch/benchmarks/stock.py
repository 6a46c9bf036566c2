"""Stock TFF on the same work: Keras models and `tff.learning` processes as in its tutorials.

They run in our own worker, so that what is compared is the process, not the runtime.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datasets import emnist, silos
from launch.benchmarks.measuring import Contender
from motley_tff.core.lazy import tff


def emnist_cnn() -> tff.learning.models.VariableModel:
    """Returns TFF's model of the architecture of `datasets.models.emnist_cnn`."""
    layers = tf.keras.layers
    keras_model = tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPool2D(),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(emnist.NUM_CLASSES),
        ]
    )
    return tff.learning.models.from_keras_model(
        keras_model,
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=(tf.TensorSpec([None, 28, 28, 1]), tf.TensorSpec([None], tf.int32)),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )


class _HalfSquaredError(tf.keras.losses.Loss):
    """School's loss, half the squared error, as Keras wants one."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return silos.half_squared_error(y_true, y_pred)[0]


def linear(num_features: int) -> tff.learning.models.VariableModel:
    """Returns TFF's model of the architecture of `datasets.models.linear`, with School's loss."""
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential(
            [tf.keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(num_features,))]
        ),
        loss=_HalfSquaredError(),
        input_spec=(tf.TensorSpec([None, num_features]), tf.TensorSpec([None, 1])),
    )


def images(examples: Mapping[str, np.ndarray]) -> tf.data.Dataset:
    """Returns a client's images, float32 [28, 28, 1] from 0 to 1, with labels."""
    pixels = examples["pixels"][..., None].astype(np.float32) / 255
    return tf.data.Dataset.from_tensor_slices((pixels, examples["label"]))


def image_batches(examples: Mapping[str, np.ndarray], batch_size: int) -> tf.data.Dataset:
    """Returns a client's shuffled batches; images are scaled as they are read."""
    data = tf.data.Dataset.from_tensor_slices((examples["pixels"], examples["label"]))
    return (
        data.shuffle(len(examples["label"]))
        .batch(batch_size)
        .map(lambda pixels, labels: (tf.cast(pixels, tf.float32)[..., None] / 255.0, labels))
    )


def fed_avg(
    name: str,
    model_fn: Callable[[], tff.learning.models.VariableModel],
    datasets: Sequence[tf.data.Dataset],
    learning_rate: float,
    rounds: int = 1,
    **options: Any,
) -> Contender:
    """Returns TFF's weighted FedAvg as `stock TFF, name`, in a `tff_runtime` that has to be open.
    Each client's batches, `datasets`, take part in each of a run's `rounds` with SGD at this rate
    (the server's is 1); `options` are further ones of TFF's builder.
    """
    process = tff.learning.algorithms.build_weighted_fed_avg(
        model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(learning_rate),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        **options,
    )
    first = process.initialize()

    def run(number: int) -> dict[str, float]:
        state = first
        for _ in range(number):
            output = process.next(state, list(datasets))
            state = output.state
        return {"loss": float(output.metrics["client_work"]["train"]["loss"])}

    return Contender(f"stock TFF, {name}", run, rounds)
