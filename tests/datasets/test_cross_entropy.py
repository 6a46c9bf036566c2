"""The cross entropy is TensorFlow's, and so are its gradients and theirs."""

import numpy as np
import pytest
import tensorflow as tf

from datasets import cross_entropy


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
def test_it_is_tensorflows(shape, scale):
    stream = np.random.default_rng(0)
    labels = tf.constant(stream.integers(0, 7, shape), tf.int32)
    logits = tf.constant(scale * stream.normal(size=(*shape, 7)), tf.float64)
    pairs = zip(
        _losses_and_gradients(cross_entropy.cross_entropy, labels, logits),
        _losses_and_gradients(_reference, labels, logits),
        strict=True,
    )
    for ours, reference in pairs:
        np.testing.assert_allclose(ours, reference, rtol=1e-10, atol=1e-10)


def test_what_diverged_is_not_a_number():
    logits = tf.constant([[np.inf, 0.0], [np.nan, 0.0]])
    assert not np.isfinite(cross_entropy.cross_entropy(tf.constant([1, 1]), logits)).any()
