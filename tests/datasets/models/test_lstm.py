"""The LSTM layer has Keras's numbers: outputs and every gradient, with and without a mask."""

import numpy as np
import pytest
import tensorflow as tf

from datasets.models import lstm

_BATCH, _TIME, _DIM, _UNITS = 3, 5, 4, 6


def _arguments(dtype):
    stream = np.random.default_rng(0)
    shapes = ([_BATCH, _TIME, _DIM], [_DIM, 4 * _UNITS], [_UNITS, 4 * _UNITS], [4 * _UNITS])
    return tuple(tf.constant(stream.normal(size=shape), dtype) for shape in shapes)


def _keras(x, kernel, recurrent, bias, mask=None):
    weights = iter((kernel, recurrent, bias))

    def creator(next_creator, **kwargs):
        return next(weights) if kwargs.get("trainable", True) else next_creator(**kwargs)

    with tf.variable_creator_scope(creator):
        layer = tf.keras.layers.LSTM(
            _UNITS, return_sequences=True, unit_forget_bias=False, dtype=x.dtype
        )
        return layer(x, mask=mask)


def _outputs_and_gradients(function, arguments, mask):
    scale = tf.cast(
        tf.reshape(tf.range(_BATCH * _TIME * _UNITS), [_BATCH, _TIME, _UNITS]), tf.int32
    )
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        y = function(*arguments, mask=mask)
        # Each output counts differently, or a gradient in the wrong place would not show.
        loss = tf.reduce_sum(y * tf.sin(tf.cast(scale, y.dtype)))
    return [y, *tape.gradient(loss, arguments)]


@pytest.mark.parametrize(
    ("dtype", "rtol", "with_mask"), [(tf.float64, 1e-10, True), (tf.float32, 1e-5, False)]
)
def test_it_is_kerass(dtype, rtol, with_mask):
    mask = np.ones([_BATCH, _TIME], bool)
    mask[0, 3:] = mask[1, 0] = mask[1, 2] = False
    mask = tf.constant(mask) if with_mask else None
    arguments = _arguments(dtype)
    ours = _outputs_and_gradients(lstm.lstm, arguments, mask)
    keras = _outputs_and_gradients(_keras, arguments, mask)
    for actual, expected in zip(ours, keras, strict=True):
        np.testing.assert_allclose(actual, expected, rtol, rtol * np.abs(expected).max())


def test_its_weights_are_kerass():
    ours, keras = lstm.Lstm(_UNITS, "lstm"), tf.keras.layers.LSTM(_UNITS, name="lstm")
    for layer in (ours, keras):
        layer.build(tf.TensorShape([None, _TIME, _DIM]))
    shapes = [tuple(w.shape) for w in keras.weights]
    assert [tuple(w.shape) for w in ours.weights] == shapes
    np.testing.assert_array_equal(ours.bias, keras.weights[2])
    kernel = ours.recurrent_kernel.numpy()
    np.testing.assert_allclose(kernel @ kernel.T, np.eye(_UNITS), atol=1e-5)  # orthogonal


def test_a_gradient_of_gradients_is_refused_rather_than_wrong():
    x, *weights = _arguments(tf.float32)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(lstm.lstm(x, *weights))
        gradient = inner.gradient(y, x)
    with pytest.raises(LookupError, match="has no gradient here"):
        outer.gradient(gradient, x)
