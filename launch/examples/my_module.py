"""A model of one's own, to copy from, which `--model=my_module:build` takes; datasets/README.md."""

import tensorflow as tf

from motley_tff.core import tensor_random


class Model(tf.keras.Model):
    """Two dense layers with dropout between them."""

    def __init__(self, num_outputs):
        super().__init__()
        self.hidden = tf.keras.layers.Dense(32, activation="relu")
        self.logits = tf.keras.layers.Dense(num_outputs)

    def embed(self, x):
        """Returns what goes into the last layer, for kNN-Per."""
        return self.hidden(x)

    def call(self, x, training, key):
        """Returns logits; `key` is what random choices come from."""
        h = self.embed(x)
        return self.logits(tensor_random.dropout(h, 0.2, key) if training else h)


def build(facts):
    """Returns a new model.

    `facts` has `num_outputs`, `input_shape` of one example, `num_ids` (of text: token ids are below
    it) and `predicts_numbers` (in place of classes).
    """
    return Model(facts.num_outputs)
