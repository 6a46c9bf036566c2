"""One dense layer with zero initial weights: School's regression, Vehicle's SVM margin, tables."""

import tensorflow as tf

from datasets.models import dense, headed


class Linear(headed.HeadedModel):
    """Outputs from inputs [batch, ...], which are flattened: a number each, [batch], or logits
    [batch, num_classes]. Numbers start at `start`.
    """

    vectorizes = True
    takes_rows = True

    def __init__(self, num_classes: int | None = None, start: float = 0.0):
        super().__init__()
        self.is_number = num_classes is None
        bias = tf.keras.initializers.Constant(start)
        self.head = dense.Dense(
            num_classes or 1, kernel_initializer="zeros", bias_initializer=bias, name="dense"
        )

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the inputs themselves, [batch, dim]."""
        return dense.flatten(x)
