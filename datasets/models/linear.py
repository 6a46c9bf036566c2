"""One dense output with zero initial weights: School's regression, Vehicle's SVM margin."""

import tensorflow as tf


class Linear(tf.keras.Model):
    """Outputs [batch] from features [batch, dim]."""

    vectorizes = True

    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(1, kernel_initializer="zeros", name="dense")

    @property
    def last_layer(self) -> tuple[tf.keras.layers.Layer, ...]:
        """The only layer."""
        return (self.dense,)

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the features themselves."""
        return x

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the output."""
        return tf.squeeze(self.dense(x), axis=-1)
