"""Synthetic writers: handwriting-like characters from the glyphs of the fonts in matplotlib.

A glyph is thinned to its skeleton once; every example redraws that skeleton with a pen. What makes
a writer is in `Writer`; slant, aspect, pen and the choice of fonts depend on a planted style group.
Nothing here knows of any model or algorithm.
"""

import functools
import importlib.util
import itertools
import os
import string
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from motley_tff.core import random_streams

# EMNIST's order of the classes: digits, then capitals, then small letters.
CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
IMAGE_SIZE = 28
# 110 train, 18 validate and 22 test. Few, so that the README's first command ends soon.
_NUM_WRITERS = 150

_FIELD_SIZE = 64
# Height of a capital on that canvas: 15 of 28 pixels, about EMNIST's.
_CAPITAL_HEIGHT = 34

# The alphabets that Unicode has for mathematics skip the letters it already had elsewhere.
_ELSEWHERE = dict(zip("BEFHILMRego", "ℬℰℱℋℐℒℳℛℯℊℴ", strict=True))


class _Face(NamedTuple):
    """Font files for digits, capitals and small letters, and where the two alphabets begin."""

    digits: str
    capitals: str
    small: str
    first_capital: str = "A"
    first_small: str = "a"


def _plain(name: str) -> _Face:
    return _Face(name, name, name)


_FACES: Mapping[str, _Face] = {
    "sans": _plain("DejaVuSans"),
    "light_sans": _plain("cmss10"),
    "mixed_sans": _Face(*("STIXGeneral",) * 3, "\U0001d5a0", "\U0001d5ba"),
    "italic": _plain("STIXGeneralItalic"),
    "wide_italic": _plain("DejaVuSerif-Italic"),
    "sans_italic": _Face(*("STIXGeneralItalic",) * 3, "\U0001d608", "\U0001d622"),
    "script": _Face("STIXGeneralItalic", *("STIXGeneral",) * 2, "\U0001d49c", "\U0001d4b6"),
    "script_old_digits": _Face("cmmi10", *("STIXGeneralItalic",) * 2, "\U0001d49c", "\U0001d4b6"),
    "calligraphic": _Face("cmmi10", "cmsy10", "cmmi10"),
    "serif": _plain("STIXGeneral"),
    "typewriter": _plain("cmtt10"),
    "slab": _plain("DejaVuSerif"),
}


class Group(NamedTuple):
    """A planted style group: what its writers' styles scatter around."""

    share: float  # Part of the population.
    faces: tuple[str, ...]  # Fonts whose forms its writers mix.
    slant: float  # Mean horizontal shift per unit of height, rightwards at the top.
    aspect: float  # Mean width relative to the font's.
    pen: float  # Mean radius of the pen in pixels.


GROUPS: Mapping[str, Group] = {
    "print": Group(0.35, ("sans", "light_sans", "mixed_sans"), 0.0, 1.0, 1.1),
    "italic": Group(0.30, ("italic", "wide_italic", "sans_italic"), 0.15, 0.85, 0.9),
    "script": Group(0.20, ("script", "script_old_digits", "calligraphic"), 0.0, 1.0, 0.9),
    "slab": Group(0.15, ("serif", "typewriter", "slab"), -0.2, 1.15, 1.35),
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
    return Writer(
        group=name,
        faces=_choose_forms(rng, group),
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


def _choose_forms(rng: np.random.Generator, group: Group) -> np.ndarray:
    faces = [tuple(_FACES).index(name) for name in group.faces]
    main, borrowed = rng.choice(faces), rng.choice(faces, len(CHARACTERS))
    return np.where(rng.random(len(CHARACTERS)) < _BORROWED_FORMS, borrowed, main)


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
    forms = [_forms(face)[:num_characters] for face in _FACES.values()]
    glyphs = np.array([[_render(*form) for form in face] for face in forms])
    skeletons = _thin(glyphs)
    to_ink = functools.partial(
        ndimage.distance_transform_edt, return_distances=False, return_indices=True
    )
    # It gives rows before columns; x comes first here.
    nearest = np.array(
        [[to_ink(~glyph)[::-1].transpose(1, 2, 0) for glyph in g] for g in skeletons]
    )
    return ((nearest + 0.5) * (2 / _FIELD_SIZE) - 1).astype(np.float32)


def _forms(face: _Face) -> list[tuple[str, str]]:
    """Returns (font file, code point) of each of the 62 characters."""
    capitals = _alphabet(face.first_capital, string.ascii_uppercase)
    small = _alphabet(face.first_small, string.ascii_lowercase)
    return [
        *((face.digits, c) for c in string.digits),
        *((face.capitals, c) for c in capitals),
        *((face.small, c) for c in small),
    ]


def _alphabet(first: str, letters: str) -> Sequence[str]:
    is_script = first in "\U0001d49c\U0001d4b6"
    return [
        _ELSEWHERE.get(letter, c) if is_script else c
        for letter, c in zip(letters, map(chr, itertools.count(ord(first))), strict=False)
    ]


@functools.lru_cache
def _font_folder() -> str:
    """Returns the folder of Matplotlib's fonts, without importing Matplotlib."""
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("Matplotlib, whose fonts the synthetic writers draw.")
    return os.path.join(os.path.dirname(spec.origin), "mpl-data", "fonts", "ttf")


@functools.lru_cache
def _font(name: str) -> ImageFont.FreeTypeFont:
    """Returns a font at the size where its capitals are twice `_CAPITAL_HEIGHT` tall."""
    path = os.path.join(_font_folder(), f"{name}.ttf")
    trial = ImageFont.truetype(path, 200)
    _, top, _, bottom = trial.getbbox("H")
    return ImageFont.truetype(path, 200 * 2 * _CAPITAL_HEIGHT / (bottom - top))


def _render(font_name: str, character: str) -> np.ndarray:
    """Returns a glyph as bool [64, 64], its box centred on the canvas."""
    size = 2 * _FIELD_SIZE
    image = Image.new("L", (2 * size, 2 * size))
    ImageDraw.Draw(image).text((size, size), character, 255, _font(font_name), anchor="mm")
    left, top, right, bottom = image.getbbox() or (0, 0, 0, 0)
    x, y = (left + right - size) // 2, (top + bottom - size) // 2
    small = image.crop((x, y, x + size, y + size)).resize((_FIELD_SIZE,) * 2, Image.Resampling.BOX)
    return np.asarray(small) > 110


def _thin(glyphs: np.ndarray) -> np.ndarray:
    """Thins strokes, bool [..., height, width], to a pixel's width (Zhang and Suen 1984)."""
    ink = glyphs
    while True:
        before = ink
        for sides in ((0, 2, 4, 6), (2, 0, 6, 4)):
            ink = ink & ~_removable(ink, *sides)
        if np.array_equal(ink, before):
            return ink


_AROUND = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))


def _removable(ink: np.ndarray, a: int, b: int, c: int, d: int) -> np.ndarray:
    """Returns which pixels one half-step of the thinning deletes; sides number `_AROUND`."""
    around = [np.roll(ink, (-dy, -dx), (-2, -1)) for dy, dx in _AROUND]
    count = sum(p.astype(np.int8) for p in around)
    starts = sum(
        (~p & q).astype(np.int8) for p, q in zip(around, around[1:] + around[:1], strict=True)
    )
    in_line = ~(around[a] & around[b] & around[c]) & ~(around[b] & around[c] & around[d])
    return (count >= 2) & (count <= 6) & (starts == 1) & in_line
