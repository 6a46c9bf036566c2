"""What architectures share that end in one layer, their head."""

import tensorflow as tf


class HeadedModel(tf.keras.Model):
    """A model whose outputs are the layer `head` on what `embed(x)` returns, the same in training:
    logits, or with `is_number` a number each, [batch].
    """

    head: tf.keras.layers.Layer
    is_number = False

    @property
    def last_layer(self) -> tuple[tf.keras.layers.Layer, ...]:
        """What "fine-tune the last layer" trains."""
        return (self.head,)

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the outputs."""
        outputs = self.head(self.embed(x))
        return tf.squeeze(outputs, axis=-1) if self.is_number else outputs
