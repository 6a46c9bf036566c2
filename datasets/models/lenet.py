"""LeNet: two convolutions and three dense layers."""

import tensorflow as tf

# LeCun et al. 1998, "Gradient-based learning applied to document recognition", with ReLU, max
# pooling and no partial connections.


class LeNet(tf.keras.Model):
    """Logits [batch, num_classes] from pictures [batch, height, width, channels].

    5x5 convolutions of 6 and 16 filters without padding, each before ReLU and 2x2 max pooling; 120,
    84 and `num_classes` units. 62,006 weights for ten classes of 32x32 pictures in colour.
    """

    def __init__(self, num_classes: int):
        super().__init__()
        layers = tf.keras.layers
        self.conv_1 = layers.Conv2D(6, 5, activation="relu", name="conv_1")
        self.conv_2 = layers.Conv2D(16, 5, activation="relu", name="conv_2")
        self.pool = layers.MaxPool2D()
        self.flatten = layers.Flatten()
        self.dense_1 = layers.Dense(120, activation="relu", name="dense_1")
        self.dense_2 = layers.Dense(84, activation="relu", name="dense_2")
        self.logits = layers.Dense(num_classes, name="logits")

    @property
    def last_layer(self) -> tuple[tf.keras.layers.Layer, ...]:
        """What "fine-tune the last layer" trains."""
        return (self.logits,)

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the inputs of the last layer, [batch, 84]."""
        x = self.pool(self.conv_2(self.pool(self.conv_1(x))))
        return self.dense_2(self.dense_1(self.flatten(x)))

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns logits."""
        return self.logits(self.embed(x))
