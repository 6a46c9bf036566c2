"""CelebA: whether a celebrity smiles, or another attribute of a face; a cross-device task.

Card
  Source: TFF's `celeba.sqlite`, which `tff.simulation.datasets.celeba.load_data` fetches, in
    --data_dir, its folder celeba, or Keras's cache; the training part of each celebrity's pictures,
    as of EMNIST. It is not downloaded here: its hash is not known to us. Or synthetic faces.
  Licence: for research that is not commercial, as its authors say.
  Clients: 9,343 celebrities of five pictures or more; 177,457 pictures.
    Synthetic: 60 people, 10 to 30 pictures each, in three planted groups of how they smile.
  Fields: `pixels` uint8 [84, 84, 3]; `label` int32, 1 where the attribute of --label_column is
    there: `smiling`, as in LEAF, or one of the other 39 that TFF names.
  Model: four blocks of 32 filters (3x3, ReLU, 2x2 max pooling), as LEAF's without its batch
    normalization, 64 units and two logits; accuracy and ROC-AUC.
  Split: celebrities permuted with seed 13: 12% valid, 15% test, the rest train. A valid or test
    one's pictures are shuffled with seed 13; the first half personalizes, the rest evaluates.
  Citation: Liu et al. 2015, "Deep learning face attributes in the wild"
    (https://arxiv.org/abs/1411.7766); Caldas et al. 2018, "LEAF"
    (https://arxiv.org/abs/1812.01097).
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import PIL.ImageDraw
import tensorflow as tf

from datasets import images
from datasets.kinds import classification
from datasets.models import cnn
from datasets.options import DataOptions
from datasets.partition import splits
from datasets.readers import files, sqlite_clients
from motley_tff.core import errors, random_streams, task as task_lib
from motley_tff.core.errors import UserError

SIDE = 84
_DEFAULT_ATTRIBUTE = "smiling"
_SPLIT_NAME = "split_by_examples_train"
_SQLITE, _KERAS_DIR = "celeba.sqlite", "~/.keras/datasets"
_ADVICE = "have TFF fetch it (tff.simulation.datasets.celeba.load_data)"
_MODEL = (32, 32, 32, 32, 64)

_NUM_PEOPLE, _FEWEST, _MOST = 60, 10, 30
_NOISE = 12.0
# How far the corners of a mouth are up, smiling or not, in pixels.
_GROUPS: Mapping[str, tuple[int, int]] = {"broad": (9, 0), "slight": (3, -3), "grave": (-2, -9)}


class Faces(NamedTuple):
    """Synthetic people: `{id: {pixels, label}}`, and the planted group of each."""

    examples: dict[str, dict[str, np.ndarray]]
    groups: dict[str, str]


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on what is found: synthetic faces or TFF's SQLite; UserError says what to
    put where, or that the attribute is unknown.
    """
    attribute = options.label_column or _DEFAULT_ATTRIBUTE
    known = [_DEFAULT_ATTRIBUTE] if options.use_synthetic_data else attributes()
    if attribute not in known:
        raise UserError(errors.name("label_column"), attribute, f"one of {', '.join(known)}")
    if options.use_synthetic_data:
        faces = synthesize(options.seed)
        facts = {"source": "synthetic", "client_groups": faces.groups}
        sizes = {i: len(examples["label"]) for i, examples in faces.examples.items()}
        return create_task_from_data(sizes, faces.examples, attribute, facts, options)
    path = files.require(
        options, [_SQLITE, f"celeba/{_SQLITE}"], f"{_SQLITE} of TFF", _ADVICE, _KERAS_DIR
    )
    with errors.at(path):
        source = sqlite_clients.open_split(path, _SPLIT_NAME)
    fields = {
        "image": tf.io.FixedLenFeature([SIDE, SIDE, 3], tf.int64),
        attribute: tf.io.FixedLenFeature([], tf.int64),
    }

    def load(client_id: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(source.load_serialized(client_id), fields)
        pixels = tf.cast(parsed["image"], tf.uint8)
        return {"pixels": pixels, "label": tf.cast(parsed[attribute] > 0, tf.int32)}

    facts = {"source": "sqlite", "files": [str(path)], "split_name": _SPLIT_NAME}
    with errors.at(path):
        return create_task_from_data(source.sizes, load, attribute, facts, options)


def attributes() -> list[str]:
    """Returns the attributes' names in TFF's file."""
    # Only here: synthetic faces should not wait for this import.
    from tensorflow_federated.python.simulation.datasets import celeba as tff_celeba

    return tff_celeba.ATTRIBUTE_NAMES


def create_task_from_data(
    sizes: Mapping[str, int],
    source: splits.Source,
    attribute: str = _DEFAULT_ATTRIBUTE,
    facts: Mapping[str, Any] | None = None,
    options: DataOptions | None = None,
) -> task_lib.Task:
    """Returns the task on celebrities of so many pictures, `pixels` uint8 [n, 84, 84, 3] and
    `label` int32 [n]; `options` may name who validates and tests. UserError if there are too few.
    """
    split = splits.published_or_proportional(sizes, options=options, facts=facts)
    clients = splits.make_clients(
        split, dict.fromkeys(splits.SPLITS, source), expected=f"image [84, 84, 3] and {attribute}"
    )
    architecture = functools.partial(cnn.Cnn, side=SIDE, sizes=_MODEL)
    return task_lib.Task(
        dataset="celeba",
        setting="cross_device",
        model=classification.image_model(architecture, 2, (SIDE, SIDE, 3)),
        preprocess=images.preprocess,
        facts={
            **(facts or {}), "num_classes": 2, "attribute": attribute,
            "clients_left_out": split.left_out,
        },
        **classification.fields((f"not {attribute}", attribute), clients),
    )  # fmt: skip


def synthesize(seed: int) -> Faces:
    """Returns drawn people, who smile in half of their pictures, each in their group's way."""
    examples, groups = {}, {}
    for number in range(_NUM_PEOPLE):
        rng = random_streams.generator(seed, "synthetic_data", number)
        person = f"person_{number:03d}"
        groups[person] = tuple(_GROUPS)[int(rng.integers(len(_GROUPS)))]
        labels = rng.integers(0, 2, int(rng.integers(_FEWEST, _MOST + 1))).astype(np.int32)
        skin, hair, ground = (rng.integers(low, high, 3) for low, high in _COLOURS)
        drawn = [
            _draw(rng, (skin, hair, ground), _GROUPS[groups[person]][0 if label else 1])
            for label in labels
        ]
        examples[person] = {"pixels": np.stack(drawn), "label": labels}
    return Faces(examples, groups)


# Of skin, hair and background: the least and the most of red, green and blue.
_COLOURS = ((120, 230), (10, 120), (60, 256))


def _draw(rng: np.random.Generator, colours: tuple[np.ndarray, ...], rise: int) -> np.ndarray:
    """Returns a face uint8 [84, 84, 3] whose mouth's corners are so many pixels up."""
    skin, hair, ground = (tuple(int(part) for part in colour) for colour in colours)
    picture = PIL.Image.new("RGB", (SIDE, SIDE), ground)
    pen = PIL.ImageDraw.Draw(picture)
    x, y = (SIDE // 2 + int(shift) for shift in rng.integers(-5, 6, 2))
    pen.ellipse((x - 28, y - 36, x + 28, y + 30), fill=hair)
    pen.ellipse((x - 23, y - 27, x + 23, y + 33), fill=skin)
    for side in (-1, 1):
        pen.ellipse((x + side * 9 - 3, y - 9, x + side * 9 + 3, y - 4), fill=(20, 20, 30))
    rise += int(rng.integers(-1, 2))
    steps = np.linspace(-1, 1, 9)
    mouth = [(x + 11 * float(s), y + 16 + rise / 2 - rise * float(s * s)) for s in steps]
    pen.line(mouth, fill=(150, 30, 40), width=3)
    noisy = np.asarray(picture) + rng.normal(0, _NOISE, (SIDE, SIDE, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)
