"""Rounds of WGAN-GP on digits beside a loop as TensorFlow's guides write one: Keras's layers,
Adam, two tapes, a `tf.function` a step.
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from datasets.models import image_gan
from launch.benchmarks import generators
from launch.benchmarks.measuring import Plan, Sizes
from motley_tff.generative import WganGp


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure."""
    yield generators.plan("wgan_gp", sizes, threads, _make_step)


def _make_step() -> generators.Step:
    params, latent_size = WganGp(), image_gan.ImageGan.latent_size
    generator, critic = image_gan.Generator(generators.SHAPE), image_gan.Critic()
    of_generator, of_critic = (tf.keras.optimizers.Adam(1e-4, 0.0, 0.9) for _ in range(2))

    @tf.function
    def train_critic(x: tf.Tensor) -> tf.Tensor:
        size = tf.shape(x)[0]
        made = generator(tf.random.normal([size, latent_size]))
        between = made + tf.random.uniform([size, 1, 1, 1]) * (x - made)
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(between)
                values = critic(between)
            slopes = tf.sqrt(tf.reduce_sum(tf.square(inner.gradient(values, between)), [1, 2, 3]))
            loss = tf.reduce_mean(critic(made) - critic(x))
            loss += params.penalty * tf.reduce_mean(tf.square(slopes - 1.0))
        weights = critic.trainable_variables
        of_critic.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    @tf.function
    def train_generator() -> None:
        noise = tf.random.normal([generators.BATCH_SIZE, latent_size])
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(critic(generator(noise)))
        weights = generator.trainable_variables
        of_generator.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    count = 0

    def step(x: tf.Tensor) -> tf.Tensor:
        nonlocal count
        loss, count = train_critic(x), count + 1
        if count % params.n_critic == 0:
            train_generator()
        return loss

    return step
