import numpy as np
import pytest

from datasets import synthetic_writers


@pytest.fixture(scope="module")
def writing():
    return synthetic_writers.write(11, 60)


def mean_images(writing, labels):
    """Returns {writer: mean ink image over `labels`} of the writers that wrote any of them."""
    found = {}
    for writer in writing.groups:
        rows = (writing.writer_ids == writer) & np.isin(writing.labels, labels)
        if rows.any():
            found[writer] = 255.0 - writing.images[rows].mean(0)
    return found


def test_same_seed_same_bytes_and_another_seed_others():
    few = (synthetic_writers.write(seed, 10) for seed in (11, 11, 12))
    one, again, other = few
    for a, b in zip(one, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert other.groups != one.groups


def test_a_writer_does_not_depend_on_how_many_there_are(writing):
    few = synthetic_writers.write(11, 4)
    np.testing.assert_array_equal(few.images, writing.images[: len(few.images)])


def test_types_and_shapes(writing):
    n = len(writing.labels)
    assert writing.images.shape == (n, 28, 28)
    assert writing.images.dtype == np.uint8
    assert writing.labels.dtype == np.int32
    assert writing.writer_ids.shape == (n,)


def test_background_is_white_and_ink_a_small_part(writing):
    assert np.median(writing.images[:, ::27, ::27]) > 240
    ink = (writing.images < 128).mean(axis=(1, 2))
    assert 0.03 < ink.mean() < 0.2
    assert (ink > 0.005).all(), "every character leaves a visible stroke"


def test_all_classes_and_more_digits_than_letters(writing):
    counts = np.bincount(writing.labels, minlength=62)
    assert (counts > 0).all()
    assert 0.4 < counts[:10].sum() / counts.sum() < 0.6
    assert counts[10:36].sum() > counts[36:].sum()


def test_only_some_characters():
    few = synthetic_writers.write(0, 3, synthetic_writers.CHARACTERS[:10])
    assert set(few.labels) <= set(range(10))


def test_writers_differ_in_labels_and_in_size(writing):
    sizes = np.unique(writing.writer_ids, return_counts=True)[1]
    assert sizes.min() >= 16
    assert sizes.max() <= 209
    assert sizes.std() > 15
    shares = [(writing.labels[writing.writer_ids == w] < 10).mean() for w in writing.groups]
    assert np.std(shares) > 0.05


def test_a_writers_examples_are_more_alike_than_other_writers(writing):
    """The style carries over: the same digit by the same writer is closer than by another."""
    own, others = [], []
    for label in (2, 3, 5, 8):
        rows = writing.labels == label
        images = writing.images[rows].astype(np.float32) / 255
        writers = writing.writer_ids[rows]
        distance = np.square(images[:, None] - images[None]).mean((2, 3))
        same = writers[:, None] == writers[None]
        pairs = ~np.eye(len(images), dtype=bool)
        own.append(distance[same & pairs].mean())
        others.append(distance[~same].mean())
    assert 0.4 < np.mean(own) / np.mean(others) < 0.8


def test_planted_groups_are_told_apart_by_pixels(writing):
    assert set(writing.groups.values()) == set(synthetic_writers.GROUPS)
    means = mean_images(writing, np.arange(10))
    names = np.array([writing.groups[w] for w in means])
    images = np.array(list(means.values()))
    distance = np.square(images[:, None] - images[None]).mean((2, 3))
    same = names[:, None] == names[None]
    pairs = ~np.eye(len(images), dtype=bool)
    assert distance[same & pairs].mean() < 0.8 * distance[~same].mean()


def test_skeletons_are_one_pixel_wide():
    ring = np.zeros((1, 20, 20), bool)
    ring[0, 4:16, 4:16] = True
    ring[0, 8:12, 8:12] = False
    bar = np.zeros((1, 20, 20), bool)
    bar[0, 5:9, 3:17] = True
    thin = synthetic_writers._thin(np.concatenate([ring, bar]))
    blocks = thin[:, 1:, 1:] & thin[:, :-1, 1:] & thin[:, 1:, :-1] & thin[:, :-1, :-1]
    assert not blocks.any()
    assert thin[1].any(axis=0).sum() >= 10, "the bar keeps its length"
    assert not thin[0, 9:11, 9:11].any(), "the hole stays open"


@pytest.mark.parametrize("slant", [-0.3, 0.0, 0.3])
def test_page_to_glyph_inverts_scale_slant_and_rotation(slant):
    width, height, rotation = 1.2, 0.8, 0.1
    cos, sin = np.cos(rotation), np.sin(rotation)
    forward = (
        np.array([[cos, -sin], [sin, cos]])
        @ np.array([[1, -slant], [0, 1]])
        @ np.diag([width, height])
    )
    inverse = synthetic_writers._page_to_glyph(
        *(np.array([v]) for v in (width, height, slant, rotation))
    )
    np.testing.assert_allclose(inverse[0] @ forward, np.eye(2), atol=1e-12)
