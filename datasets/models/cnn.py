"""A convolutional network sized to its pictures: blocks of a convolution and pooling, two dense."""

import math
from collections.abc import Sequence

import tensorflow as tf

from datasets.models import headed

# About this many pixels a side are left for the dense layers.
_LEFT_PIXELS = 7
_MAX_BLOCKS = 6


class Cnn(headed.HeadedModel):
    """Logits [batch, num_classes], or a number each, [batch], from pictures [batch, height, width,
    channels].

    `sizes` are the filters of each block (same padding, ReLU, 2x2 max pooling), then the units of
    the dense layer before the last. By default the filters are 32, 64, ... 256, in as many blocks
    as leave about 7x7 pixels, and the units 128.
    """

    def __init__(
        self,
        num_classes: int | None,
        side: int,
        sizes: Sequence[int] | None = None,
        kernel_size: int = 3,
    ):
        super().__init__()
        layers = tf.keras.layers
        *filters, units = sizes or default_sizes(side)
        self.is_number = num_classes is None
        self.convolutions = [
            layers.Conv2D(count, kernel_size, padding="same", activation="relu", name=f"conv_{i}")
            for i, count in enumerate(filters)
        ]
        self.pool = layers.MaxPool2D(padding="same")
        self.flatten = layers.Flatten()
        self.hidden = layers.Dense(units, activation="relu", name="hidden")
        self.head = layers.Dense(num_classes or 1, name="logits")

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the inputs of the last layer, [batch, units]."""
        for convolution in self.convolutions:
            x = self.pool(convolution(x))
        return self.hidden(self.flatten(x))


def default_sizes(side: int) -> tuple[int, ...]:
    """Returns the filters of each block and the dense units for pictures of a longer side."""
    blocks = min(max(1, round(math.log2(side / _LEFT_PIXELS))), _MAX_BLOCKS)
    return (*(min(256, 32 * 2**i) for i in range(blocks)), 128)
