"""The CNN that predicts an uptake ratio from one slice of a PET scan: 2,150,273 weights.

Two 5x5 convolutions (32, 64) that keep the size, each with 2x2 max pooling after it, dense 512 and
one output: the layout of TensorFlow's early MNIST tutorial with a regression's output, as Motley
(Wu et al. 2022) trained it on ADNI. Initial weights are Keras' and TensorFlow 1's default (Glorot
uniform, zero biases).
"""

import tensorflow as tf

from datasets.models import headed


class AdniCnn(headed.HeadedModel):
    """Predictions [batch] from images [batch, 32, 32, 1]."""

    is_number = True

    def __init__(self):
        super().__init__()
        layers = tf.keras.layers
        self.conv_1 = layers.Conv2D(32, 5, padding="same", activation="relu", name="conv_1")
        self.conv_2 = layers.Conv2D(64, 5, padding="same", activation="relu", name="conv_2")
        self.pool = layers.MaxPool2D()
        self.flatten = layers.Flatten()
        self.hidden = layers.Dense(512, activation="relu", name="hidden")
        self.head = layers.Dense(1, name="output")

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the 512 inputs of the last layer."""
        h = self.pool(self.conv_2(self.pool(self.conv_1(x))))
        return self.hidden(self.flatten(h))
