"""Group norm has Keras's numbers, alone and behind a 1x1 convolution: outputs and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from datasets.models import group_norm

_IN, _CHANNELS = 3, 6


def _arguments(dtype, names):
    stream = np.random.default_rng(0)
    shapes = {
        "x": [2, 4, 5, _CHANNELS],
        "inputs": [2, 4, 5, _IN],
        "kernel": [1, 1, _IN, _CHANNELS],
        "gamma": [_CHANNELS],
        "beta": [_CHANNELS],
    }
    # Not centred, so that a mean that is left out shows; large, so that both ends of ReLU6 do.
    return [tf.constant(1.0 + 2.0 * stream.normal(size=shapes[n]), dtype) for n in names]


def _keras(x, gamma, beta, groups, with_relu6):
    values = iter((gamma, beta))
    with tf.variable_creator_scope(lambda make, **_: next(values)):
        layer = tf.keras.layers.GroupNormalization(groups, epsilon=1e-3, dtype=x.dtype)
        y = layer(x)
    return tf.nn.relu6(y) if with_relu6 else y


def _keras_behind_convolution(x, kernel, gamma, beta, groups, with_relu6):
    return _keras(tf.nn.conv2d(x, kernel, 1, "VALID"), gamma, beta, groups, with_relu6)


_PAIRS = {
    "alone": (group_norm.group_norm, _keras, ("x", "gamma", "beta")),
    "pointwise": (
        group_norm.pointwise_group_norm,
        _keras_behind_convolution,
        ("inputs", "kernel", "gamma", "beta"),
    ),
}


def _outputs_and_gradients(function, arguments):
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        y = function(*arguments)
        counts = tf.reshape(tf.sin(tf.range(240.0)), [2, 4, 5, 6])
        loss = tf.reduce_sum(y * tf.cast(counts, y.dtype))
    return [value.numpy() for value in (y, *tape.gradient(loss, arguments))]


@pytest.mark.parametrize(
    ("dtype", "rtol", "groups", "with_relu6"),
    [(tf.float64, 1e-10, 2, True), (tf.float64, 1e-10, 1, False), (tf.float32, 1e-5, 6, True),
     (tf.float32, 1e-5, 2, False)],
)  # fmt: skip
@pytest.mark.parametrize("name", _PAIRS)
def test_it_is_kerass(name, dtype, rtol, groups, with_relu6):
    function, keras, names = _PAIRS[name]
    arguments = _arguments(dtype, names)
    ours = _outputs_and_gradients(lambda *a: function(*a, groups, with_relu6), arguments)
    expected = _outputs_and_gradients(lambda *a: keras(*a, groups, with_relu6), arguments)
    if with_relu6:
        assert (expected[0] == 0).any() and (expected[0] == 6).any()
    for actual, reference in zip(ours, expected, strict=True):
        np.testing.assert_allclose(actual, reference, rtol, rtol * np.abs(reference).max())


@pytest.mark.parametrize("name", _PAIRS)
def test_a_gradient_of_gradients_is_refused_rather_than_wrong(name):
    function, _, names = _PAIRS[name]
    x, *weights = _arguments(tf.float32, names)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(tf.square(function(x, *weights, 2, True)))
        gradient = inner.gradient(y, x)
    with pytest.raises(LookupError, match="has no gradient here"):
        outer.gradient(gradient, x)
