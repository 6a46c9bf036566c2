"""The EMNIST CNN of Reddi et al. 2020 (https://arxiv.org/abs/2003.00295): 1,206,590 weights.

Two valid 3x3 convolutions (32, 64), 2x2 max pooling, dropout 0.25, dense 128, dropout 0.5, logits.
"""

import tensorflow as tf

from datasets.models import headed
from motley_tff.core import tensor_random
from motley_tff.core.layer_groups import LayerGroup


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

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """The convolutions, the hidden layer and the logits, with dropout before the last two."""
        return (
            LayerGroup(lambda x, *_: self.convolve(x)),
            LayerGroup(self.hide, draws=True),
            LayerGroup(self.classify, draws=True),
        )

    def convolve(self, x: tf.Tensor) -> tf.Tensor:
        """Returns what both convolutions and the pooling make of images, [batch, 9216]."""
        # The same as pooling what is not negative, on a quarter of the numbers.
        return self.flatten(tf.nn.relu(self.pool(self.conv_2(self.conv_1(x)))))

    def hide(self, h: tf.Tensor, training: bool, key: tf.Tensor | None) -> tf.Tensor:
        """Returns the hidden layer's outputs, [batch, 128]."""
        if training:
            h = tensor_random.dropout(h, 0.25, tensor_random.fold(key, tensor_random.LAYER, 1))
        return self.hidden(h)

    def classify(self, h: tf.Tensor, training: bool, key: tf.Tensor | None) -> tf.Tensor:
        """Returns logits."""
        if training:
            h = tensor_random.dropout(h, 0.5, tensor_random.fold(key, tensor_random.LAYER, 2))
        return self.head_outputs(h)

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the 128 inputs of the last layer."""
        return self.hide(self.convolve(x), False, None)
