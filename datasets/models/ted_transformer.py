"""TedMulti's Transformer: one layer, tied embeddings, 4,769,824 weights for 15,814 words.

The decoder layer of Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762) without an encoder:
causal self-attention and a feed-forward part, each followed by dropout, the residual sum and a
layer norm. Words have a smaller embedding (96) than the layer (512), so one projection leads in and
one out, and the logits are products with the same embedding, of 15,814 words and 4 special tokens.

As in the code that Motley published (`transformer_models.py`):
  - embeddings are multiplied by sqrt(96), sinusoidal positions of the same width are added, and
    the sum is projected to 512;
  - dropout of 10% after that projection, attention's output and the feed-forward part;
  - a token sees itself and those before it, padding too;
  - Keras's default initializers: embeddings even in +-0.05, Glorot's uniform matrices, zero biases;
  - layer norms after the sums, with an epsilon of 1e-6.

The weights are in the order of the layers below, kernels before biases, gammas before betas. The
published model has the same arrays, but both norms after the feed-forward part.
"""

import math

import numpy as np
import tensorflow as tf

from motley_tff.core import tensor_random

_DIM_EMBED, _DIM_MODEL, _DIM_HIDDEN, _NUM_HEADS, _DROPOUT = 96, 512, 2048, 8, 0.1
_EPSILON = 1e-6
# Before the softmax, for words that are not to be seen: far below any score, and finite.
_HIDDEN_SCORE = -1e9


class TedTransformer(tf.keras.Model):
    """Logits [batch, time, ids] from token ids [batch, time] of words and special tokens."""

    def __init__(self, extended_vocabulary_size: int):
        super().__init__()
        dense = tf.keras.layers.Dense
        self.embedding = tf.keras.layers.Embedding(
            extended_vocabulary_size, _DIM_EMBED, name="embedding"
        )
        self.project_in = dense(_DIM_MODEL, name="project_in")
        self.query = dense(_DIM_MODEL, name="query")
        self.key = dense(_DIM_MODEL, name="key")
        self.value = dense(_DIM_MODEL, name="value")
        self.attended = dense(_DIM_MODEL, name="attended")
        self.attention_norm = tf.keras.layers.LayerNormalization(
            epsilon=_EPSILON, name="attention_norm"
        )
        self.hidden = dense(_DIM_HIDDEN, activation="relu", name="hidden")
        self.output_of_hidden = dense(_DIM_MODEL, name="output_of_hidden")
        self.hidden_norm = tf.keras.layers.LayerNormalization(epsilon=_EPSILON, name="hidden_norm")
        self.project_out = dense(_DIM_EMBED, name="project_out")

    @property
    def last_layer(self) -> tuple[tf.keras.layers.Layer, ...]:
        """What "fine-tune the last layer" trains: the shared embedding."""
        return (self.embedding,)

    def embed(
        self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns the layer's output for each token, [batch, time, 96]."""

        def drop(h: tf.Tensor, layer: int) -> tf.Tensor:
            if not training:
                return h
            return tensor_random.dropout(
                h, _DROPOUT, tensor_random.fold(key, tensor_random.LAYER, layer)
            )

        h = self.embedding(x) * math.sqrt(_DIM_EMBED) + positions(x.shape[1], _DIM_EMBED)
        h = drop(self.project_in(h), 1)
        h = self.attention_norm(h + drop(self._attend(h), 2))
        h = self.hidden_norm(h + drop(self.output_of_hidden(self.hidden(h)), 3))
        return self.project_out(h)

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns logits."""
        return self.after_embed(self.embed(x, training, key))

    def after_embed(self, h: tf.Tensor) -> tf.Tensor:
        """Returns logits from what `embed` returns."""
        return tf.einsum("bte,ve->btv", h, self.embedding.embeddings)

    def _attend(self, h: tf.Tensor) -> tf.Tensor:
        """Returns causal self-attention's output [batch, time, 512]."""
        time, width = h.shape[1], _DIM_MODEL // _NUM_HEADS

        def heads(values: tf.Tensor) -> tf.Tensor:
            return tf.reshape(values, [-1, time, _NUM_HEADS, width])

        scores = tf.einsum("bqhd,bkhd->bhqk", heads(self.query(h)), heads(self.key(h)))
        shares = tf.nn.softmax(scores / math.sqrt(width) + causal_scores(time))
        mixed = tf.einsum("bhqk,bkhd->bqhd", shares, heads(self.value(h)))
        return self.attended(tf.reshape(mixed, [-1, time, _DIM_MODEL]))


def causal_scores(time: int) -> np.ndarray:
    """Returns float32 [time, time]: 0 where a row's token may see a column's, else far below."""
    return np.triu(np.full([time, time], _HIDDEN_SCORE, np.float32), k=1)


def positions(time: int, dim: int) -> np.ndarray:
    """Returns sinusoids float32 [time, dim] of falling frequency (Vaswani et al. 2017, 3.5)."""
    rates = 10_000.0 ** (-np.arange(0, dim, 2) / dim)
    angles = np.arange(time)[:, np.newaxis] * rates
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return pairs.reshape(time, dim).astype(np.float32)
