"""TFF's next-character LSTM, of McMahan et al. 2017 (https://arxiv.org/abs/1602.05629).

Embedding 8, two LSTMs of 256, logits over 90 character ids: 820,522 weights.
"""

import tensorflow as tf

from datasets.models import headed, lstm


class ShakespeareLstm(headed.HeadedModel):
    """Logits [batch, time, num_ids] from character ids int32 [batch, time].

    TFF's model masks padding on its way. Here padding only ever follows a text, where it changes
    nothing that counts.
    """

    def __init__(self, num_ids: int = 90, units: int = 256):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(num_ids, 8, name="embedding")
        self.lstms = [
            lstm.Lstm(units, name, kernel_initializer="he_normal") for name in ("lstm", "lstm_1")
        ]
        self.head = tf.keras.layers.Dense(num_ids, name="logits")

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the second LSTM's outputs [batch, time, units]."""
        x = self.embedding(x)
        for layer in self.lstms:
            x = layer(x)
        return x
