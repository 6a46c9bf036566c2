"""A multilayer perceptron: dense layers with ReLU, then one without."""

from collections.abc import Sequence

import tensorflow as tf

from datasets.models import linear


class Mlp(tf.keras.Model):
    """Outputs from inputs [batch, ...], which are flattened: a number each, [batch], or logits
    [batch, num_classes].
    """

    vectorizes = True

    def __init__(self, num_classes: int | None = None, sizes: Sequence[int] = (64, 64)):
        super().__init__()
        layers = tf.keras.layers
        self.is_number = num_classes is None
        self.hidden = [
            layers.Dense(size, activation="relu", name=f"hidden_{i}")
            for i, size in enumerate(sizes)
        ]
        self.outputs_layer = layers.Dense(num_classes or 1, name="outputs")

    @property
    def last_layer(self) -> tuple[tf.keras.layers.Layer, ...]:
        """What "fine-tune the last layer" trains."""
        return (self.outputs_layer,)

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the inputs of the last layer, [batch, units]."""
        x = linear.flat(x)
        for layer in self.hidden:
            x = layer(x)
        return x

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the outputs."""
        outputs = self.outputs_layer(self.embed(x))
        return tf.squeeze(outputs, axis=-1) if self.is_number else outputs
