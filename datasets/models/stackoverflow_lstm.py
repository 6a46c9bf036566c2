"""The next-word LSTM of Reddi et al. 2020 (https://arxiv.org/abs/2003.00295): 4,050,748 weights.

Embedding 96, LSTM 670, dense 96, logits over 10,004 token ids.
"""

import tensorflow as tf

from datasets.models import headed, lstm


class StackoverflowLstm(headed.HeadedModel):
    """Logits [batch, time, num_ids] from token ids int32 [batch, time]. Their layer alone is the
    last one, not the 96 before them.
    """

    def __init__(self, num_ids: int = 10_004, units: int = 670):
        super().__init__()
        layers = tf.keras.layers
        self.embedding = layers.Embedding(num_ids, 96, name="embedding")
        self.lstm = lstm.Lstm(units, name="lstm")
        self.projection = layers.Dense(96, name="projection")
        self.head = layers.Dense(num_ids, name="logits")

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns [batch, time, 670], one layer before the last, where Motley's kNN-Per looks."""
        return self.lstm(self.embedding(x))

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns logits."""
        return self.head(self.projection(self.embed(x)))
