"""EMNIST: handwritten characters by writer; a cross-device task.

Card
  Source: TFF's `emnist` (LEAF's federated form of Extended MNIST, from NIST Special Database 19),
    `emnist_all.sqlite`; only each writer's training part is used, as Motley does. Or an `.npz` by
    writer, or LEAF's JSON, a file or a folder. Or synthetic writers (`datasets.synthetic.writers`).
  Licence: EMNIST as processed by LEAF: BSD-2-Clause. An `.npz` or fonts: their own.
  Clients: 3,400 writers; 671,585 examples; 198 +- 77 a writer, from 16 to 418.
    Synthetic: 150 writers; 98 +- 33 examples a writer, from 16 to 209.
  Fields: `pixels` [28, 28], background 1.0, ink 0.0 (float32 from SQLite; uint8 with 255 for 1.0
    otherwise); `label` int32: 0-9 digits, 10-35 capitals, 36-61 small letters.
  Model: the CNN of Reddi et al. 2020, 1,206,590 weights for 62 classes, or --model=lenet,
    FedEval's; accuracy.
  Groups: synthetic writers have a style; writers of an `.npz` what its array `--group_key` says.
  Split: writers permuted with seed 13; 400 valid, 500 test, 2,500 train (other populations: 12%,
    15%, the rest). A valid or test writer's examples are shuffled with seed 13; the first half
    personalizes, the rest evaluates. A writer with one example cannot be halved and is left out of
    those splits, named in the task's facts.
  Citation: Cohen et al. 2017, "EMNIST: an extension of MNIST to handwritten letters"
    (https://arxiv.org/abs/1702.05373); Caldas et al. 2018, "LEAF: A Benchmark for Federated
    Settings" (https://arxiv.org/abs/1812.01097).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.kinds import classification
from datasets.models import choice, emnist_cnn, lenet
from datasets.options import DataOptions
from datasets.partition import assignment, splits
from datasets.readers import files, leaf_files, sqlite_clients
from datasets.synthetic import writers as synthetic_writers
from motley_tff.core import clients as clients_lib, errors, task as task_lib
from motley_tff.core.errors import UserError

_URL = "https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma"
# Of the packed file, 170,507,172 bytes, as others measured it in 2026.
_SHA256 = "c3aaf91b4cf4e69d53d81627ad119eccdc878ff906f68e66063ff10f67faad48"
_SQLITE = "emnist_all.sqlite"
_FOLDERS = ("", "emnist")
# What TFF uses when it is given no cache folder.
_DEFAULT_DIR = "~/.tff"
_ADVICE = (
    f"put {_SQLITE} (that file of 170 MB unpacked, 4.7 GB) there, or an .npz by writer (images, "
    "labels, writer_id), or LEAF's .json"
)
_GROUP_KEY = errors.name("group_key")

# Writers; those that validate, and test.
PUBLISHED = (3400, 400, 500)
NUM_CLASSES, _NUM_DIGITS = 62, 10
_LEAF_FIELDS = ("images", "labels")
_OPTIONS = DataOptions("emnist")
_Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]

_MODELS: Mapping[str, choice.Architecture] = {
    "cnn": choice.Architecture(lambda facts, sizes: emnist_cnn.EmnistCnn(facts.num_outputs)),
    "lenet": choice.Architecture(lambda facts, sizes: lenet.LeNet(facts.num_outputs)),
}

synthesize = synthetic_writers.write


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on what is found: synthetic, a named file, SQLite (by default in TFF's
    cache), one `.npz`, a download. UserError says what to put where.
    """
    path = None if options.use_synthetic_data else _find(options)
    if options.group_key is not None and (path is None or path.suffix != ".npz"):
        expected = f"an .npz by writer, not {path or 'synthetic writers'}"
        raise UserError(_GROUP_KEY, options.group_key, expected, "leave it out")
    if path is None:
        characters = synthetic_writers.CHARACTERS[: _NUM_DIGITS if options.only_digits else None]
        writing = synthesize(options.seed, characters=characters)
        facts = {"source": "synthetic", "client_groups": writing.groups}
        return create_task_from_data(
            writing.images, writing.labels, writing.writer_ids, facts, options
        )
    if path.suffix == ".sqlite":
        return _create_sqlite_task(path, options)
    if path.suffix == ".npz":
        arrays, facts = _read_npz(path, options.group_key)
    elif leaf_files.is_leaf(path):
        arrays, facts = read_leaf(path, NUM_CLASSES), leaf_files.facts(path)
    else:
        raise UserError(str(path), expected="an EMNIST file that ends in .sqlite, .npz or .json")
    kept = arrays[1] < (_NUM_DIGITS if options.only_digits else np.inf)
    images, labels, writer_ids = (array[kept] for array in arrays)
    with errors.at(path):
        # The files have ink on 0; EMNIST's background is 1.0.
        return create_task_from_data(255 - images, labels, writer_ids, facts, options)


def create_task_from_data(
    images: np.ndarray,
    labels: np.ndarray,
    writer_ids: np.ndarray,
    facts: Mapping[str, Any] | None = None,
    options: DataOptions = _OPTIONS,
) -> task_lib.Task:
    """Returns the task on images in memory.

    Args:
      images: uint8 [n, 28, 28], 255 = background.
      labels: Integers [n]; 0 to 9 alone make a model of 10 classes, others up to 61 one of 62.
      writer_ids: Integers or strings [n]; clients are in their sorted order.
      options: Have the model.

    Raises:
      UserError: If there are too few writers, or other labels.
    """
    check_labels(labels, NUM_CLASSES)
    num_classes = _NUM_DIGITS if labels.max() < _NUM_DIGITS else NUM_CLASSES
    rows = assignment.by_owner(writer_ids)
    sizes = {writer: len(of_writer) for writer, of_writer in rows.items()}
    examples = {"pixels": images, "label": labels.astype(np.int32)}
    writers = {i: {name: array[r] for name, array in examples.items()} for i, r in rows.items()}
    return _split_task(sizes, writers, num_classes, facts or {}, options)


def check_labels(labels: np.ndarray, num_classes: int) -> None:
    """Raises UserError unless there are labels, each from 0 to the number of classes, exclusive."""
    if len(labels) == 0 or labels.min() < 0 or labels.max() >= num_classes:
        label_range = f"{labels.min()} to {labels.max()}" if len(labels) else "none"
        raise UserError("labels", label_range, f"0 to {num_classes - 1}")


def preprocess(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (images float32 [batch, 28, 28, 1] in [0, 1], labels int32 [batch])."""
    del training, key  # no augmentation
    pixels = examples["pixels"]
    if pixels.dtype == tf.uint8:
        pixels = tf.cast(pixels, tf.float32) / 255.0
    return pixels[..., tf.newaxis], examples["label"]


def make_task(
    clients: Mapping[str, clients_lib.Clients],
    num_classes: int,
    facts: Mapping[str, Any],
    options: DataOptions = _OPTIONS,
) -> task_lib.Task:
    """Returns the task on clients of each split, with the options' model."""
    model_facts = choice.ModelFacts(num_classes, (28, 28, 1))
    return classification.image_task(
        choice.build(options, _MODELS, model_facts, np.zeros((1, 28, 28, 1), np.float32)),
        num_classes,
        clients,
        facts,
        dataset="emnist",
        preprocess=preprocess,
        label_names=synthetic_writers.CHARACTERS,
    )


def _split_task(
    sizes: Mapping[str, int],
    source: splits.Source,
    num_classes: int,
    facts: Mapping[str, Any],
    options: DataOptions,
) -> task_lib.Task:
    split = splits.published_or_proportional(sizes, PUBLISHED, options, facts)
    clients = splits.make_clients(
        split, dict.fromkeys(splits.SPLITS, source), expected="pixels [28, 28] and label"
    )
    all_facts = {**facts, "clients_left_out": split.left_out}
    return make_task(clients, num_classes, all_facts, options)


def _find(options: DataOptions) -> Path:
    """Returns the data file, after a download if there is none."""
    path = files.find(options, [os.path.join(f, _SQLITE) for f in _FOLDERS], _DEFAULT_DIR)
    if path is not None:
        return path
    folder = Path(os.path.expanduser(options.data_dir or _DEFAULT_DIR))
    path = files.only_npz(folder, _FOLDERS) or leaf_files.find_in(folder, _FOLDERS)
    if path is not None:
        return path
    with files.or_by_hand("emnist", folder, _ADVICE):
        files.download(_URL, folder / _SQLITE, _SHA256)
    return folder / _SQLITE


def _create_sqlite_task(path: Path, options: DataOptions) -> task_lib.Task:
    split_name = "digits_only_train" if options.only_digits else "all_train"
    with errors.at(path):
        source = sqlite_clients.open_split(path, split_name)
    num_classes = _NUM_DIGITS if options.only_digits else NUM_CLASSES
    facts = {"source": "sqlite", "files": [str(path)], "split_name": split_name}

    fields = {
        "pixels": tf.io.FixedLenFeature([28, 28], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def load(client_id: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(source.load_serialized(client_id), fields)
        labels = parsed["label"]
        least, most = tf.reduce_min(labels), tf.reduce_max(labels)
        message = ["found labels", least, "to", most, f"expected 0 to {num_classes - 1}"]
        check = tf.debugging.Assert((least >= 0) & (most < num_classes), message)
        with tf.control_dependencies([check]):
            return {"pixels": parsed["pixels"], "label": tf.cast(labels, tf.int32)}

    with errors.at(path):
        return _split_task(source.sizes, load, num_classes, facts, options)


def _read_npz(path: Path, group_key: str | None) -> tuple[_Arrays, dict[str, Any]]:
    """Returns a file's images, labels and writers, and the facts of the task."""
    arrays = files.read_npz(path)
    with errors.at(path):
        checked = check_arrays(arrays)
    facts: dict[str, Any] = {"source": "npz", "files": [str(path)]}
    if group_key is not None:
        groups = _groups_of_writers(path, arrays, group_key, checked[2])
        facts |= {"group_key": group_key, "client_groups": groups}
    return checked, facts


def read_leaf(path: Path, num_classes: int) -> _Arrays:
    """Returns what `check_arrays` does of LEAF's JSON: each x 784 numbers, from 0 to 1 or to 255 in
    all of it, on a light background (FEMNIST) or a dark one (MNIST); UserError if it is other.
    """
    largest: list[float] = []

    def convert(x: list[Any], y: list[Any]) -> dict[str, np.ndarray]:
        pixels = leaf_files.table(x, 784, "pixels")
        least, most = pixels.min(), pixels.max()
        if not (least >= 0 and most <= 255):
            raise UserError("", f"pixels from {least:g} to {most:g}", "0 to 1, or to 255")
        if most > 0:
            largest.append(float(most))
        scale = 255 if most <= 1 else 1
        images = np.rint(pixels * scale).astype(np.uint8).reshape(-1, 28, 28)
        return {"images": images, "labels": leaf_files.classes(y, num_classes)}

    users = leaf_files.read(path, convert)
    if largest and min(largest) <= 1 < max(largest):
        problem = "pixels up to 1 and to 255, of different users"
        raise UserError(str(path), problem, "one scale in all files")
    ids = np.repeat(list(users), [len(user["labels"]) for user in users.values()])
    images, labels = (np.concatenate([user[f] for user in users.values()]) for f in _LEAF_FIELDS)
    is_light = np.median(images[:, ::27, ::27]) > 127
    return 255 - images if is_light else images, labels, ids


def _groups_of_writers(
    path: Path, arrays: Mapping[str, np.ndarray], key: str, writer_ids: np.ndarray
) -> dict[str, str]:
    """Returns `{writer: group}`; UserError if the array is missing or gives a writer several."""
    if key not in arrays:
        raise UserError(_GROUP_KEY, key, f"one of {list(arrays)}, the arrays of {path}")
    groups = arrays[key]
    if groups.shape != writer_ids.shape or groups.dtype.kind not in "iubU":
        kind = f"{groups.dtype} {list(groups.shape)} as in {path}"
        raise UserError(_GROUP_KEY, key, f"integers or text [{len(writer_ids)}], not {kind}")
    writers, rows, which = np.unique(writer_ids, return_index=True, return_inverse=True)
    differs = np.flatnonzero(groups != groups[rows][which])
    if len(differs):
        writer = writer_ids[differs[0]]
        several = sorted(map(str, set(groups[writer_ids == writer].tolist())))
        groups_of = f"{len(several)} ({', '.join(several[:3])}) of writer {writer} in {path}"
        expected = f"one group for each writer, not {groups_of}"
        raise UserError(_GROUP_KEY, key, expected, "name another array")
    return {str(writer): str(groups[row]) for writer, row in zip(writers, rows, strict=True)}


def check_arrays(arrays: Mapping[str, np.ndarray]) -> _Arrays:
    """Returns (images uint8 [n, 28, 28] with 0 = background, labels [n], writer_id [n]) of a file;
    UserError if they are others.
    """
    images, labels, writer_ids = files.required(arrays, "images", "labels", "writer_id")
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28) or images.ndim != 3:
        raise files.other_array("images", images, "uint8 [n, 28, 28] with 0 = background")
    for name, array, kinds in (("labels", labels, "iu"), ("writer_id", writer_ids, "iuU")):
        if array.dtype.kind not in kinds or array.shape != images.shape[:1]:
            kind = "integers" if name == "labels" else "integers or text"
            raise files.other_array(name, array, f"{kind} [{len(images)}] as there are images")
    corners = images[:, ::27, ::27]
    if corners.size and np.median(corners) > 200:
        corner = f"{np.median(corners):g} in the images' corners"
        raise UserError("", corner, "0 = background", "invert the images")
    return images, labels, writer_ids
