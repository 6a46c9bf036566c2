"""Rounds of DDPM on digits beside a loop as TensorFlow's guides write one: Keras's layers, Adam, a
`tf.function` a step.
"""

import contextlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from datasets.models import image_unet
from launch.benchmarks import generators
from launch.benchmarks.measuring import Plan, Sizes
from motley_tff.generative import ddpm


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure."""
    yield generators.plan("ddpm", sizes, threads, _make_step)


def _make_step() -> generators.Step:
    net = image_unet.ImageUnet(generators.SHAPE[-1])
    optimizer = tf.keras.optimizers.Adam(2e-4)
    kept = tf.constant(np.cumprod(1.0 - ddpm.betas()), tf.float32)

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        times = tf.random.uniform([tf.shape(x)[0]], 0, ddpm.NUM_STEPS, tf.int32)
        noise = tf.random.normal(tf.shape(x))
        share = tf.reshape(tf.gather(kept, times), [-1, 1, 1, 1])
        with tf.GradientTape() as tape:
            found = net((tf.sqrt(share) * x + tf.sqrt(1.0 - share) * noise, times))
            loss = tf.reduce_mean(tf.square(found - noise))
        weights = net.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    return step
