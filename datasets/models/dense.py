"""Dense layers that one client's weights fit, or those of a stack of clients (`core.rows`)."""

import math

import tensorflow as tf

from motley_tff.core import rows


class Dense(tf.keras.layers.Dense):
    """Keras's layer; of inputs [rows, batch, dim], kernels [rows, dim, units] and biases [rows,
    units], a product for each row.
    """

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns [batch, units], or [rows, batch, units]."""
        if not rows.leading():
            return super().call(x)
        kernel, bias = map(tf.convert_to_tensor, (self.kernel, self.bias))
        return self.activation(tf.matmul(tf.cast(x, kernel.dtype), kernel) + bias[:, None])


def flatten(x: tf.Tensor) -> tf.Tensor:
    """Returns each example's numbers in a line: [..., batch, any shape] -> [..., batch, dim]."""
    if rows.leading():
        return tf.reshape(x, [*x.shape[:2], math.prod(x.shape[2:])])
    return tf.reshape(x, [-1, math.prod(x.shape[1:])])
