import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from datasets.readers import inception_preprocessing as inception

KEY = tf.constant([5, 6])
# Numbers that leave colours as they are.
NEUTRAL = 0.5


def encode(pixels, kind="PNG"):
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def ramp(height, width):
    """Red grows to the right, green downwards, from 0 to 240; lossless when encoded as PNG."""
    y, x = np.mgrid[0:height, 0:width]
    red, green = 240 * x / (width - 1), 240 * y / (height - 1)
    return np.rint(np.stack([red, green, 0 * red], axis=-1)).astype(np.uint8)


def boxes(height, width, n=4000):
    numbers = inception.uniform(KEY, [n, 5])
    return tf.vectorized_map(
        lambda row: inception.random_box(row, tf.constant(height), tf.constant(width)), numbers
    ).numpy()


@pytest.mark.parametrize(("height", "width"), [(128.0, 128.0), (600.0, 800.0), (800.0, 300.0)])
def test_crops_keep_to_their_ranges(height, width):
    top, left, bottom, right = boxes(height, width).T
    vertical, horizontal = (bottom - top), np.abs(right - left)
    area = vertical * horizontal
    aspect = horizontal * width / (vertical * height)
    assert min(top.min(), left.min(), right.min()) > 0
    assert max(bottom.max(), left.max(), right.max()) < 1
    assert 0.0999 < area.min() < 0.12
    assert aspect.min() > 0.749 and aspect.max() < 1.334
    largest = min(height, width / 0.75) * min(width, height * 4 / 3) / (height * width)
    assert area.max() > 0.9 * min(1.0, largest)
    assert 0.47 < (left > right).mean() < 0.53
    # Anywhere: what is left beside the crop is shared evenly.
    assert np.mean(top / np.maximum(1 - vertical, 1e-3)) == pytest.approx(0.5, abs=0.03)


def test_crop_shows_what_its_box_says():
    """Of an image whose colours are coordinates."""
    image = tf.constant(ramp(121, 161))
    for box in ([0.1, 0.2, 0.6, 0.9], [0.1, 0.9, 0.6, 0.2]):
        crop = inception._crop(image, tf.constant(box), 16).numpy()
        scale = 240 / 255
        np.testing.assert_allclose(crop[:, 0, 1], scale * np.linspace(0.1, 0.6, 16), atol=0.004)
        across = np.linspace(box[1], box[3], 16)
        np.testing.assert_allclose(crop[0, :, 0], scale * across, atol=0.004)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_no_black_borders(kind):
    white = [encode(np.full((h, w, 3), 255, np.uint8), kind) for h, w in ((50, 90), (201, 133))]
    encoded = tf.constant(white * 5)
    np.testing.assert_allclose(inception.for_evaluation(encoded, 24), 1.0, atol=1e-6)
    crops = inception.for_training(encoded, 24, KEY).numpy()
    # Recoloured as a whole, so every image is of one colour.
    assert np.ptp(crops, axis=(1, 2)).max() < 1e-5


def test_evaluation_shows_the_centre_and_grey_as_rgb():
    image = tf.constant([encode(ramp(161, 241))])
    x = inception.for_evaluation(image, 32).numpy()[0]
    expected = 2 * 240 / 255 * np.linspace(0.0625, 0.9375, 32) - 1
    np.testing.assert_allclose(x[0, :, 0], expected, atol=0.01)
    np.testing.assert_allclose(x[:, 0, 1], expected, atol=0.01)
    np.testing.assert_allclose(x[..., 2], -1.0)
    grey = tf.constant([encode(np.full((20, 20), 128, np.uint8), "JPEG")])
    assert inception.for_evaluation(grey, 16).shape == (1, 16, 16, 3)


def test_the_key_decides():
    images = [encode(np.random.default_rng(i).integers(0, 255, (40, 50, 3), np.uint8))
              for i in range(4)]  # fmt: skip
    encoded = tf.constant(images)
    batch = inception.for_training(encoded, 16, KEY)
    in_graph = tf.function(lambda e, key: inception.for_training(e, 16, key), autograph=False)
    np.testing.assert_allclose(batch, in_graph(encoded, KEY), atol=1e-6)
    np.testing.assert_allclose(batch[:2], inception.for_training(encoded[:2], 16, KEY), atol=1e-6)
    assert np.abs(batch - inception.for_training(encoded, 16, KEY + 1)).mean() > 0.05
    same_image = inception.for_training(tf.repeat(encoded[:1], 4), 16, KEY).numpy()
    assert np.abs(same_image[0] - same_image[1]).mean() > 0.05


def test_uniform_numbers():
    numbers = inception.uniform(KEY, [10_000]).numpy()
    assert 0 <= numbers.min() < 0.001 and 0.999 < numbers.max() < 1
    assert numbers.mean() == pytest.approx(0.5, abs=0.01)
    np.testing.assert_array_equal(numbers * 2**24, np.rint(numbers * 2**24))


CHANGES = {
    "nothing": (None, 0.0, lambda image: image),
    "brightness": (0, 0.75, lambda image: tf.image.adjust_brightness(image, 16 / 255)),
    "saturation": (1, 0.25, lambda image: tf.image.adjust_saturation(image, 0.75)),
    "hue": (2, 1.0, lambda image: tf.image.adjust_hue(image, 0.2)),
    "contrast": (3, 0.0, lambda image: tf.image.adjust_contrast(image, 0.5)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_colour_changes_are_tensorflows(change):
    position, number, reference = CHANGES[change]
    images = np.random.default_rng(0).uniform(0.2, 0.8, (2, 9, 9, 3)).astype(np.float32)
    numbers = np.full((2, 4), NEUTRAL, np.float32)
    if position is not None:
        numbers[0, position] = number
    changed = inception.distort_colours(tf.constant(images), tf.constant(numbers))
    np.testing.assert_allclose(changed[0], reference(images[0]), atol=1e-5)
    np.testing.assert_allclose(changed[1], images[1], atol=1e-5)


def test_colours_stay_in_range():
    images = tf.constant(np.random.default_rng(0).uniform(0, 1, (500, 4, 4, 3)), tf.float32)
    changed = inception.distort_colours(images, inception.uniform(KEY, [500, 4]))
    assert 0 <= tf.reduce_min(changed) < tf.reduce_max(changed) <= 1
    assert np.isfinite(changed).all()
