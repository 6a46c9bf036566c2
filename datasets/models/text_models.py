"""Models of texts: LSTMs for next words, characters or classes, and a mean of word embeddings."""

from collections.abc import Sequence

import tensorflow as tf

from datasets.models import headed, lstm

_EMBEDDING, _UNITS = 96, 256


class TextLstm(headed.HeadedModel):
    """Logits from token ids int32 [batch, time], 0 being padding: of the next token, [batch, time,
    num_outputs], or with `classifies` of the text's class, [batch, num_outputs].

    `sizes` are the widths of the embedding and of each LSTM, by default 96 and 256. Padding is
    masked for classes alone: elsewhere it only follows a text, and changes nothing that counts.
    """

    def __init__(
        self,
        num_ids: int,
        num_outputs: int,
        sizes: Sequence[int] | None = None,
        classifies: bool = False,
        kernel_initializer: str = "glorot_uniform",
    ):
        super().__init__()
        layers = tf.keras.layers
        embedding, *units = sizes or (_EMBEDDING, _UNITS)
        self.classifies = classifies
        self.embedding = layers.Embedding(num_ids, embedding, name="embedding")
        self.lstms = [
            lstm.Lstm(count, f"lstm_{i}" if i else "lstm", kernel_initializer)
            for i, count in enumerate(units)
        ]
        self.head = layers.Dense(num_outputs, name="logits")

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the last LSTM's outputs, [batch, time, units], of a class [batch, units]."""
        h, mask = self.embedding(x), x > 0 if self.classifies else None
        for layer in self.lstms:
            h = layer(h, mask=mask)
        return h[:, -1] if self.classifies else h


class BagOfWords(headed.HeadedModel):
    """Logits [batch, num_classes] from token ids int32 [batch, time]: a dense layer on the mean of
    the embeddings of ids that are not 0 (Joulin et al. 2016, https://arxiv.org/abs/1607.01759,
    without n-grams).
    """

    def __init__(self, num_ids: int, num_classes: int, sizes: Sequence[int] | None):
        super().__init__()
        layers = tf.keras.layers
        (embedding,) = sizes or (_EMBEDDING,)
        self.embedding = layers.Embedding(num_ids, embedding, name="embedding")
        self.head = layers.Dense(num_classes, name="logits")

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the mean embedding, [batch, embedding]."""
        is_word = tf.cast(x > 0, tf.float32)[..., None]
        total = tf.reduce_sum(self.embedding(x) * is_word, axis=1)
        return tf.math.divide_no_nan(total, tf.reduce_sum(is_word, axis=1))
