"""Dense layers that one client's weights fit, or those of a stack of clients (`core.rows`)."""

import math

import tensorflow as tf

from motley_tff.core import rows


class Dense(tf.keras.layers.Dense):
    """Keras's layer; of kernels [rows, dim, units] and biases [rows, units], a product for each
    client. Inputs [clients, batch, dim] are each for as many rows, in order.
    """

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns [batch, units], or [rows, batch, units]."""
        if not rows.leading():
            return super().call(x)
        kernel, bias = map(tf.convert_to_tensor, (self.kernel, self.bias))
        return self.activation(_products(tf.cast(x, kernel.dtype), kernel) + bias[:, None])


def flatten(x: tf.Tensor) -> tf.Tensor:
    """Returns each example's numbers in a line: [..., batch, any shape] -> [..., batch, dim]."""
    if rows.leading():
        return tf.reshape(x, [*x.shape[:2], math.prod(x.shape[2:])])
    return tf.reshape(x, [-1, math.prod(x.shape[1:])])


def _products(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Returns x [clients, batch, dim] times kernels [rows, dim, units]: [rows, batch, units]."""
    clients, batch, dim = x.shape
    each, units = kernel.shape[0] // clients, kernel.shape[2]
    if each == 1:
        return tf.matmul(x, kernel)
    # All kernels that meet the same inputs are one: a matrix product is quicker than several.
    wide = tf.transpose(tf.reshape(kernel, [clients, each, dim, units]), [0, 2, 1, 3])
    outputs = tf.matmul(x, tf.reshape(wide, [clients, dim, each * units]))
    outputs = tf.transpose(tf.reshape(outputs, [clients, batch, each, units]), [0, 2, 1, 3])
    return tf.reshape(outputs, [clients * each, batch, units])
