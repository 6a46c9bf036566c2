"""What a server can tell of an example from the update of a client that trained on it alone.

`invert_linear` solves for it exactly (Phong et al. 2018, https://eprint.iacr.org/2017/715, section
3); `reconstruct` looks for an example whose gradient is the update (Zhu et al. 2019, "Deep Leakage
from Gradients", https://arxiv.org/abs/1906.08935, Algorithm 1), by SciPy's L-BFGS-B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from motley_tff.core.lazy import tf

# weights, x [1, ...] -> logits [1, classes]
Predict = Callable[[Sequence[Any], Any], Any]


class Leaked(NamedTuple):
    """What was told of an example.

    Attributes:
      x: The example, in its shape.
      label: Its class.
      distance: Squared distance of its gradient to the update; 0 where it was solved for.
    """

    x: np.ndarray
    label: int
    distance: float


def update(
    predict: Predict,
    weights: Sequence[np.ndarray],
    x: np.ndarray,
    label: int,
    rate: float,
    steps: int,
) -> list[np.ndarray]:
    """Returns what a client sends that takes SGD steps on one example, over rate and steps: with
    one step the gradient of its softmax cross entropy.
    """
    now = [tf.constant(w) for w in weights]
    for _ in range(steps):
        with tf.GradientTape() as tape:
            tape.watch(now)
            logits = predict(now, tf.constant(x[np.newaxis]))
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits([label], logits)[0]
        now = [w - rate * g for w, g in zip(now, tape.gradient(loss, now), strict=True)]
    return [
        (first - last.numpy()) / (rate * steps) for first, last in zip(weights, now, strict=True)
    ]


def invert_linear(kernel: np.ndarray, bias: np.ndarray) -> Leaked:
    """Returns the example of which a linear model's gradient is that of kernel [dim, classes] and
    bias [classes].

    The bias's is the probability of each class, less 1 of the label's own, which alone is negative;
    the kernel's is that times the example.
    """
    label = int(np.argmin(bias))
    return Leaked(kernel[:, label] / bias[label], label, 0.0)


def reconstruct(
    predict: Predict,
    weights: Sequence[np.ndarray],
    sent: Sequence[np.ndarray],
    shape: Sequence[int],
    rng: np.random.Generator,
    iterations: int = 300,
    starts: int = 1,
) -> Leaked:
    """Returns the example, in a shape, whose gradient at the weights is nearest to what was sent.

    Both the example and its class's logits start from normal draws; of several starts, some of
    which end far off, the nearest counts.
    """
    from scipy import optimize  # Takes 0.2 s.

    size, num_classes = int(np.prod(shape)), int(np.shape(weights[-1])[-1])
    fixed, targets = [tf.constant(w) for w in weights], [tf.constant(g) for g in sent]

    @tf.function(autograph=False)
    def distance_and_gradient(z):
        with tf.GradientTape() as outer:
            outer.watch(z)
            x, probabilities = tf.reshape(z[:size], [1, *shape]), tf.nn.softmax(z[size:])
            with tf.GradientTape() as inner:
                inner.watch(fixed)
                logits = predict(fixed, x)[0]
                loss = -tf.reduce_sum(probabilities * tf.nn.log_softmax(logits))
            gradients = inner.gradient(loss, fixed)
            distance = tf.add_n(
                [tf.reduce_sum((f - w) ** 2) for f, w in zip(gradients, targets, strict=True)]
            )
        return distance, outer.gradient(distance, z)

    def objective(z):
        value, gradient = distance_and_gradient(tf.constant(z, tf.float32))
        return float(value), gradient.numpy().astype(np.float64)

    options = {"maxiter": iterations, "maxfun": 4 * iterations, "ftol": 0.0, "gtol": 0.0}
    tried = [
        optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        for start in rng.normal(size=(starts, size + num_classes))
    ]
    best = min(tried, key=lambda attempt: attempt.fun)
    x = best.x[:size].reshape(shape).astype(np.float32)
    return Leaked(x, int(np.argmax(best.x[size:])), float(best.fun))
