"""The LSTM, the group norms and the cross entropy have Keras's numbers: outputs and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from datasets.kinds import cross_entropy
from datasets.models import group_norm, lstm

_UNITS, _IN, _CHANNELS = 6, 3, 6
_SHAPES = {
    "lstm": ([3, 5, 4], [4, 4 * _UNITS], [_UNITS, 4 * _UNITS], [4 * _UNITS]),
    "alone": ([2, 4, 5, _CHANNELS], [_CHANNELS], [_CHANNELS]),
    "pointwise": ([2, 4, 5, _IN], [1, 1, _IN, _CHANNELS], [_CHANNELS], [_CHANNELS]),
}


def _arguments(name, dtype):
    """Draws inputs and weights: not centred, so that a mean that is left out shows."""
    stream, centre = np.random.default_rng(0), 0.0 if name == "lstm" else 1.0
    return [tf.constant(centre + (1 + centre) * stream.normal(size=s), dtype)
            for s in _SHAPES[name]]  # fmt: skip


def _keras(layer_of, weights, x, **inputs):
    """Returns what a layer of Keras makes of an input with these weights."""
    given = iter(weights)

    def creator(next_creator, **kwargs):
        return next(given) if kwargs.get("trainable", True) else next_creator(**kwargs)

    with tf.variable_creator_scope(creator):
        return layer_of(x.dtype)(x, **inputs)


def _keras_lstm(x, *weights, mask=None):
    def layer(dtype):
        return tf.keras.layers.LSTM(
            _UNITS, return_sequences=True, unit_forget_bias=False, dtype=dtype
        )

    return _keras(layer, weights, x, mask=mask)


def _keras_norm(x, *weights, num_groups, with_relu6):
    *kernel, gamma, beta = weights

    def layer(dtype):
        return tf.keras.layers.GroupNormalization(num_groups, epsilon=1e-3, dtype=dtype)

    x = tf.nn.conv2d(x, kernel[0], 1, "VALID") if kernel else x
    y = _keras(layer, (gamma, beta), x)
    return tf.nn.relu6(y) if with_relu6 else y


_PAIRS = {
    "lstm": (lstm.lstm, _keras_lstm),
    "alone": (group_norm.group_norm, _keras_norm),
    "pointwise": (group_norm.pointwise_group_norm, _keras_norm),
}


def _norm(num_groups, with_relu6):
    return {"num_groups": num_groups, "with_relu6": with_relu6}


def _mask():
    mask = np.ones([3, 5], bool)
    mask[0, 3:] = mask[1, 0] = mask[1, 2] = False
    return tf.constant(mask)


_NORMS = [(tf.float64, _norm(2, True)), (tf.float64, _norm(1, False)),
          (tf.float32, _norm(6, True)), (tf.float32, _norm(2, False))]  # fmt: skip


def _outputs_and_gradients(function, arguments, options):
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        y = function(*arguments, **options)
        # Each output counts differently, or a gradient in the wrong place would not show.
        counts = tf.reshape(tf.sin(tf.range(tf.size(y, tf.float32), dtype=y.dtype)), tf.shape(y))
        loss = tf.reduce_sum(y * counts)
    return [value.numpy() for value in (y, *tape.gradient(loss, arguments))]


@pytest.mark.parametrize(
    ("name", "dtype", "options"),
    [
        ("lstm", tf.float64, {"mask": _mask()}),
        ("lstm", tf.float32, {}),
        *((name, *norm) for name in ("alone", "pointwise") for norm in _NORMS),
    ],
)
def test_it_is_kerass(name, dtype, options):
    arguments, rtol = _arguments(name, dtype), 1e-10 if dtype == tf.float64 else 1e-5
    ours, keras = (_outputs_and_gradients(f, arguments, options) for f in _PAIRS[name])
    if options.get("with_relu6"):
        assert (keras[0] == 0).any() and (keras[0] == 6).any()
    for actual, expected in zip(ours, keras, strict=True):
        np.testing.assert_allclose(actual, expected, rtol, rtol * np.abs(expected).max())


@pytest.mark.parametrize("name", _PAIRS)
def test_a_gradient_of_gradients_is_refused_rather_than_wrong(name):
    x, *weights = _arguments(name, tf.float32)
    options = {} if name == "lstm" else _norm(2, True)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(tf.square(_PAIRS[name][0](x, *weights, **options)))
        gradient = inner.gradient(y, x)
    with pytest.raises(LookupError, match="has no gradient here"):
        outer.gradient(gradient, x)


def test_an_lstms_weights_are_kerass():
    ours, keras = lstm.Lstm(_UNITS, "lstm"), tf.keras.layers.LSTM(_UNITS, name="lstm")
    for layer in (ours, keras):
        layer.build(tf.TensorShape([None, 5, 4]))
    assert [w.shape for w in ours.weights] == [w.shape for w in keras.weights]
    np.testing.assert_array_equal(ours.bias, keras.weights[2])
    kernel = ours.recurrent_kernel.numpy()
    np.testing.assert_allclose(kernel @ kernel.T, np.eye(_UNITS), atol=1e-5)  # orthogonal


def _reference(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("num_classes", [7, 1001])
def test_the_cross_entropy_is_tensorflows_and_so_are_second_gradients(shape, scale, num_classes):
    stream = np.random.default_rng(0)
    labels = tf.constant(stream.integers(0, num_classes, shape), tf.int64)
    logits = [tf.constant(scale * stream.normal(size=(*shape, num_classes)), tf.float64)]
    for function in (lambda x, f: f(labels, x), lambda x, f: _gradient(f, labels, x)):
        ours, expected = (
            _outputs_and_gradients(function, logits, {"f": f})
            for f in (cross_entropy.cross_entropy, _reference)
        )
        for actual, reference in zip(ours, expected, strict=True):
            np.testing.assert_allclose(actual, reference, rtol=1e-10, atol=1e-10)


def _gradient(function, labels, logits):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        total = tf.reduce_sum(function(labels, logits))
    return tape.gradient(total, logits)


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_large_logits_close_to_each_other_keep_their_digits(offset):
    logits = (offset + np.random.default_rng(1).normal(size=(4, 1001))).astype(np.float32)
    labels = tf.constant([3, 0, 1000, 7])
    expected = _reference(labels, tf.constant(logits, tf.float64))
    actual = cross_entropy.cross_entropy(labels, tf.constant(logits))
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_few_classes_are_stacked():
    logits = tf.constant(np.random.default_rng(2).normal(size=(3, 4, 5)), tf.float32)
    labels = tf.constant([[0, 1, 2, 3], [4, 0, 0, 1], [2, 2, 2, 2]])
    stacked = tf.vectorized_map(
        lambda rows: _gradient(cross_entropy.cross_entropy, *rows), (labels, logits),
        fallback_to_while_loop=False,
    )  # fmt: skip
    one = _gradient(cross_entropy.cross_entropy, labels[1], logits[1])
    np.testing.assert_allclose(stacked[1], one, rtol=1e-6)


def test_what_diverged_is_not_a_number():
    logits = tf.constant([[np.inf] + 1000 * [0.0], [np.nan] + 1000 * [0.0]])
    assert not np.isfinite(cross_entropy.cross_entropy(tf.constant([1, 1]), logits)).any()
