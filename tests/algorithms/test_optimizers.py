"""Optimizers against Keras's, and against their formulas."""

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import optimizers

RATE, STEPS = 0.1, 7
_RNG = np.random.default_rng(0)
START = (_RNG.normal(size=[3, 2]).astype(np.float32), _RNG.normal(size=[4]).astype(np.float32))
GRADIENTS = [
    tuple(_RNG.normal(size=w.shape).astype(np.float32) for w in START) for _ in range(STEPS)
]


def steps(name, gradients=GRADIENTS, **parameters):
    """Returns the weights after each step."""
    optimizer = optimizers.build_optimizer(optimizers.OptimizerConfig(name, RATE, parameters))
    weights = tuple(map(tf.constant, START))
    specs = tf.nest.map_structure(lambda w: tf.TensorSpec(w.shape, w.dtype), weights)
    state, path = optimizer.initialize(specs), []
    for gradient in gradients:
        state, weights = optimizer.next(state, weights, gradient)
        path.append([w.numpy() for w in weights])
    return path


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_kerass(momentum, nesterov):
    keras = tf.keras.optimizers.SGD(RATE, momentum=momentum, nesterov=nesterov)
    variables = [tf.Variable(w) for w in START]
    for gradient, mine in zip(
        GRADIENTS, steps("sgd", momentum=momentum, nesterov=nesterov), strict=True
    ):
        keras.apply_gradients(zip(map(tf.constant, gradient), variables, strict=True))
        for weight, other in zip(mine, variables, strict=True):
            np.testing.assert_allclose(weight, other.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["adagrad", "rmsprop"])
def test_by_its_formula(name):
    """Adagrad's epsilon is inside the root; Duchi et al. have it outside."""
    decay, epsilon, is_adagrad = 0.8, 0.01, name == "adagrad"
    weight, total = START[1].astype(np.float64), 0.1 if is_adagrad else 0.0
    path = steps(name, epsilon=epsilon, **({} if is_adagrad else {"decay": decay}))
    for (_, gradient), (_, mine) in zip(GRADIENTS, path, strict=True):
        if is_adagrad:
            total = total + gradient**2
            weight = weight - RATE * gradient / np.sqrt(total + epsilon)
        else:
            total = decay * total + (1 - decay) * gradient**2
            weight = weight - RATE * gradient / (np.sqrt(total) + epsilon)
        np.testing.assert_allclose(mine, weight, rtol=1e-4, atol=1e-6)


def test_rmsprop_is_kerass_legacy_one():
    gradient = np.full_like(START[1], 1e-6)
    ((_, mine),) = steps("rmsprop", [(START[0], gradient)])
    lengths = []
    for kind in (tf.keras.optimizers.legacy.RMSprop, tf.keras.optimizers.RMSprop):
        variable = tf.Variable(0 * START[1])
        kind(RATE, rho=0.9, epsilon=1e-7).apply_gradients([(tf.constant(gradient), variable)])
        lengths.append(variable.numpy() / (mine - START[1]))
    np.testing.assert_allclose(lengths[0], 1, rtol=1e-3)
    np.testing.assert_allclose(1 / lengths[1], 760, rtol=1e-2)
