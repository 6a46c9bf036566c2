"""The LeNet that leaks: three convolutions with sigmoids, of Zhu et al. 2019, "Deep Leakage from
Gradients" (https://arxiv.org/abs/1906.08935), which FedEval attacks, too.

ReLU's gradient has no gradient to follow; sigmoids' have. Weights are drawn from -0.5 to 0.5.
"""

import tensorflow as tf


class SigmoidLeNet(tf.keras.Model):
    """Logits [batch, num_classes] from pictures [batch, height, width, channels]: 5x5 convolutions
    of 12 filters, of strides 2, 2 and 1, and a dense layer.
    """

    def __init__(self, num_classes: int):
        super().__init__()
        layers = tf.keras.layers

        def draws():
            draw = tf.keras.initializers.RandomUniform
            return {"kernel_initializer": draw(-0.5, 0.5), "bias_initializer": draw(-0.5, 0.5)}

        self.convolutions = [
            layers.Conv2D(
                12, 5, stride, "same", activation="sigmoid", name=f"conv_{number}", **draws()
            )
            for number, stride in enumerate((2, 2, 1), 1)
        ]
        self.flatten = layers.Flatten()
        self.logits = layers.Dense(num_classes, name="logits", **draws())

    @property
    def last_layer(self) -> tuple[tf.keras.layers.Layer, ...]:
        """What "fine-tune the last layer" trains."""
        return (self.logits,)

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the inputs of the last layer."""
        for layer in self.convolutions:
            x = layer(x)
        return self.flatten(x)

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns logits."""
        return self.logits(self.embed(x))
