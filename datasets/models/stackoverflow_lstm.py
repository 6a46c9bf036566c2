"""The next-word LSTM of Reddi et al. 2020 (https://arxiv.org/abs/2003.00295): 4,050,748 weights.

Embedding 96, LSTM 670, dense 96, logits over 10,004 token ids.
"""

import tensorflow as tf

from datasets.models import text_models
from motley_tff.core.layer_groups import LayerGroup


class StackoverflowLstm(text_models.TextLstm):
    """Logits [batch, time, num_ids] from token ids int32 [batch, time]. Their layer alone is the
    last one, not the 96 before them.
    """

    def __init__(self, num_ids: int = 10_004, units: int = 670):
        super().__init__(num_ids, num_ids, (96, units))
        self.projection = tf.keras.layers.Dense(96, name="projection")

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """The LSTM, the 96 and the logits."""
        lstm, logits = super().layer_groups
        return (lstm, LayerGroup(lambda h, *_: self.projection(h), is_dense=True), logits)

    def after_embed(self, h: tf.Tensor) -> tf.Tensor:
        """Returns logits; `embed` is one layer before them, where Motley's kNN-Per looks."""
        return self.head_outputs(self.projection(h))
