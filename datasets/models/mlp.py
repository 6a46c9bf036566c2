"""A multilayer perceptron: dense layers with ReLU, then one without."""

from collections.abc import Sequence

import tensorflow as tf

from datasets.models import dense, headed


class Mlp(headed.HeadedModel):
    """Outputs from inputs [batch, ...], which are flattened: a number each, [batch], or logits
    [batch, num_classes]. Numbers start near `start`.
    """

    vectorizes = True
    takes_rows = True

    def __init__(
        self, num_classes: int | None = None, sizes: Sequence[int] = (64, 64), start: float = 0.0
    ):
        super().__init__()
        self.is_number = num_classes is None
        self.hidden = [
            dense.Dense(size, activation="relu", name=f"hidden_{i}") for i, size in enumerate(sizes)
        ]
        bias = tf.keras.initializers.Constant(start)
        self.head = dense.Dense(num_classes or 1, bias_initializer=bias, name="outputs")

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the inputs of the last layer, [batch, units]."""
        x = dense.flatten(x)
        for layer in self.hidden:
            x = layer(x)
        return x
