"""What architectures share that end in one layer, their head."""

import tensorflow as tf

from motley_tff.core import layer_groups
from motley_tff.core.layer_groups import LayerGroup


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

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """What `call` does, see `core.layer_groups`; none of a model without `embed`."""
        if not hasattr(self, "embed"):
            return ()
        return (
            LayerGroup(lambda x, *_: self.embed(x)),
            LayerGroup(lambda h, *_: self.head_outputs(h), is_dense=True),
        )

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the outputs."""
        return layer_groups.run(self.layer_groups, x, training, key)

    def head_outputs(self, h: tf.Tensor) -> tf.Tensor:
        """Returns the outputs from the head's inputs."""
        outputs = self.head(h)
        return tf.squeeze(outputs, axis=-1) if self.is_number else outputs

    def after_embed(self, h: tf.Tensor) -> tf.Tensor:
        """Returns the outputs from what `embed` returns."""
        return self.head_outputs(h)
