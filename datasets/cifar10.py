"""CIFAR-10: small pictures of ten classes, dealt to silos or devices by their labels.

Card
  Source: the official binary archive, `cifar-10-batches-bin`; or a folder of pictures,
    `train/<class>/<file>` and, if it is there, `test/<class>/<file>`. Or synthetic pictures.
  Licence: none is stated; see https://www.cs.toronto.edu/~kriz/cifar.html.
  Clients: none of its own: `--partition` deals the pictures, training and test ones together, to
    `--num_clients`, 10 silos or 100 devices if nothing is said. Synthetic: 3,000 pictures.
  Fields: `pixels` uint8 [32, 32, 3]; `label` int32, 0 to 9.
  Model: LeNet, 62,006 weights, no augmentation; accuracy.
  Split: of silos 70% train, 15% validate, 15% test, or as `--val_split` and `--test_split` say
    (Divi et al.: 0.2 and 0.2); devices as writers of EMNIST.
  Citation: Krizhevsky 2009, "Learning multiple layers of features from tiny images"; as clients:
    Divi et al. 2021, "New Metrics to Evaluate the Performance and Fairness of Personalized
    Federated Learning" (https://arxiv.org/abs/2107.13173).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from datasets import images, packages
from datasets.kinds import classification
from datasets.models import lenet
from datasets.options import DataOptions
from datasets.partition import dealing
from datasets.readers import files
from motley_tff.core import errors, random_streams, task as task_lib
from motley_tff.core.errors import UserError

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_SIDE, _CHANNELS = 32, 3
_FOLDER = "cifar-10-batches-bin"
_BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
# Of each batch: a byte of label, then planes of red, green and blue.
_RECORDS, _RECORD_BYTES = 10_000, 1 + _SIDE * _SIDE * _CHANNELS
_NUM_CLIENTS = {"cross_silo": 10, "cross_device": 100}
_SYNTHETIC_PICTURES = 3_000
_DATA_DIR = errors.name("data_dir")
_EXPECTED = (
    f"a folder that has the official binary archive's {_FOLDER} (184 MB), or folders train/<class> "
    "and test/<class>"
)
_ADVICE = f"give {_DATA_DIR} or {errors.name('use_synthetic_data')}"
_OTHERS = f"give them to {errors.name('dataset_name')}=images"


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on what is found in a data folder, or on synthetic pictures; UserError says
    what to put where.
    """
    if options.use_synthetic_data:
        pixels, labels = synthesize(options.seed)
        return create_task_from_data(pixels, labels, options, {"source": "synthetic"})
    if options.data_file is not None:
        raise UserError(errors.name("data_file"), options.data_file, _EXPECTED, _ADVICE)
    if options.data_dir is None:
        raise UserError("cifar10", "no folder", _EXPECTED, _ADVICE)
    folder = files.existing("data_dir", options.data_dir, "a folder")
    folder = next((f for f in (folder, folder / "cifar10") if _is_there(f)), folder)
    batches = folder if _has_batches(folder) else folder / _FOLDER
    if batches.is_dir():
        pixels, labels = read_batches(batches)
        facts = {"source": "binary", "files": [str(batches / name) for name in _BATCHES]}
        return create_task_from_data(pixels, labels, options, facts)
    if (folder / "train").is_dir():
        pixels, labels, names = read_folder(folder)
        parts = [str(folder / part) for part in _parts(folder)]
        facts = {"source": "folder", "files": parts}
        return create_task_from_data(pixels, labels, options, facts, names)
    raise UserError(str(folder), _found(folder), _EXPECTED, _ADVICE)


def create_task_from_data(
    pixels: np.ndarray,
    labels: np.ndarray,
    options: DataOptions,
    facts: Mapping[str, Any] | None = None,
    names: tuple[str, ...] = CLASSES,
) -> task_lib.Task:
    """Returns the task on pictures in memory, dealt as options say.

    Args:
      pixels: uint8 [n, 32, 32, 3].
      labels: int32 [n], 0 to the number of names, exclusive.

    Raises:
      UserError: If clients would be too few or too small.
    """
    setting = packages.setting("cifar10", options.setting)
    num_clients = options.num_clients or _NUM_CLIENTS[setting]
    dealt = dealing.deal({"pixels": pixels, "label": labels}, "label", options, num_clients, names)
    return classification.image_task(
        classification.image_model(lenet.LeNet, len(names), (_SIDE, _SIDE, _CHANNELS)),
        len(names),
        dealt.clients,
        {**(facts or {}), **dealt.facts, "pictures": len(labels)},
        dataset="cifar10",
        setting=setting,
        preprocess=preprocess,
        label_names=names,
    )


def preprocess(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (pictures float32 [batch, 32, 32, 3] in -1..1, labels int32 [batch])."""
    del training, key  # no augmentation
    return tf.cast(examples["pixels"], tf.float32) / 127.5 - 1.0, examples["label"]


def read_batches(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns (pixels uint8 [60000, 32, 32, 3], labels int32 [60000]) of the official binary files;
    UserError if one is missing, has another length, or another label than 0 to 9.
    """
    missing = [name for name in _BATCHES if not (folder / name).is_file()]
    if missing:
        advice = "unpack the whole archive again"
        raise UserError(str(folder), f"no {', '.join(missing)}", advice=advice)
    records = np.concatenate([_read_batch(folder / name) for name in _BATCHES])
    planes = records[:, 1:].reshape(-1, _CHANNELS, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 0].astype(np.int32)


def _read_batch(path: Path) -> np.ndarray:
    expected = _RECORDS * _RECORD_BYTES
    if (size := path.stat().st_size) != expected:
        raise UserError(str(path), f"{size:,} bytes", f"{expected:,}", "unpack it again")
    records = np.fromfile(path, np.uint8).reshape(_RECORDS, _RECORD_BYTES)
    if (label := records[:, 0].max()) >= len(CLASSES):
        problem = f"label {label} in record {int(records[:, 0].argmax())}"
        labels = f"CIFAR-10's, 0 to {len(CLASSES) - 1}; CIFAR-100's have two labels"
        raise UserError(str(path), problem, labels)
    return records


def read_folder(folder: Path) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Returns (pixels uint8 [n, 32, 32, 3], labels int32 [n], classes' names) of `train/<class>/*`
    and `test/<class>/*`; UserError if pictures are not of 32x32 pixels, all are grey, or classes
    differ or have none.
    """
    parts = _parts(folder)
    layout = "train/<class>/<file> and test/<class>/<file>"
    pictures = images.read_folder(folder, parts, layout, _OTHERS)
    shape = pictures.pixels.shape[1:]
    if shape != (_SIDE, _SIDE, _CHANNELS):
        colours = "grey" if shape[2] == 1 else "in colour"
        sizes = f"pictures of {shape[1]}x{shape[0]} pixels, {colours}"
        raise UserError(str(folder), sizes, f"{_SIDE}x{_SIDE} in colour", _OTHERS)
    of_part = {part: set(pictures.labels[pictures.client_ids == part]) for part in parts}
    for part, labels in of_part.items():
        classes = {p.name for p in (folder / part).iterdir() if p.is_dir() and p.name[0] != "."}
        if empty := classes - labels:
            place = str(folder / part / min(empty))
            raise UserError(place, "no pictures", "some", "remove the folder or put some there")
    names = tuple(sorted(of_part["train"]))
    for part, labels in of_part.items():
        if odd := labels ^ set(names):
            other = f"class {min(odd)!r} in one of train and {part} alone"
            raise UserError(str(folder), other, "folders of the same names in both")
    if len(names) < 2:
        raise UserError(str(folder), f"one class, {names[0]!r}", "two classes or more")
    return pictures.pixels, np.searchsorted(names, pictures.labels).astype(np.int32), names


def _parts(folder: Path) -> list[str]:
    return [name for name in ("train", "test") if (folder / name).is_dir()]


def _is_there(folder: Path) -> bool:
    return _has_batches(folder) or any((folder / name).is_dir() for name in (_FOLDER, "train"))


def _has_batches(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _BATCHES)


def _found(folder: Path) -> str:
    names = sorted(p.name for p in folder.iterdir())
    if any("batches-py" in name or name.startswith("data_batch") for name in names):
        return "the archive for Python, which is pickled and never read here"
    return ", ".join(names[:5]) or "nothing in it"


def synthesize(seed: int, num_pictures: int = _SYNTHETIC_PICTURES) -> tuple[np.ndarray, np.ndarray]:
    """Returns (pixels uint8 [n, 32, 32, 3], labels int32 [n]): each class a pattern of colours that
    is shifted, dimmed and blurred by noise; as many of each as of the others.
    """
    stream = random_streams.generator(seed, "synthetic_data", 0)
    coarse = stream.normal(size=(len(CLASSES), 8, 8, _CHANNELS))
    patterns = coarse.repeat(4, axis=1).repeat(4, axis=2)
    labels = np.arange(num_pictures, dtype=np.int32) % len(CLASSES)
    pixels = np.empty((num_pictures, _SIDE, _SIDE, _CHANNELS), np.uint8)
    for i, label in enumerate(labels):
        shifted = np.roll(patterns[label], stream.integers(-4, 5, size=2), axis=(0, 1))
        noise = stream.normal(size=shifted.shape)
        levels = 128 + stream.uniform(20, 50) * shifted + 40 * noise
        pixels[i] = np.clip(levels, 0, 255)
    order = stream.permutation(num_pictures)
    return pixels[order], labels[order]
