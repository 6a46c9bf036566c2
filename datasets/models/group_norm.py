"""Group normalization, alone and behind a 1x1 convolution, in few passes over the images.

Wu and He 2018 (https://arxiv.org/abs/1803.08494): each example's groups of neighbouring channels
are normalized, then channels scaled and shifted; a ReLU6 may follow. On a CPU this is bound by
memory, so gradients are written by hand. With h the input, M and V a group's mean and variance,
A = gamma / sqrt(V + epsilon), and dz the gradient of z = (h - M) A + beta:

    dh = dz A - (h - M) mean(dz gamma (h - M)) / (V + epsilon)^(3/2) - mean(dz gamma) / sqrt(...)

Behind a 1x1 convolution h = X W of few input channels, h is never formed: its channels' means and
squares follow from those of X (the Gram matrix X'X of an example), z is X times a scaled W, and the
gradients of X and W are products with dz and with small matrices. XLA makes neither faster.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

# Added to variances; the published model's.
_EPSILON = 1e-3


class _GroupMoments(NamedTuple):
    """Of each example and channel its group's.

    Attributes:
      mean: M [batch, channels].
      inverse: 1 / sqrt(V + epsilon) [batch, channels].
      size: Numbers in a group, a scalar.
    """

    mean: tf.Tensor
    inverse: tf.Tensor
    size: tf.Tensor


def group_norm(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, num_groups: int, with_relu6: bool
) -> tf.Tensor:
    """Returns x normalized, in its shape. It has gradients, but no second
    ones, and `tf.vectorized_map` cannot stack it.

    Args:
      x: [batch, height, width, channels].
      gamma: Scales [channels].
      beta: Shifts [channels].
      num_groups: Divides the number of channels.
      with_relu6: Whether a ReLU6 follows.
    """

    @tf.custom_gradient
    def normalized(x, gamma, beta):
        rows = _rows(x)
        mean = _group_means(tf.reduce_mean(rows, 1), num_groups)
        squares = tf.math.squared_difference(rows, mean[:, tf.newaxis])
        variance = _group_means(tf.reduce_mean(squares, 1), num_groups)
        moments = _moments(rows, mean, variance, num_groups)
        scale = moments.inverse * gamma
        y = _activated(rows * scale[:, tf.newaxis], beta - mean * scale, with_relu6)

        def gradients(dy):
            dz = _before_activation(_rows(dy), y, with_relu6)
            sums = tf.reduce_sum(dz, 1)
            products = tf.reduce_sum(dz * rows, 1) - mean * sums
            slope, shift = _slope_and_shift(moments, gamma, sums, products, num_groups)
            constant = slope * mean - shift
            dx = dz * scale[:, tf.newaxis] - rows * slope[:, tf.newaxis]
            dx = tf.reshape(dx + constant[:, tf.newaxis], tf.shape(x))
            dgamma = tf.reduce_sum(products * moments.inverse, 0)
            return _without_second_derivatives(dx, dgamma, tf.reduce_sum(sums, 0))

        return tf.reshape(y, tf.shape(x)), gradients

    return normalized(x, gamma, beta)


def pointwise_group_norm(
    x: tf.Tensor,
    kernel: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    num_groups: int,
    with_relu6: bool,
) -> tf.Tensor:
    """Returns `group_norm` of a 1x1 convolution [batch, height, width, channels].

    Args:
      x: [batch, height, width, in]; pays where `in` is smaller than `channels` and
        much smaller than height times width.
      kernel: [1, 1, in, channels].
      gamma: As for `group_norm`, and so are the others.
    """

    @tf.custom_gradient
    def normalized(x, kernel, gamma, beta):
        rows, w = _rows(x), kernel[0, 0]
        positions = tf.cast(tf.shape(rows)[1], x.dtype)
        mean_rows = tf.reduce_mean(rows, 1, keepdims=True)
        centred = rows - mean_rows
        gram_w = tf.matmul(tf.matmul(centred, centred, transpose_a=True), w)
        means = tf.matmul(mean_rows[:, 0], w)
        mean = _group_means(means, num_groups)
        offset = means - mean
        squares = tf.reduce_sum(gram_w * w, 1) / positions + tf.square(offset)
        # Which rounding can bring below zero.
        variance = tf.maximum(_group_means(squares, num_groups), 0.0)
        moments = _moments(rows, mean, variance, num_groups, w.shape[1])
        scale = moments.inverse * gamma
        scaled_w = w * scale[:, tf.newaxis]
        y = _activated(tf.matmul(centred, scaled_w), beta + offset * scale, with_relu6)

        def gradients(dy):
            dz = _before_activation(_rows(dy), y, with_relu6)
            sums = tf.reduce_sum(dz, 1)
            rows_dz = tf.matmul(centred, dz, transpose_a=True)
            products = tf.reduce_sum(rows_dz * w, 1) + offset * sums
            slope, shift = _slope_and_shift(moments, gamma, sums, products, num_groups)
            constant = shift + slope * offset
            sloped_w = w * slope[:, tf.newaxis]
            dx = tf.matmul(dz, scaled_w, transpose_b=True)
            dx -= tf.matmul(centred, tf.matmul(sloped_w, w, transpose_b=True))
            dx -= tf.matmul(constant, w, transpose_b=True)[:, tf.newaxis]
            sums_dh = sums * scale - positions * constant
            dw = tf.reduce_sum(rows_dz * scale[:, tf.newaxis] - gram_w * slope[:, tf.newaxis], 0)
            dw += tf.matmul(mean_rows[:, 0], sums_dh, transpose_a=True)
            dgamma = tf.reduce_sum(products * moments.inverse, 0)
            dx, dw = tf.reshape(dx, tf.shape(x)), dw[tf.newaxis, tf.newaxis]
            return _without_second_derivatives(dx, dw, dgamma, tf.reduce_sum(sums, 0))

        shape = tf.concat([tf.shape(x)[:3], [w.shape[1]]], 0)
        return tf.reshape(y, shape), gradients

    return normalized(x, kernel, gamma, beta)


def _rows(x: tf.Tensor) -> tf.Tensor:
    """Returns [batch, height * width, channels]."""
    return tf.reshape(x, [tf.shape(x)[0], -1, x.shape[3]])


def _group_means(channels: tf.Tensor, num_groups: int) -> tf.Tensor:
    """Returns, of each channel, the mean of its group's channels; [batch, channels] both."""
    width = channels.shape[1] // num_groups
    means = tf.reduce_mean(tf.reshape(channels, [-1, num_groups, width]), 2, keepdims=True)
    return tf.reshape(tf.tile(means, [1, 1, width]), [-1, channels.shape[1]])


def _moments(rows, mean, variance, num_groups, num_channels=None) -> _GroupMoments:
    size = tf.shape(rows)[1] * ((num_channels or rows.shape[2]) // num_groups)
    return _GroupMoments(mean, tf.math.rsqrt(variance + _EPSILON), tf.cast(size, rows.dtype))


def _slope_and_shift(
    moments: _GroupMoments, gamma: tf.Tensor, sums: tf.Tensor, products: tf.Tensor, num_groups: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns s and t [batch, channels] of dh = dz A - s (h - M) - t.

    Args:
      sums: Sums of dz over positions [batch, channels].
      products: Sums of dz (h - M), likewise.
    """
    width = gamma.shape[0] // num_groups
    means = [_group_means(gamma * s, num_groups) * width / moments.size for s in (products, sums)]
    return means[0] * moments.inverse**3, means[1] * moments.inverse


def _activated(scaled: tf.Tensor, shift: tf.Tensor, with_relu6: bool) -> tf.Tensor:
    z = scaled + shift[:, tf.newaxis]
    return tf.nn.relu6(z) if with_relu6 else z


def _before_activation(dy: tf.Tensor, y: tf.Tensor, with_relu6: bool) -> tf.Tensor:
    return tf.raw_ops.Relu6Grad(gradients=dy, features=y) if with_relu6 else dy


def _without_second_derivatives(*gradients: tf.Tensor) -> Sequence[tf.Tensor]:
    """Returns gradients that refuse to be differentiated again: they would be wrong."""
    message = "a group norm's gradient has no gradient here; use Keras's GroupNormalization"
    return [tf.raw_ops.PreventGradient(input=g, message=message) for g in gradients]
