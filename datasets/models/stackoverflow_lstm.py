"""The next-word LSTM of Reddi et al. 2020 (https://arxiv.org/abs/2003.00295): 4,050,748 weights.

Embedding 96, LSTM 670, dense 96, logits over 10,004 token ids.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


class UnitForgetBias(tf.keras.initializers.Initializer):
    """Ones for the forget gate, zeros for the others: Keras's default for an LSTM.

    Keras makes it a closure, which a functional model cannot call for itself.
    """

    def __call__(self, shape: Sequence[int], dtype: Any = None, **kwargs: Any) -> tf.Tensor:
        """Returns the biases [4 * units] in Keras's order: input, forget, cell, output."""
        units = shape[0] // 4
        return tf.concat(
            [tf.zeros([units], dtype), tf.ones([units], dtype), tf.zeros([2 * units], dtype)], 0
        )


class StackoverflowLstm(tf.keras.Model):
    """Logits [batch, time, num_ids] from token ids int32 [batch, time]."""

    def __init__(self, num_ids: int = 10_004, units: int = 670):
        super().__init__()
        layers = tf.keras.layers
        self.embedding = layers.Embedding(num_ids, 96, name="embedding")
        self.lstm = layers.LSTM(
            units,
            return_sequences=True,
            unit_forget_bias=False,
            bias_initializer=UnitForgetBias(),
            name="lstm",
        )
        self.projection = layers.Dense(96, name="projection")
        self.logits = layers.Dense(num_ids, name="logits")

    @property
    def last_layer(self) -> tuple[tf.keras.layers.Layer, ...]:
        """What "fine-tune the last layer" trains: the logits alone, not the 96 before them."""
        return (self.logits,)

    def embed(
        self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns [batch, time, 670], one layer before the last, where Motley's kNN-Per looks."""
        with tf.variable_creator_scope(_tensor_creator):
            return self.lstm(self.embedding(x))

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns logits."""
        return self.logits(self.projection(self.embed(x)))


def _tensor_creator(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
    """Hands out a functional model's weights as tensors: of arrays, Keras's LSTM takes none."""
    weight = next_creator(**kwargs)
    return tf.convert_to_tensor(weight) if isinstance(weight, np.ndarray) else weight
