"""The 1-Wasserstein distance of two sets as a critic of slope 1 sees it.

Wang et al. 2023, supplement 3.2:

    W(G, X) = sup over f of slope at most 1 of E f(g) - E f(x)

with f three dense layers divided by their largest singular values, ReLU after the first two (the
paper names neither widths nor steps; these are ours. It prints that "the last block does have
RELU", perhaps a slip: as f plus a constant is as good, that would change no supremum, but leave no
gradient where f is 0), trained by Adam on batches of both sets. What
is found is less than the sets' distance: such layers have slope 1 in one direction, but |x| only
with slope 1/2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from motley_tff.core.lazy import tf
from motley_tff.metrics.generative import client_features

_WIDTH, _BATCH, _RATE = 128, 256, 1e-2
_STEPS = 600
_POWER_STEPS = 2


def distance(
    first: np.ndarray, second: np.ndarray, rng: np.random.Generator, steps: int = _STEPS
) -> float:
    """Returns the distance of sets [num_examples, num_features], at least 0 but for noise."""
    centre = np.concatenate([first, second]).mean(axis=0)
    scale = float(np.concatenate([first, second]).std()) or 1.0
    a, b = ((x - centre) / scale for x in (first, second))
    critic = _DistanceCritic(a.shape[1], rng)
    optimizer = tf.keras.optimizers.legacy.Adam(
        tf.keras.optimizers.schedules.CosineDecay(_RATE, steps), beta_1=0.5, beta_2=0.9
    )
    for _ in range(steps):
        batches = [x[rng.integers(len(x), size=min(_BATCH, len(x)))] for x in (a, b)]
        critic.train(optimizer, *(tf.constant(x, tf.float32) for x in batches))
    values = [critic(tf.constant(x, tf.float32)).numpy().mean() for x in (a, b)]
    return scale * float(values[0] - values[1])


def forms(
    clients: client_features.ClientFeatures,
    features: np.ndarray,
    seed: int,
    on_critic: Callable[[], None] = lambda: None,
) -> tuple[float, float]:
    """Returns (W-all, W-avg) of a generated set: to all clients together, and the mean over
    clients, weighted by examples. `on_critic` is called before each client's.
    """
    whole = distance(features, clients.features, np.random.default_rng([seed, 0]))
    each = []
    for i, part in enumerate(clients.parts):
        on_critic()
        rng = np.random.default_rng([seed, 1, i])
        each.append(distance(features, clients.features[part], rng))
    return whole, float(np.dot(clients.shares, each))


class _DistanceCritic:
    """Three dense layers of slope 1."""

    def __init__(self, num_features: int, rng: np.random.Generator):
        sizes = [num_features, _WIDTH, _WIDTH, 1]
        self._kernels = [
            tf.Variable(rng.normal(size=(m, n)) / np.sqrt(m), dtype=tf.float32)
            for m, n in itertools.pairwise(sizes)
        ]
        # Large enough that all units are linear at first.
        self._biases = [tf.Variable(tf.ones([n])) for n in sizes[1:]]
        self._vectors = [tf.Variable(rng.normal(size=(1, n)), dtype=tf.float32) for n in sizes[1:]]
        self._step = tf.function(self._train, autograph=False, reduce_retracing=True)
        for _ in range(20):
            self._turn()

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Returns values [n]."""
        layers = zip(self._kernels, self._biases, self._vectors, strict=True)
        for i, (kernel, bias, vector) in enumerate(layers):
            x = x @ (kernel / _largest(kernel, vector)) + bias
            x = tf.nn.relu(x) if i < len(self._kernels) - 1 else x
        return x[:, 0]

    def train(self, optimizer, first: tf.Tensor, second: tf.Tensor) -> None:
        """Takes a step that raises the difference of the means."""
        variables = [*self._kernels, *self._biases]
        gradients = self._step(first, second)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def _train(self, first: tf.Tensor, second: tf.Tensor) -> list[tf.Tensor]:
        self._turn()
        variables = [*self._kernels, *self._biases]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(second)) - tf.reduce_mean(self(first))
        return tape.gradient(loss, variables)

    def _turn(self) -> None:
        """Turns each vector towards its kernel's largest singular value (power iteration)."""
        for kernel, vector in zip(self._kernels, self._vectors, strict=True):
            v = vector.read_value()
            for _ in range(_POWER_STEPS):
                v = tf.math.l2_normalize(v @ tf.transpose(kernel)) @ kernel
            vector.assign(tf.math.l2_normalize(v))


def _largest(kernel: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
    """Returns a kernel's largest singular value, of which `vector` is the direction."""
    return tf.norm(tf.stop_gradient(vector) @ tf.transpose(kernel))
