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

from datasets.models import group_norm, headed

_STEM_CHANNELS, _LAST_CHANNELS = 32, 1280
# From how many positions an input channel a convolution to more channels and its norm are better
# taken together; to fewer, the product of all pairs of inputs costs more than the convolution.
_POSITIONS_PER_CHANNEL = 4
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


class MobileNetV2(headed.HeadedModel):
    """Logits [batch, num_classes] from images float32 [batch, height, width, 3] in [-1, 1]; the
    published softmax is in the loss. `num_groups` is 1, 2, 4 or 8, which divide all channels.
    """

    def __init__(self, num_classes: int = 2028, num_groups: int = 8):
        super().__init__()
        layers = tf.keras.layers
        self.stem = layers.Conv2D(
            _STEM_CHANNELS, 3, strides=2, padding="same", use_bias=False, name="stem"
        )
        self.stem_norm = GroupNorm(_STEM_CHANNELS, num_groups, "stem_norm")
        self.blocks = _blocks(num_groups)
        self.last_conv = Kernel(_LAST_CHANNELS, "last_conv")
        self.last_norm = GroupNorm(_LAST_CHANNELS, num_groups, "last_norm")
        self.pool = layers.GlobalAveragePooling2D()
        self.head = layers.Dense(num_classes, name="logits")

    def embed(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the 1,280 inputs of the last layer."""
        h = self.stem_norm(self.stem(x))
        for block in self.blocks:
            h = block(h)
        return self.pool(self.last_norm(h, kernel=self.last_conv(h)))


class Kernel(tf.keras.layers.Layer):
    """The kernel of a 1x1 convolution, [1, 1, in, channels]; who calls it applies it."""

    def __init__(self, channels: int, name: str):
        super().__init__(name=name)
        self._channels = channels

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the kernel as a convolution does."""
        shape = [1, 1, input_shape[-1], self._channels]
        self.kernel = self.add_weight("kernel", shape, initializer="glorot_uniform")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the kernel for inputs [batch, height, width, in]."""
        return tf.convert_to_tensor(self.kernel)


class GroupNorm(tf.keras.layers.Layer):
    """A group norm, perhaps of a 1x1 convolution, perhaps with a ReLU6."""

    is_norm = True  # See `core.functional_model`.

    def __init__(self, channels: int, groups: int, name: str, with_relu6: bool = True):
        super().__init__(name=name)
        self._channels, self._groups, self._with_relu6 = channels, groups, with_relu6

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the scales and shifts."""
        self.gamma = self.add_weight("gamma", [self._channels], initializer="ones")
        self.beta = self.add_weight("beta", [self._channels], initializer="zeros")

    def call(self, x: tf.Tensor, kernel: tf.Tensor | None = None) -> tf.Tensor:
        """Returns [batch, height, width, channels], normalized; of x * kernel if there is one."""
        gamma, beta = tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)
        if kernel is not None:
            widens = kernel.shape[3] > x.shape[3]
            if widens and x.shape[1] * x.shape[2] >= _POSITIONS_PER_CHANNEL * x.shape[3]:
                return group_norm.pointwise_group_norm(
                    x, kernel, gamma, beta, self._groups, self._with_relu6
                )
            x = tf.nn.conv2d(x, kernel, 1, "VALID")
        return group_norm.group_norm(x, gamma, beta, self._groups, self._with_relu6)


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
        width = expansion * in_channels
        self.is_residual = stride == 1 and in_channels == channels
        self.expand = None
        if expansion > 1:
            self.expand = Kernel(width, "expand")
            self.expand_norm = GroupNorm(width, num_groups, "expand_norm")
        self.depthwise = tf.keras.layers.DepthwiseConv2D(
            3, strides=stride, padding="same", use_bias=False, name="depthwise"
        )
        self.depthwise_norm = GroupNorm(width, num_groups, "depthwise_norm")
        self.project = Kernel(channels, "project")
        self.project_norm = GroupNorm(channels, num_groups, "project_norm", with_relu6=False)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the block's output; its last convolution has no activation."""
        h = x
        if self.expand is not None:
            h = self.expand_norm(h, kernel=self.expand(h))
        h = self.depthwise_norm(self.depthwise(h))
        h = self.project_norm(h, kernel=self.project(h))
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
