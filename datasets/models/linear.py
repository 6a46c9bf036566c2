"""One dense layer with zero initial weights: School's regression, Vehicle's SVM margin, tables."""

from collections.abc import Sequence

import tensorflow as tf

from motley_tff.core.errors import UserError


class Linear(tf.keras.Model):
    """Outputs from inputs [batch, ...], which are flattened: a number each, [batch], or logits
    [batch, num_classes].
    """

    vectorizes = True

    def __init__(self, num_classes: int | None = None):
        super().__init__()
        self.is_number = num_classes is None
        self.dense = tf.keras.layers.Dense(
            num_classes or 1, kernel_initializer="zeros", name="dense"
        )

    @property
    def last_layer(self) -> tuple[tf.keras.layers.Layer, ...]:
        """The only layer."""
        return (self.dense,)

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the inputs themselves, [batch, dim]."""
        return flat(x)

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the outputs."""
        outputs = self.dense(flat(x))
        return tf.squeeze(outputs, axis=-1) if self.is_number else outputs


def without_sizes(num_classes: int | None, sizes: Sequence[int] | None) -> Linear:
    """Returns the model; UserError if it is given sizes of layers, which it has none of."""
    if sizes:
        raise UserError("--model_sizes: a linear model has none; leave it out, or give --model=mlp")
    return Linear(num_classes)


def flat(x: tf.Tensor) -> tf.Tensor:
    """Returns inputs [batch, ...] as [batch, dim]."""
    return (
        x if len(x.shape) == 2 else tf.reshape(x, [-1, tf.TensorShape(x.shape[1:]).num_elements()])
    )
