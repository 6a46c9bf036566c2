"""Synthetic photographers: pictures of landmarks by region, as JPEG files in memory.

Each region has its light, hills, ground and building material, and eight landmarks: storeys, a
spire or a dome, and windows, whose proportions and colours are the landmark's own. A photographer
belongs to a planted region, travels now and then, has favourite landmarks, and a camera: format,
zoom, tilt, exposure, tint, haze. Nothing here knows of any model or algorithm.
"""

import io
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from motley_tff.core import random_streams

# Colours are RGB in [0, 1], places are (x, y) with y upwards; a landmark stands on y = 0, at most
# 1.3 high and 2 wide.
Colour = Sequence[float] | np.ndarray


class Shape(NamedTuple):
    """A polygon [corners, 2] and its colour."""

    corners: np.ndarray
    colour: Colour


class Region(NamedTuple):
    """A planted region: its share of the population, its colours, and the height of its hills.

    The sky's colour turns into the horizon's downwards; buildings scatter around the material's.
    """

    share: float
    sky: Colour
    horizon: Colour
    hills: Colour
    ground: Colour
    material: Colour
    roughness: float


REGIONS: Mapping[str, Region] = {
    "desert": Region(0.26, (0.35, 0.6, 0.9), (0.95, 0.85, 0.65), (0.8, 0.5, 0.3),
                     (0.9, 0.75, 0.45), (0.85, 0.6, 0.4), 0.1),
    "alps": Region(0.22, (0.2, 0.45, 0.85), (0.75, 0.85, 0.95), (0.85, 0.9, 0.95),
                   (0.3, 0.6, 0.25), (0.5, 0.35, 0.25), 0.55),
    "coast": Region(0.18, (0.45, 0.75, 0.95), (0.9, 0.95, 1.0), (0.35, 0.6, 0.5),
                    (0.1, 0.4, 0.65), (0.95, 0.95, 0.9), 0.15),
    "city": Region(0.14, (0.6, 0.63, 0.68), (0.8, 0.8, 0.8), (0.5, 0.5, 0.55),
                   (0.35, 0.35, 0.37), (0.55, 0.6, 0.7), 0.3),
    "jungle": Region(0.12, (0.55, 0.8, 0.75), (0.85, 0.95, 0.8), (0.1, 0.35, 0.15),
                     (0.2, 0.5, 0.15), (0.6, 0.6, 0.45), 0.35),
    "dusk": Region(0.08, (0.25, 0.15, 0.4), (0.95, 0.5, 0.35), (0.3, 0.2, 0.35),
                   (0.25, 0.3, 0.35), (0.75, 0.3, 0.25), 0.2),
}  # fmt: skip

_LANDMARKS_PER_REGION = 8
# Width and height of the pictures a camera takes.
_FORMATS = ((128, 128), (160, 128), (128, 160))
# Pictures are drawn at this multiple of their size: smooth edges.
_OVERSAMPLING = 2
# How often a photographer takes a picture in another region.
_TRAVEL = 0.08
_FAVOURITES_CONCENTRATION = 0.7
_SMALLEST, _LARGEST = 6, 36
# Chosen by time: ten rounds and an evaluation of every valid and test photographer, twenty epochs
# of fine-tuning each, take about a minute on two cores.
_NUM_PHOTOGRAPHERS = 48
# Standard deviation of a picture's noise, of 1.
_GRAIN = np.float32(0.015)


class Camera(NamedTuple):
    """How a photographer's, or one picture's, view differs from the plain one."""

    zoom: float  # Factor of size.
    tilt: float  # In radians.
    squeeze: float  # Factor of width: the landmark seen from its side.
    shift: np.ndarray  # (x, y) of the landmark's foot.
    exposure: float  # Factor of brightness.
    warmth: float  # Added to red and taken from blue, relatively.
    haze: float  # Part of the picture that the horizon's colour takes over.


class Album(NamedTuple):
    """What a population photographed."""

    # {photographer id: {"image": JPEG bytes, object [n]; "label": int32 [n]}}
    photos: dict[str, dict[str, np.ndarray]]
    groups: dict[str, str]  # {photographer id: region}.
    labels: dict[tuple[str, int], int]  # {(region, number of its landmark): label}.


def take_photos(
    seed: int, num_photographers: int = _NUM_PHOTOGRAPHERS, num_classes: int = 2028
) -> Album:
    """Returns what a seeded population photographs. A photographer's pictures depend on the seed
    and on the photographer's number alone, not on how many there are. Labels are spread over
    `num_classes`, at least the number of landmarks.
    """
    names = [(region, i) for region in REGIONS for i in range(_LANDMARKS_PER_REGION)]
    chosen = random_streams.generator(seed, "synthetic_data", 0).permutation(num_classes)
    labels = {name: int(label) for name, label in zip(names, chosen, strict=False)}
    landmarks = {
        (name, i): _build(
            random_streams.generator(seed, "synthetic_data", 0, place, i), region.material
        )
        for place, (name, region) in enumerate(REGIONS.items())
        for i in range(_LANDMARKS_PER_REGION)
    }
    photos, groups = {}, {}
    for i in range(num_photographers):
        rng = random_streams.generator(seed, "synthetic_data", 1, i)
        client_id = f"photographer_{i:03d}"
        groups[client_id], photos[client_id] = _photograph(rng, landmarks, labels)
    return Album(photos, groups, labels)


def _photograph(
    rng: np.random.Generator,
    landmarks: Mapping[tuple[str, int], list[Shape]],
    labels: Mapping[tuple[str, int], int],
) -> tuple[str, dict[str, np.ndarray]]:
    """Returns a new photographer's region and pictures."""
    regions = tuple(REGIONS)
    home = regions[rng.choice(len(regions), p=[region.share for region in REGIONS.values()])]
    favourites = rng.dirichlet(np.full(_LANDMARKS_PER_REGION, _FAVOURITES_CONCENTRATION))
    size = _FORMATS[rng.integers(len(_FORMATS))]
    usual = Camera(
        zoom=np.exp(rng.normal(0.0, 0.15)),
        tilt=rng.normal(0.0, 0.07),
        squeeze=1.0,
        shift=np.array([0.0, -0.55]) + rng.normal(0.0, 0.06, 2),
        exposure=np.exp(rng.normal(0.0, 0.15)),
        warmth=rng.normal(0.0, 0.08),
        haze=rng.uniform(0.0, 0.3),
    )
    n = int(np.clip(np.exp(rng.normal(np.log(14), 0.45)), _SMALLEST, _LARGEST))
    images, taken = np.empty(n, object), np.empty(n, np.int32)
    for i in range(n):
        travels = rng.random() < _TRAVEL
        region = regions[rng.integers(len(regions))] if travels else home
        name = region, int(rng.choice(_LANDMARKS_PER_REGION, p=favourites))
        camera = _one_view(rng, usual)
        pixels, jpeg = draw(rng, REGIONS[region], landmarks[name], camera, size), io.BytesIO()
        Image.fromarray(pixels).save(jpeg, "JPEG", quality=88)
        images[i] = jpeg.getvalue()
        taken[i] = labels[name]
    return home, {"image": images, "label": taken}


def _one_view(rng: np.random.Generator, camera: Camera) -> Camera:
    return Camera(
        zoom=camera.zoom * np.exp(rng.normal(0.0, 0.12)),
        tilt=camera.tilt + rng.normal(0.0, 0.04),
        squeeze=rng.uniform(0.75, 1.1),
        shift=camera.shift + rng.normal(0.0, 0.1, 2),
        exposure=camera.exposure * np.exp(rng.normal(0.0, 0.08)),
        warmth=camera.warmth + rng.normal(0.0, 0.03),
        haze=np.clip(camera.haze + rng.normal(0.0, 0.05), 0.0, 0.5),
    )


def draw(
    rng: np.random.Generator,
    region: Region,
    landmark: list[Shape],
    camera: Camera,
    size: tuple[int, int],
) -> np.ndarray:
    """Returns a picture uint8 [height, width, 3] of `size` (width, height); hills are random."""
    width, height = (_OVERSAMPLING * s for s in size)
    down = np.linspace(0.0, 1.0, height)[:, None, None]
    sky = (1 - down) * np.array(region.sky) + down * np.array(region.horizon)
    image = Image.fromarray(np.repeat(np.rint(255 * sky).astype(np.uint8), width, axis=1))
    pen = ImageDraw.Draw(image)
    for shape in (*_land(rng, region), *landmark):
        corners = _on_picture(shape.corners, camera, width, height)
        colour = np.rint(255 * np.clip(shape.colour, 0.0, 1.0)).astype(int)
        pen.polygon([tuple(c) for c in corners], fill=tuple(colour.tolist()))
    pixels = np.asarray(image.resize(size, Image.Resampling.BOX), np.float32) / 255
    pixels += np.float32(camera.haze) * (np.array(region.horizon, np.float32) - pixels)
    light = camera.exposure * np.array([1 + camera.warmth, 1.0, 1 - camera.warmth])
    pixels = pixels * light.astype(np.float32)
    pixels += _GRAIN * rng.standard_normal(pixels.shape, np.float32)
    return np.rint(255 * np.clip(pixels, 0.0, 1.0)).astype(np.uint8)


def _land(rng: np.random.Generator, region: Region) -> list[Shape]:
    """Returns hills that every picture draws anew, and the ground; both reach past the frame."""
    heights = 0.1 + region.roughness * rng.random(17)
    x, y = [*np.linspace(-4.0, 4.0, 17), 4.0, -4.0], [*heights, -0.2, -0.2]
    hills = np.stack([x, y], axis=1)
    return [Shape(hills, region.hills), _block(region.ground, -6.0, 0.08, 12.0)]


def _on_picture(corners: np.ndarray, camera: Camera, width: int, height: int) -> np.ndarray:
    """Maps places to pixels; the shorter side shows two units at zoom 1."""
    cos, sin = np.cos(camera.tilt), np.sin(camera.tilt)
    x, y = (corners * [camera.squeeze, 1.0] * camera.zoom + camera.shift).T
    scale = min(width, height) / 2
    return np.stack(
        [width / 2 + scale * (cos * x - sin * y), height / 2 - scale * (sin * x + cos * y)], axis=1
    )


def _block(
    colour: Colour, bottom: float, top: float, low: float, high: float | None = None, x: float = 0.0
) -> Shape:
    """Returns a block around x, as wide as `low` below and `high` (if None as `low`) above."""
    a, b = low / 2, (low if high is None else high) / 2
    return Shape(np.array([[x - a, bottom], [x + a, bottom], [x + b, top], [x - b, top]]), colour)


def _build(rng: np.random.Generator, material: Colour) -> list[Shape]:
    """Returns a landmark: storeys on top of each other with a row of windows each, and what crowns
    them: a dome, or a spire as wide below as the last storey or narrower.
    """
    main = np.clip(np.array(material) + rng.normal(0.0, 0.08, 3), 0.05, 1.0)
    dark, accent = 0.55 * main, rng.permutation([0.85, 0.5, 0.15])
    shapes = []
    edges = np.cumsum([0.0, *rng.uniform(0.15, 0.4, rng.integers(1, 4))])
    width = rng.uniform(0.25, 1.6)
    for bottom, top in itertools.pairwise(edges):
        narrower = width * rng.uniform(0.5, 1.0)
        shapes.append(_block((main, accent)[rng.integers(2)], bottom, top, width, narrower))
        count, low = rng.integers(0, 6), bottom + 0.2 * (top - bottom)
        places = np.linspace(-0.4, 0.4, count) * narrower
        shapes += [_block(dark, low, low + 0.5 * (top - bottom), 0.06, x=x) for x in places]
        width = narrower * rng.uniform(0.6, 1.1)
    height = rng.uniform(0.1, 0.4)
    if rng.random() < 0.5:
        return [*shapes, _block(accent, edges[-1], edges[-1] + height, width, 0.0)]
    angles = np.linspace(0.0, np.pi, 17)
    dome = [width / 2 * np.cos(angles), edges[-1] + height * np.sin(angles)]
    return [*shapes, Shape(np.stack(dome, axis=1), accent)]
