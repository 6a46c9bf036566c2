"""InceptionV3's 2,048 pooled features of images, with weights from a file.

Szegedy et al. 2016 (https://arxiv.org/abs/1512.00567) as `tf.keras.applications` builds it; the
features are the means over positions before the classifier. Any file of Keras's weights fits, with
the classifier (`inception_v3_weights_tf_dim_ordering_tf_kernels.h5`) or without (`..._notop.h5`);
nothing is downloaded. Published FIDs use other weights of the same network (TensorFlow's of 2015):
compare scores only with scores from the same file.
"""

import pathlib

import h5py
import numpy as np
import tensorflow as tf

from datasets.readers import native_files
from motley_tff.core import errors
from motley_tff.core.errors import UserError

SIDE, NUM_FEATURES = 299, 2048
_NUM_CLASSES = 1000
_BATCH = 32


def load(path: pathlib.Path) -> tf.keras.Model:
    """Returns the network, features [batch, 2048] from images [batch, 299, 299, 3] in [-1, 1];
    UserError if the file cannot be read or holds other weights, or some that are not finite.
    """
    with errors.at(path):
        with_classifier = _has_classifier(path)
        model = tf.keras.applications.InceptionV3(
            include_top=with_classifier,
            weights=None,
            classes=_NUM_CLASSES,
            input_shape=(SIDE, SIDE, 3),
            pooling=None if with_classifier else "avg",
        )
        try:
            model.load_weights(path)
        except (ValueError, KeyError, OSError) as error:
            raise UserError("", f"weights of another network ({error})", "InceptionV3's") from error
        if not all(np.isfinite(array).all() for array in model.get_weights()):
            raise UserError("", "weights that are not finite", advice="fetch it again")
    return tf.keras.Model(model.input, model.layers[-2 if with_classifier else -1].output)


def _has_classifier(path: pathlib.Path) -> bool:
    """Returns whether a weights file has the classifier, or raises UserError."""
    if path.suffix != ".h5":
        raise UserError("", expected="Keras's weights of InceptionV3, a file that ends in .h5")
    such = "InceptionV3's, such as inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5"
    if not path.exists():
        raise UserError("", "no such file", such, "put it there by hand")
    native_files.read("HDF5", path)
    with h5py.File(path, "r") as file:
        if "layer_names" not in file.attrs:
            raise UserError("", "no weights of Keras, without layer_names", such)
        # Keras of different ages writes bytes or text.
        return any(n in ("predictions", b"predictions") for n in file.attrs["layer_names"])


def embed(model: tf.keras.Model, images: np.ndarray) -> np.ndarray:
    """Returns images' features, float32 [num_images, 2048]. Images [num_images, height, width] or
    [num_images, height, width, 1 or 3], whole numbers 0..255 or fractions 0..1 (UserError if
    others or none), are resized bilinearly to 299 x 299, grey ones repeated in three channels.
    """
    images = images[..., None] if images.ndim == 3 else images
    if not images.size or images.shape[-1] not in (1, 3):
        raise UserError("", f"images {list(images.shape)}", "some, of 1 or 3 channels")
    most = 1.0 if images.dtype.kind == "f" else 255.0
    if not (images.min() >= 0 and images.max() <= most):  # Not-a-number is no fraction.
        problem = f"values {images.min():g} to {images.max():g} of type {images.dtype}"
        raise UserError("images", problem, "whole numbers 0..255 or fractions 0..1")
    starts = range(0, len(images), _BATCH)
    parts = [_embed_batch(model, images[start : start + _BATCH] / most) for start in starts]
    return np.concatenate(parts)


def _embed_batch(model: tf.keras.Model, fractions: np.ndarray) -> np.ndarray:
    pixels = tf.image.resize(np.float32(fractions), [SIDE, SIDE])
    if pixels.shape[-1] == 1:
        pixels = tf.image.grayscale_to_rgb(pixels)
    return model(2.0 * pixels - 1.0, training=False).numpy()
