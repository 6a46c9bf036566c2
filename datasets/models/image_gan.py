"""A small generator of pictures and its critic, without normalization: for WGAN-GP.

As Gulrajani et al. 2017 have for digits, but smaller: ReLU in the generator, leaky ReLU in the
critic, widths that double as pictures halve; the critic's are w, 2w and 4w, the generator's 2w, w
and w / 2.
"""

import tensorflow as tf

from datasets.models import headed
from motley_tff.core import tensor_random

_LATENT_SIZE = 64
_LEAK = 0.2


class PictureGenerator(headed.HeadedModel):
    """Pictures [batch, side, side, channels] in -1 to 1 from normal draws [batch, 64]; the side a
    multiple of 4.
    """

    def __init__(self, image_shape: tuple[int, int, int], width: int):
        super().__init__(name="generator")
        layers = tf.keras.layers
        self._side, self._width = image_shape[0] // 4, width
        self.first = layers.Dense(self._side**2 * 2 * width, activation="relu", name="first")
        self.middle = layers.Conv2D(width, 3, padding="same", activation="relu", name="middle")
        self.late = layers.Conv2D(width // 2, 3, padding="same", activation="relu", name="late")
        self.head = layers.Conv2D(image_shape[2], 3, padding="same", name="pixels")

    def call(self, z: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns pictures."""
        h = tf.reshape(self.first(z), [-1, self._side, self._side, 2 * self._width])
        h = self.late(twice_as_large(self.middle(twice_as_large(h))))
        return tf.tanh(self.head(h))


class PictureCritic(headed.HeadedModel):
    """Values [batch] of pictures [batch, side, side, channels]."""

    def __init__(self, width: int):
        super().__init__(name="critic")
        layers = tf.keras.layers
        self.convolutions = [
            layers.Conv2D(width * 2**i, 4, 2, "same", name=f"conv_{i + 1}") for i in range(3)
        ]
        self.flatten = layers.Flatten()
        self.head = layers.Dense(1, name="value")

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns values."""
        for convolution in self.convolutions:
            x = tf.nn.leaky_relu(convolution(x), _LEAK)
        return self.head(self.flatten(x))[:, 0]


class ImageGan(tf.keras.Model):
    """Both nets; its outputs are by how much the critic values pictures above made ones, [batch]:
    their mean is Wasserstein's distance as the critic sees it.
    """

    latent_size = _LATENT_SIZE

    def __init__(self, image_shape: tuple[int, int, int], width: int):
        super().__init__()
        self.image_shape = image_shape
        self.generator, self.critic = PictureGenerator(image_shape, width), PictureCritic(width)

    @property
    def last_layer(self) -> tuple[tf.keras.layers.Layer, ...]:
        """The last layers of both."""
        return (*self.generator.last_layer, *self.critic.last_layer)

    def call(self, x: tf.Tensor, training: bool = False, key: tf.Tensor | None = None) -> tf.Tensor:
        """Returns differences of values."""
        z = tensor_random.normal(key, [tf.shape(x)[0], self.latent_size])
        pictures = self.generator(z)  # First, so that its weights are.
        return self.critic(x) - self.critic(pictures)


def twice_as_large(x: tf.Tensor) -> tf.Tensor:
    """Returns pictures with each pixel four times."""
    _, height, width, channels = x.shape
    x = tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2)
    return tf.ensure_shape(x, [None, 2 * height, 2 * width, channels])
