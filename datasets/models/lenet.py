"""LeNet: two convolutions and three dense layers."""

from typing import Any

import tensorflow as tf

from datasets.models import headed

# LeCun et al. 1998, "Gradient-based learning applied to document recognition", with ReLU, max
# pooling and no partial connections.


# CPUs take so many filters at once; six take a third longer than eight.
_FILTERS_AT_ONCE = 8


class _Convolution(tf.keras.layers.Conv2D):
    """5x5, with ReLU, on filters of zeros beside its own: outputs of zeros beyond `filters`.

    Inputs beyond `channels` are such zeros, too.
    """

    def __init__(self, filters: int, channels: int | None = None, **kwargs: Any):
        super().__init__(filters, 5, **kwargs)
        self._channels = channels

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates kernel [5, 5, channels, filters] and bias [filters]."""
        super().build([*input_shape[:-1], self._channels or input_shape[-1]])
        self.input_spec = None

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns [batch, height - 4, width - 4, filters and zeros]."""
        kernel, bias = map(tf.convert_to_tensor, (self.kernel, self.bias))
        _, _, channels, filters = kernel.shape
        more = -filters % _FILTERS_AT_ONCE
        # Not tf.pad: oneDNN merges it with the convolution, and aborts.
        kernel = tf.concat([kernel, tf.zeros([5, 5, x.shape[-1] - channels, filters])], 2)
        kernel = tf.concat([kernel, tf.zeros([5, 5, x.shape[-1], more])], 3)
        bias = tf.concat([bias, tf.zeros([more])], 0)
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "VALID"), bias))


class LeNet(headed.HeadedModel):
    """Logits [batch, num_classes] from pictures [batch, height, width, channels].

    5x5 convolutions of 6 and 16 filters without padding, each before ReLU and 2x2 max pooling; 120,
    84 and `num_classes` units. 62,006 weights for ten classes of 32x32 pictures in colour.
    """

    def __init__(self, num_classes: int):
        super().__init__()
        layers = tf.keras.layers
        self.conv_1 = _Convolution(6, name="conv_1")
        self.conv_2 = _Convolution(16, 6, name="conv_2")
        self.pool = layers.MaxPool2D()
        self.flatten = layers.Flatten()
        self.dense_1 = layers.Dense(120, activation="relu", name="dense_1")
        self.dense_2 = layers.Dense(84, activation="relu", name="dense_2")
        self.head = layers.Dense(num_classes, name="logits")

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the inputs of the last layer, [batch, 84]."""
        x = self.pool(self.conv_2(self.pool(self.conv_1(x))))
        return self.dense_2(self.dense_1(self.flatten(x)))
