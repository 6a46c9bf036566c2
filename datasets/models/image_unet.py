"""A small U-Net that predicts the noise in pictures: for DDPM (Ho et al. 2020, appendix B).

Three resolutions of widths w, 2w, 2w; a residual block (group normalization, swish, 3x3
convolution, twice, the time added between) at the upper two on the way down and up, one in the
middle at the lowest; no attention.
"""

import math

import tensorflow as tf

from datasets.models import group_norm, headed, image_gan

_GROUPS = 8
_LONGEST = 10_000.0


class _Norm(tf.keras.layers.Layer):
    """Group normalization and swish."""

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates scales and shifts [channels]."""
        self.gamma = self.add_weight("gamma", [input_shape[-1]], initializer="ones")
        self.beta = self.add_weight("beta", [input_shape[-1]], initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns x normalized and activated."""
        gamma, beta = map(tf.convert_to_tensor, (self.gamma, self.beta))
        return tf.nn.silu(group_norm.group_norm(x, gamma, beta, _GROUPS, with_relu6=False))


class _ResidualBlock(tf.keras.layers.Layer):
    def __init__(self, width: int, name: str):
        super().__init__(name=name)
        layers = tf.keras.layers
        self.norms = [_Norm(name=f"norm_{i}") for i in (1, 2)]
        self.first = layers.Conv2D(width, 3, padding="same", name="first")
        self.time = layers.Dense(width, name="time")
        self.second = layers.Conv2D(
            width, 3, padding="same", kernel_initializer="zeros", name="second"
        )
        self.across = layers.Conv2D(width, 1, name="across")

    def call(self, x: tf.Tensor, time: tf.Tensor) -> tf.Tensor:
        """Returns [batch, height, width, its width]."""
        h = self.first(self.norms[0](x))
        h = self.second(self.norms[1](h + self.time(time)[:, tf.newaxis, tf.newaxis]))
        return self.across(x) + h


class ImageUnet(headed.HeadedModel):
    """Noise [batch, side, side, channels] from (pictures with noise, times int32 [batch]); the side
    a multiple of 4, the width one of 8.
    """

    def __init__(self, channels: int, width: int):
        super().__init__()
        layers = tf.keras.layers
        self._width = width
        self.time = layers.Dense(4 * width, activation="swish", name="time")
        self.first = layers.Conv2D(width, 3, padding="same", name="first")
        self.down_1, self.down_2 = (
            _ResidualBlock(width, "down_1"),
            _ResidualBlock(2 * width, "down_2"),
        )
        self.halves = [
            layers.Conv2D(w, 3, 2, "same", name=f"half_{i}")
            for i, w in enumerate((width, 2 * width), 1)
        ]
        self.middle = _ResidualBlock(2 * width, "middle")
        self.up_2, self.up_1 = _ResidualBlock(2 * width, "up_2"), _ResidualBlock(width, "up_1")
        self.norm = _Norm(name="norm")
        self.head = layers.Conv2D(
            channels, 3, padding="same", kernel_initializer="zeros", name="noise"
        )

    def call(
        self,
        inputs: tuple[tf.Tensor, tf.Tensor],
        training: bool = False,
        key: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the noise."""
        x, t = inputs
        time = self.time(waves(t, 2 * self._width))
        first = self.down_1(self.first(x), time)
        second = self.down_2(self.halves[0](first), time)
        h = self.middle(self.halves[1](second), time)
        h = self.up_2(tf.concat([image_gan.twice_as_large(h), second], 3), time)
        h = self.up_1(tf.concat([image_gan.twice_as_large(h), first], 3), time)
        return self.head(self.norm(h))


def waves(t: tf.Tensor, size: int) -> tf.Tensor:
    """Returns sines and cosines of times int32 [batch], [batch, size] (Vaswani et al. 2017)."""
    half = size // 2
    lengths = tf.exp(-math.log(_LONGEST) * tf.range(half, dtype=tf.float32) / half)
    angles = tf.cast(t, tf.float32)[:, tf.newaxis] * lengths
    return tf.concat([tf.sin(angles), tf.cos(angles)], 1)
