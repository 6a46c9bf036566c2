"""The cross entropy is TensorFlow's, and so are its gradients and theirs."""

import numpy as np
import pytest
import tensorflow as tf

from datasets.kinds import cross_entropy


def _reference(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _losses_and_gradients(function, labels, logits):
    counts = tf.cos(tf.range(tf.size(labels, tf.float32), dtype=logits.dtype))
    with tf.GradientTape() as outer:
        outer.watch(logits)
        with tf.GradientTape() as inner:
            inner.watch(logits)
            losses = function(labels, logits)
            total = tf.reduce_sum(losses * tf.reshape(counts, tf.shape(losses)))
        gradients = inner.gradient(total, logits)
        curvature = tf.reduce_sum(tf.square(gradients))
    return losses, gradients, outer.gradient(curvature, logits)


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("num_classes", [7, 1001])
@pytest.mark.parametrize("label_type", [tf.int32, tf.int64])
def test_it_is_tensorflows(shape, scale, num_classes, label_type):
    stream = np.random.default_rng(0)
    labels = tf.constant(stream.integers(0, num_classes, shape), label_type)
    logits = tf.constant(scale * stream.normal(size=(*shape, num_classes)), tf.float64)
    pairs = zip(
        _losses_and_gradients(cross_entropy.cross_entropy, labels, logits),
        _losses_and_gradients(_reference, labels, logits),
        strict=True,
    )
    for ours, reference in pairs:
        np.testing.assert_allclose(ours, reference, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
def test_large_logits_close_to_each_other_keep_their_digits(offset):
    stream = np.random.default_rng(1)
    logits = (offset + stream.normal(size=(4, 1001))).astype(np.float32)
    labels = tf.constant([3, 0, 1000, 7])
    expected = _reference(labels, tf.constant(logits, tf.float64))
    actual = cross_entropy.cross_entropy(labels, tf.constant(logits))
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_few_classes_are_stacked():
    logits = tf.constant(np.random.default_rng(2).normal(size=(3, 4, 5)), tf.float32)
    labels = tf.constant([[0, 1, 2, 3], [4, 0, 0, 1], [2, 2, 2, 2]])

    def gradient(args):
        with tf.GradientTape() as tape:
            tape.watch(args[1])
            total = tf.reduce_sum(cross_entropy.cross_entropy(*args))
        return tape.gradient(total, args[1])

    stacked = tf.vectorized_map(gradient, (labels, logits), fallback_to_while_loop=False)
    np.testing.assert_allclose(stacked[1], gradient((labels[1], logits[1])), rtol=1e-6)


def test_what_diverged_is_not_a_number():
    logits = tf.constant([[np.inf] + 1000 * [0.0], [np.nan] + 1000 * [0.0]])
    assert not np.isfinite(cross_entropy.cross_entropy(tf.constant([1, 1]), logits)).any()
