"""Inception's preprocessing of encoded images: random crop, flip and colours, or the centre.

Training (Szegedy et al. 2015, https://arxiv.org/abs/1409.4842, section 6, with colour changes as
of Howard 2013, https://arxiv.org/abs/1312.5402): a crop of 10% to 100% of the image's area with an
aspect ratio of 3/4 to 4/3 is resized, mirrored half of the time, and changed in brightness,
saturation, hue and contrast. Evaluation: the central 87.5% of height and width, resized. Pixels end
in [-1, 1].

The ranges are those of TensorFlow's Inception scripts, which draw areas from 5% but reject crops
that show less than a tenth of the image, and choose the resizing method and the order of the colour
changes at random; here crops are resized bilinearly and the order is fixed. Every random number
comes from integers of a key (`tensor_random`), never from `tf.random`.
"""

import tensorflow as tf

from motley_tff.core import tensor_random

MIN_AREA = 0.1
MIN_ASPECT, MAX_ASPECT = 3 / 4, 4 / 3
CENTRAL_FRACTION = 0.875
MAX_BRIGHTNESS = 32 / 255
MIN_SATURATION, MAX_SATURATION = 0.5, 1.5
MAX_HUE = 0.2
MIN_CONTRAST, MAX_CONTRAST = 0.5, 1.5

# Crops stay this far from the border, a fraction of the side: by rounding, the last sample could
# fall outside the image, where TensorFlow paints black.
_BORDER = 1e-6
# Tells these numbers from dropout's and others of the same batch key.
_AUGMENTATION = 101
_NUM_CROP_NUMBERS, _NUM_COLOUR_NUMBERS = 5, 4


def for_training(encoded: tf.Tensor, size: int, key: tf.Tensor) -> tf.Tensor:
    """Returns images string [batch], JPEG (or PNG) of any size, cropped, mirrored and recoloured,
    float32 [batch, size, size, 3] in [-1, 1]. The key, int32 [2], decides everything; a row's
    changes do not depend on how many follow.
    """
    key = tensor_random.fold(key, tensor_random.LAYER, _AUGMENTATION)
    numbers = uniform(key, [tf.shape(encoded)[0], _NUM_CROP_NUMBERS + _NUM_COLOUR_NUMBERS])
    in_crop, in_colour = tf.split(numbers, [_NUM_CROP_NUMBERS, _NUM_COLOUR_NUMBERS], axis=1)

    def cropped_image(pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        image = decode(pair[0])
        height, width, _ = tf.unstack(tf.cast(tf.shape(image), tf.float32), num=3)
        return _crop(image, random_box(pair[1], height, width), size)

    cropped = tf.map_fn(
        cropped_image,
        (encoded, in_crop),
        fn_output_signature=tf.TensorSpec([size, size, 3], tf.float32),
    )
    return 2.0 * distort_colours(cropped, in_colour) - 1.0


def for_evaluation(encoded: tf.Tensor, size: int) -> tf.Tensor:
    """Returns images' centres, of string [batch], float32 [batch, size, size, 3] in [-1, 1]."""
    margin = (1 - CENTRAL_FRACTION) / 2
    box = [margin, margin, 1 - margin, 1 - margin]
    cropped = tf.map_fn(
        lambda image: _crop(decode(image), box, size),
        encoded,
        fn_output_signature=tf.TensorSpec([size, size, 3], tf.float32),
    )
    return 2.0 * cropped - 1.0


def decode(encoded: tf.Tensor, ratio: int = 1) -> tf.Tensor:
    """Returns an image's pixels, uint8 [height / ratio, width / ratio, 3]; grey becomes RGB.

    Never with `try_recover_truncated`: on a file that ends inside its header TensorFlow 2.14 then
    does not return.
    """
    return tf.io.decode_jpeg(encoded, channels=3, ratio=ratio)


def uniform(key: tf.Tensor, shape) -> tf.Tensor:
    """Returns float32 numbers in [0, 1), multiples of 2**-24 made from integers, exactly."""
    high_bits = tf.bitwise.right_shift(tensor_random.bits(key, shape), tf.constant(8, tf.uint32))
    return tf.cast(high_bits, tf.float32) * 2.0**-24


def random_box(numbers: tf.Tensor, height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Returns a crop's top, left, bottom, right as fractions, float32 [4]; left > right mirrors,
    which half of the crops do.

    The aspect ratio is drawn first, evenly; then the crop's height, evenly among those that keep
    the area above `MIN_AREA` and the crop inside the image; then its place. An image so long that
    no crop of that ratio has the area gets the largest there is. `numbers` are float32 [5] in [0,
    1), height and width the image's, in pixels, float32 scalars.
    """
    aspect = _between(numbers[0], MIN_ASPECT, MAX_ASPECT)
    tallest = tf.minimum(height, width / aspect)
    shortest = tf.minimum(tf.sqrt(MIN_AREA * height * width / aspect), tallest)
    crop_height = _between(numbers[1], shortest, tallest)
    vertical, horizontal = crop_height / height, crop_height * aspect / width
    top, left = numbers[2] * (1.0 - vertical), numbers[3] * (1.0 - horizontal)
    right = left + horizontal
    is_mirrored = numbers[4] < 0.5
    first = tf.where(is_mirrored, right, left)
    last = tf.where(is_mirrored, left, right)
    box = tf.stack([top, first, top + vertical, last])
    return tf.clip_by_value(box, _BORDER, 1.0 - _BORDER)


def distort_colours(images: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Changes brightness, saturation, hue and contrast, in this order, of images float32 [batch,
    height, width, 3] in [0, 1], by a number in [0, 1) for each change, float32 [batch, 4].
    """
    brightness, saturation, hue, contrast = tf.unstack(numbers[..., tf.newaxis, tf.newaxis], axis=1)
    images = images + _between(brightness, -MAX_BRIGHTNESS, MAX_BRIGHTNESS)[..., tf.newaxis]
    h, s, v = tf.unstack(tf.image.rgb_to_hsv(_clip(images)), axis=-1)
    s = _clip(s * _between(saturation, MIN_SATURATION, MAX_SATURATION))
    h = tf.math.floormod(h + _between(hue, -MAX_HUE, MAX_HUE), 1.0)
    images = tf.image.hsv_to_rgb(tf.stack([h, s, v], axis=-1))
    means = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
    factors = _between(contrast, MIN_CONTRAST, MAX_CONTRAST)[..., tf.newaxis]
    return _clip(means + (images - means) * factors)


def _crop(image: tf.Tensor, box: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the part of an image inside a box, resized bilinearly, float32 in [0, 1]."""
    parts = tf.image.crop_and_resize(image[tf.newaxis], [box], [0], [size, size])
    return parts[0] / 255.0


def _between(number: tf.Tensor, low, high) -> tf.Tensor:
    """Maps [0, 1) to [low, high)."""
    return low + number * (high - low)


def _clip(x: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(x, 0.0, 1.0)
