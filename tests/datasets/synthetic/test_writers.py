import hashlib

import numpy as np
import pytest

from datasets.synthetic import (
    posts as synthetic_posts,
    talks as synthetic_talks,
    writers as synthetic_writers,
)


@pytest.fixture(scope="module")
def writing():
    return synthetic_writers.write(11, 30)


def test_same_seed_same_bytes_and_another_seed_others(writing):
    few = synthetic_writers.write(11, 4)
    n = len(few.labels)
    for name, dtype in (("images", np.uint8), ("labels", np.int32), ("writer_ids", None)):
        array = getattr(few, name)
        np.testing.assert_array_equal(array, getattr(writing, name)[:n])
        assert dtype in (None, array.dtype) and len(array) == n
    assert few.images.shape == (n, 28, 28)
    other = synthetic_writers.write(12, 4, synthetic_writers.CHARACTERS[:10])
    assert set(other.labels) <= set(range(10))
    assert not np.array_equal(other.images[0], few.images[few.labels == other.labels[0]][0])


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
    of_digits = {w: (writing.writer_ids == w) & (writing.labels < 10) for w in writing.groups}
    of_digits = {writer: rows for writer, rows in of_digits.items() if rows.any()}
    names = np.array([writing.groups[w] for w in of_digits])
    images = np.array([255.0 - writing.images[rows].mean(0) for rows in of_digits.values()])
    distance = np.square(images[:, None] - images[None]).mean((2, 3))
    same = names[:, None] == names[None]
    pairs = ~np.eye(len(images), dtype=bool)
    assert distance[same & pairs].mean() < 0.8 * distance[~same].mean()


def test_a_label_is_the_character_that_is_drawn(writing):
    """In most hands an m is wider than an i."""
    widths = {}
    for letter in "im":
        images = writing.images[writing.labels == synthetic_writers.CHARACTERS.index(letter)]
        widths[letter] = np.median((images < 128).any(axis=1).sum(axis=1))
    assert widths["m"] > 1.5 * widths["i"]


def test_words_are_those_of_earlier_runs():
    """A word more or in another place, and runs on made-up texts cannot be compared."""
    posts, talks = synthetic_posts.write(0), synthetic_talks.speak(0)
    digests = [hashlib.sha256(repr(texts).encode()).hexdigest()[:8] for texts in (posts, talks)]
    assert digests == ["95ecbc91", "6d20c283"]
