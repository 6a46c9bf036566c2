"""Synthetic writers: handwriting-like characters from the glyphs of a few fonts.

`strokes.png` has a row of each font and in it a square of each character: Matplotlib's
glyphs, a capital 34 of 64 pixels high, thinned to a pixel's width (Zhang and Suen 1984). Every
example redraws such a skeleton with a pen. What makes a writer is in `Writer`; slant, aspect, pen
and the choice of fonts depend on a planted style group. Nothing here knows of any model or
algorithm.
"""

import functools
import pathlib
import string
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from PIL import Image
from scipy import ndimage

from motley_tff.core import random_streams

# EMNIST's order of the classes: digits, then capitals, then small letters.
CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
IMAGE_SIZE = 28
# 110 train, 18 validate and 22 test. Few, so that the README's first command ends soon.
_NUM_WRITERS = 150

_STROKES = pathlib.Path(__file__).with_name("strokes.png")
_FIELD_SIZE = 64


class Handwriting(NamedTuple):
    """A planted style group: what its writers' styles scatter around."""

    share: float  # Part of the population.
    faces: tuple[int, ...]  # Rows of the picture, whose forms its writers mix.
    slant: float  # Mean horizontal shift per unit of height, rightwards at the top.
    aspect: float  # Mean width relative to the font's.
    pen: float  # Mean radius of the pen in pixels.


GROUPS: Mapping[str, Handwriting] = {
    "print": Handwriting(0.35, (0, 1, 2), 0.0, 1.0, 1.1),
    "italic": Handwriting(0.30, (3, 4, 5), 0.15, 0.85, 0.9),
    "script": Handwriting(0.20, (6, 7, 8), 0.0, 1.0, 0.9),
    "slab": Handwriting(0.15, (9, 10, 11), -0.2, 1.15, 1.35),
}

# A writer draws this share of the characters in a form that is not their main font's.
_BORROWED_FORMS = 0.25
# Shares of digits, capitals and small letters in EMNIST ByClass (Cohen et al. 2017), and how
# closely a writer keeps to them and to the frequencies below (Dirichlet concentrations).
_KIND_SHARES, _KIND_CONCENTRATION, _CLASS_CONCENTRATION = (0.50, 0.27, 0.23), 20.0, 80.0
# Per cent of English text, a to z: the forms NIST collected hold running text and alphabets.
_LETTERS = (
    8.2, 1.5, 2.8, 4.3, 12.7, 2.2, 2.0, 6.1, 7.0, 0.15, 0.77, 4.0, 2.4,
    6.7, 7.5, 1.9, 0.1, 6.0, 6.3, 9.1, 2.8, 0.98, 2.4, 0.15, 2.0, 0.07,
)  # fmt: skip
_TEXT_SHARE = {"capitals": 0.3, "small": 0.5}


class Writer(NamedTuple):
    """One writer's habits; slant, aspect and pen as of the planted group."""

    group: str
    faces: np.ndarray  # int [62], which font's form each character has.
    bends: np.ndarray  # float32 [62, num_bends, 2], the writer's own bending of each form.
    slant: float
    aspect: float
    scale: float  # Size relative to EMNIST's.
    rotation: float  # In radians.
    pen: float
    sloppiness: float  # How much examples of one character differ.
    grain: float  # Standard deviation of the scan's noise, of 1.
    class_probabilities: np.ndarray  # float [62].


class Writing(NamedTuple):
    """What a population wrote; rows of a writer stand together."""

    images: np.ndarray  # uint8 [n, 28, 28], 255 = background.
    labels: np.ndarray  # int32 [n].
    writer_ids: np.ndarray  # str [n].
    groups: dict[str, str]  # {writer id: planted group}.


def write(seed: int, num_writers: int = _NUM_WRITERS, characters: str = CHARACTERS) -> Writing:
    """Returns what a seeded population writes of a leading part of `CHARACTERS`, such as the ten
    digits. A writer's habits and examples depend on the seed and on the writer's number alone, not
    on how many there are.
    """
    ids = [f"writer_{i:04d}" for i in range(num_writers)]
    images, labels, groups = [], [], {}
    for i, writer_id in enumerate(ids):
        rng = random_streams.generator(seed, "synthetic_data", i)
        writer = _new_writer(rng, len(characters))
        groups[writer_id] = writer.group
        written = _labels(rng, writer)
        labels.append(written)
        images.append(_draw_noisy(rng, writer, written))
    sizes = [len(written) for written in labels]
    return Writing(np.concatenate(images), np.concatenate(labels), np.repeat(ids, sizes), groups)


def _new_writer(rng: np.random.Generator, num_classes: int) -> Writer:
    names = tuple(GROUPS)
    name = names[rng.choice(len(names), p=[group.share for group in GROUPS.values()])]
    group = GROUPS[name]
    main, borrowed = rng.choice(group.faces), rng.choice(group.faces, len(CHARACTERS))
    return Writer(
        group=name,
        faces=np.where(rng.random(len(CHARACTERS)) < _BORROWED_FORMS, borrowed, main),
        bends=rng.normal(0.0, 0.03, (len(CHARACTERS), _NUM_BENDS, 2)).astype(np.float32),
        slant=group.slant + rng.normal(0.0, 0.1),
        aspect=group.aspect * np.exp(rng.normal(0.0, 0.1)),
        scale=np.exp(rng.normal(0.0, 0.12)),
        rotation=rng.normal(0.0, 0.06),
        pen=group.pen * np.exp(rng.normal(0.0, 0.18)),
        sloppiness=np.exp(rng.normal(0.0, 0.3)),
        grain=rng.uniform(0.0, 0.04),
        class_probabilities=_class_probabilities(rng, num_classes),
    )


def _class_probabilities(rng: np.random.Generator, num_classes: int) -> np.ndarray:
    text = np.array(_LETTERS) / np.sum(_LETTERS)
    letters = (s * text + (1 - s) / 26 for s in _TEXT_SHARE.values())
    kinds = rng.dirichlet(_KIND_CONCENTRATION * np.array(_KIND_SHARES))
    within = [rng.dirichlet(_CLASS_CONCENTRATION * p) for p in (np.full(10, 0.1), *letters)]
    drawn = np.concatenate([k * p for k, p in zip(kinds, within, strict=True)])[:num_classes]
    return drawn / drawn.sum()


def _labels(rng: np.random.Generator, writer: Writer) -> np.ndarray:
    """Draws a writer's labels, int32 [n]; n is distributed as EMNIST's, halved: two humps."""
    size = rng.normal(79, 10) if rng.random() < 0.7 else rng.normal(145, 25)
    n = int(np.clip(size, 16, 209))
    classes = len(writer.class_probabilities)
    return rng.choice(classes, n, p=writer.class_probabilities).astype(np.int32)


def _draw_noisy(rng: np.random.Generator, writer: Writer, labels: np.ndarray) -> np.ndarray:
    """Draws a writer's examples, uint8 [n, 28, 28].

    How much they vary is set so that two examples of a digit by one writer are about 0.65 times
    as far apart (squared pixel distance) as by two writers: 0.68 in MNIST by its real writers.
    """
    n = len(labels)
    jitter = writer.sloppiness * rng.normal(size=(n, 7))
    scales = writer.scale * np.exp(0.07 * jitter[:, 0])
    ink = _draw(
        skeletons=_skeletons(len(writer.class_probabilities)),
        faces=writer.faces[labels],
        labels=labels,
        page_to_glyph=_page_to_glyph(
            scales * writer.aspect * np.exp(0.08 * jitter[:, 1]),
            scales,
            writer.slant + 0.08 * jitter[:, 2],
            writer.rotation + 0.06 * jitter[:, 3],
        ),
        shifts=0.05 * jitter[:, 4:6],
        bends=writer.bends[labels]
        + 0.016 * writer.sloppiness * rng.normal(size=(n, _NUM_BENDS, 2)),
        pens=writer.pen * np.exp(0.1 * jitter[:, 6]),
    )
    ink += writer.grain * rng.standard_normal(ink.shape, np.float32)
    return np.rint(255.0 * (1.0 - np.clip(ink, 0.0, 1.0))).astype(np.uint8)


def _page_to_glyph(
    width: np.ndarray, height: np.ndarray, slant: np.ndarray, rotation: np.ndarray
) -> np.ndarray:
    """Returns float [n, 2, 2]: the inverse of scaling, slanting and rotating a glyph (y down)."""
    cos, sin = np.cos(rotation), np.sin(rotation)
    # Undo the rotation, then the slant x - slant * y, then the scaling.
    unslanted_x = np.stack([cos - slant * sin, sin + slant * cos], axis=-1)
    unslanted_y = np.stack([-sin, cos], axis=-1)
    return np.stack([unslanted_x / width[:, None], unslanted_y / height[:, None]], axis=1)


_DIRECTIONS = ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.5, -0.5))
_NUM_BENDS = 2 * len(_DIRECTIONS)


@functools.lru_cache
def _page() -> list[np.ndarray]:
    """Returns float32 pixel centres [784, 2], waves there [num_bends, 784], and their slopes."""
    axis = (np.arange(IMAGE_SIZE) + 0.5) / (IMAGE_SIZE / 2) - 1
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    directions = np.pi * np.array(_DIRECTIONS)
    angles = directions @ points.T
    waves = np.concatenate([np.sin(angles), np.cos(angles)])
    slopes = np.concatenate([np.cos(angles), -np.sin(angles)])[..., None]
    slopes = slopes * np.tile(directions, (2, 1))[:, None]
    return [array.astype(np.float32) for array in (points, waves, slopes)]


def _draw(
    skeletons: np.ndarray,
    faces: np.ndarray,
    labels: np.ndarray,
    page_to_glyph: np.ndarray,
    shifts: np.ndarray,
    bends: np.ndarray,
    pens: np.ndarray,
) -> np.ndarray:
    """Returns ink float32 [n, 28, 28] in [0, 1]: where the pen passes along bent skeletons."""
    points, waves, wave_slopes = _page()
    matrices, bends = page_to_glyph.astype(np.float32), bends.astype(np.float32)
    moved: np.ndarray = points[None] - shifts[:, None].astype(np.float32)
    glyph = moved @ matrices.transpose(0, 2, 1)
    glyph += np.einsum("nkc,kp->npc", bends, waves, optimize=True)
    slopes = matrices[:, None] + np.einsum("nkc,kpd->npcd", bends, wave_slopes, optimize=True)
    to_skeleton = _nearest_skeleton(skeletons, faces, labels, glyph) - glyph
    distance = np.hypot(*_on_page(slopes, to_skeleton)) * (IMAGE_SIZE / 2)
    ink = np.clip(pens[:, None].astype(np.float32) - distance + 0.5, 0.0, 1.0)
    return ink.reshape(-1, IMAGE_SIZE, IMAGE_SIZE)


def _on_page(slopes: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maps offsets [n, 784, 2] on the glyph back to the page, so that the pen keeps its width, by
    the slopes of the glyph's coordinates in the page's, [n, 784, 2, 2].
    """
    (a, b), (c, d) = np.moveaxis(slopes, (-2, -1), (0, 1))
    x, y = np.moveaxis(offsets, -1, 0)
    # Where a strong bend all but folds the page the inverse would blow up.
    determinant = np.maximum(a * d - b * c, 0.3)
    return (d * x - b * y) / determinant, (a * y - c * x) / determinant


def _nearest_skeleton(
    skeletons: np.ndarray, faces: np.ndarray, labels: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """Returns the skeleton's point nearest to each of `points` [n, 784, 2], on the glyph."""
    pixels = np.clip((points + 1) * (_FIELD_SIZE / 2), 0, _FIELD_SIZE - 1).astype(np.int32)
    first = (faces * skeletons.shape[1] + labels)[:, None] * _FIELD_SIZE**2
    flat = skeletons.reshape(-1, 2)
    return flat[first + pixels[..., 1] * _FIELD_SIZE + pixels[..., 0]]


@functools.lru_cache
def _skeletons(num_characters: int) -> np.ndarray:
    """Returns float32 [faces, num_characters, 64, 64, 2]: the point (x, y) of a skeleton that is
    nearest to each pixel.
    """
    with Image.open(_STROKES) as image:
        squares = np.asarray(image).reshape(-1, _FIELD_SIZE, len(CHARACTERS), _FIELD_SIZE)
    skeletons = squares.swapaxes(1, 2)[:, :num_characters]
    to_ink = functools.partial(
        ndimage.distance_transform_edt, return_distances=False, return_indices=True
    )
    # It gives rows before columns; x comes first here.
    nearest = np.array(
        [[to_ink(~glyph)[::-1].transpose(1, 2, 0) for glyph in g] for g in skeletons]
    )
    return ((nearest + 0.5) * (2 / _FIELD_SIZE) - 1).astype(np.float32)
