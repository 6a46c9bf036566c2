"""A multilayer perceptron: dense layers with ReLU, then one without."""

from collections.abc import Sequence

import tensorflow as tf

from datasets.models import headed


class Mlp(headed.HeadedModel):
    """Outputs from inputs [batch, ...], which are flattened: a number each, [batch], or logits
    [batch, num_classes].
    """

    vectorizes = True

    def __init__(self, num_classes: int | None = None, sizes: Sequence[int] = (64, 64)):
        super().__init__()
        layers = tf.keras.layers
        self.is_number = num_classes is None
        self.flatten = layers.Flatten()
        self.hidden = [
            layers.Dense(size, activation="relu", name=f"hidden_{i}")
            for i, size in enumerate(sizes)
        ]
        self.head = layers.Dense(num_classes or 1, name="outputs")

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the inputs of the last layer, [batch, units]."""
        x = self.flatten(x)
        for layer in self.hidden:
            x = layer(x)
        return x
