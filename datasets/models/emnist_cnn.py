"""The EMNIST CNN of Reddi et al. 2020 (https://arxiv.org/abs/2003.00295): 1,206,590 weights.

Two valid 3x3 convolutions (32, 64), 2x2 max pooling, dropout 0.25, dense 128, dropout 0.5, logits.
"""

import tensorflow as tf

from datasets.models import headed
from motley_tff.core import tensor_random


class EmnistCnn(headed.HeadedModel):
    """Logits [batch, num_classes] from images [batch, 28, 28, 1]."""

    def __init__(self, num_classes: int = 62):
        super().__init__()
        layers = tf.keras.layers
        self.conv_1 = layers.Conv2D(32, 3, activation="relu", name="conv_1")
        self.conv_2 = layers.Conv2D(64, 3, name="conv_2")
        self.pool = layers.MaxPool2D()
        self.flatten = layers.Flatten()
        self.hidden = layers.Dense(128, activation="relu", name="hidden")
        self.head = layers.Dense(num_classes, name="logits")

    def embed(
        self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns the 128 inputs of the last layer (with dropout before it when training)."""
        # The same as pooling what is not negative, on a quarter of the numbers.
        h = self.flatten(tf.nn.relu(self.pool(self.conv_2(self.conv_1(x)))))
        if training:
            h = tensor_random.dropout(h, 0.25, tensor_random.fold(key, tensor_random.LAYER, 1))
        return self.hidden(h)

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns logits."""
        h = self.embed(x, training, key)
        if training:
            h = tensor_random.dropout(h, 0.5, tensor_random.fold(key, tensor_random.LAYER, 2))
        return self.head(h)
