"""Landmarks: photographs of sights by photographer; a cross-device task.

Card
  Source: TFF's `gldv2`, Google Landmarks v2 by Wikimedia contributor in the split of Hsu et al.:
    `gld160k/train/<photographer>`, or with `--gld23k` the small `gld23k/train/<photographer>`, one
    TFRecord file each, as `tff.simulation.datasets.gldv2` leaves them in its cache. Or synthetic
    photographers (`datasets.synthetic.photographers`).
  Licence: annotations CC BY 4.0; every image has its photographer's own.
  Clients: 1,262 photographers; 164,172 images; 130 +- 199 a photographer, at most 3,500.
    gld23k: 233 photographers; 23,080 images. Synthetic: 48 photographers, 14 +- 6 images each,
    from 6 to 36.
  Fields: `image` string, an encoded JPEG of any size (`image/encoded_jpeg` on disk); `label` int32
    from 0 to 2,027 (gld23k: 202; `class`, int64, on disk).
  Model: MobileNetV2 with GroupNorm on 128x128 images, 4,821,740 weights for 2,028 classes;
    accuracy. Training batches, also fine-tuning's, are cropped, mirrored and recoloured at random;
    evaluation sees the centre (`datasets.readers.inception_preprocessing`).
  Split: photographers permuted with seed 13; 50 valid, 100 test, 1,112 train (other populations:
    12%, 15%, the rest). A valid or test photographer's images are shuffled with seed 13; the first
    half personalizes, the rest evaluates. A photographer trains on at most 64 images a round,
    drawn anew in every epoch, as the published code shuffles, then takes 64, then repeats; no
    half is limited there either.
  Left out, and counted in the task's facts: images that do not decode or have a label outside the
    range; photographers without any, and valid or test ones with a single one. Up to 256 MB of
    files are decoded once at the start to know. Of more, only records are counted then, and images
    left out are reported on stderr when their photographer is loaded: to evaluate, all are decoded;
    to train, only headers are read, so that nobody's 3,500 images are decoded for 64, and one that
    is broken further on ends the run when it is drawn.
  Citation: Weyand et al. 2020, "Google Landmarks Dataset v2" (https://arxiv.org/abs/2004.01804);
    Hsu, Qi, Brown 2020, "Federated Visual Classification with Real-World Data Distribution"
    (https://arxiv.org/abs/2003.08082).
"""

import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from datasets.kinds import classification
from datasets.models import mobilenet_v2
from datasets.options import DataOptions
from datasets.partition import splits
from datasets.readers import files, inception_preprocessing, tfrecord_clients
from datasets.synthetic import photographers as synthetic_photographers
from motley_tff.core import clients as clients_lib, errors, task as task_lib
from motley_tff.core.errors import UserError

IMAGE_SIZE = 128
MAX_TRAIN_EXAMPLES = 64

_FOLDERS = ("", "landmark", "gldv2")
# What TFF uses when it is given no cache folder.
_DEFAULT_DIR = "cache"
# Photographers; those that validate, and test.
PUBLISHED = (1262, 50, 100)
# About ten seconds of reading and decoding.
_MAX_BYTES_DECODED_AT_START = 2**28
# A broken header may claim any size; TensorFlow refuses images of more than 2**29 bytes.
_MAX_PIXELS = 2**26


class Variant(NamedTuple):
    """One of TFF's two forms of the data set: its folder, number of labels, and size on disk."""

    folder: str
    num_classes: int
    size: str


_VARIANTS = {False: Variant("gld160k", 2028, "20 GB"), True: Variant("gld23k", 203, "3 GB")}


class _Left(NamedTuple):
    """How many images can be used, `{client id: number}`, or not: `{reason: {client: number}}`."""

    sizes: dict[str, int]
    reasons: dict[str, dict[str, int]]


synthesize = synthetic_photographers.take_photos


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on TFF's files, by default in its cache folder, or on synthetic
    photographers; downloads nothing. UserError says what to put where.
    """
    variant = _VARIANTS[options.gld23k]
    if options.use_synthetic_data:
        album = synthesize(options.seed, num_classes=variant.num_classes)
        facts = {"source": "synthetic", "client_groups": album.groups}
        return create_task_from_data(album.photos, variant.num_classes, facts, options)
    return _create_tfrecord_task(_find(options), variant, options)


def create_task_from_data(
    photos: Mapping[str, Mapping[str, np.ndarray]],
    num_classes: int = 2028,
    facts: Mapping[str, Any] | None = None,
    options: DataOptions | None = None,
) -> task_lib.Task:
    """Returns the task on encoded images in memory, `{photographer: {"image": object [n]; "label":
    integers [n], 0 to num_classes, exclusive}}`; `options` may name who validates and tests.
    UserError if too few photographers have images that can be used.
    """
    usable, left = {}, _Left({}, {})
    for client_id, examples in photos.items():
        images = np.asarray(examples["image"], object)
        labels = np.asarray(examples["label"])
        rows = _note_usable(left, client_id, images, labels, num_classes)
        usable[client_id] = {"image": images[rows], "label": labels[rows].astype(np.int32)}
    all_facts = {**(facts or {}), "images_left_out": left.reasons}
    split = splits.published_or_proportional(left.sizes, PUBLISHED, options, facts)
    clients = splits.make_clients(split, dict.fromkeys(splits.SPLITS, usable))
    return _task(num_classes, split, clients, all_facts)


def preprocess(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (images float32 [batch, 128, 128, 3] in [-1, 1], labels int32 [batch]).

    Images are decoded here, a batch at a time, so that a client's memory is that of its files.
    """
    if training:
        x = inception_preprocessing.for_training(examples["image"], IMAGE_SIZE, key)
    else:
        x = inception_preprocessing.for_evaluation(examples["image"], IMAGE_SIZE)
    return x, examples["label"]


def _task(
    num_classes: int,
    split: splits.ClientSplit,
    clients: Mapping[str, clients_lib.Clients],
    facts: Mapping[str, Any],
) -> task_lib.Task:
    limits = {"max_train_examples": MAX_TRAIN_EXAMPLES}
    return classification.image_task(
        classification.image_model(
            mobilenet_v2.MobileNetV2, num_classes, (IMAGE_SIZE, IMAGE_SIZE, 3)
        ),
        num_classes,
        clients,
        {**facts, **limits, "clients_left_out": split.left_out},
        dataset="landmark",
        preprocess=preprocess,
        **limits,
    )


def _find(options: DataOptions) -> Path:
    """Returns the folder of the photographers' files."""
    if options.data_file is not None:
        expected = f"a folder with a file for each photographer, as {errors.name('data_dir')}"
        raise UserError(errors.name("data_file"), options.data_file, expected)
    if options.data_dir is not None:
        files.existing("data_dir", options.data_dir, "a folder")
    base = Path(os.path.expanduser(options.data_dir or _DEFAULT_DIR))
    variant, other = _VARIANTS[options.gld23k], _VARIANTS[not options.gld23k]
    folders, others = (
        [f for name in _FOLDERS if (f := base / name / v.folder / "train").is_dir()]
        for v in (variant, other)
    )
    if folders:
        return folders[0]
    switch = f"{'leave out' if options.gld23k else 'give'} {errors.name('gld23k')}"
    hint = f"{switch}, as there is {other.folder}/train, or " if others else ""
    advice = (
        f"{hint}put there what tff.simulation.datasets.gldv2.load_data(cache_dir=...) makes (about "
        f"{variant.size}, from a download of 500 GB), or give {errors.name('data_dir')} or "
        f"{errors.name('use_synthetic_data')}"
    )
    raise UserError("landmark", f"no folder {variant.folder}/train in {base}", advice=advice)


def _create_tfrecord_task(folder: Path, variant: Variant, options: DataOptions) -> task_lib.Task:
    source = tfrecord_clients.open_folder(folder)
    if not source.sizes:
        raise UserError(str(folder), "no files", "one for each photographer")
    is_small = source.num_bytes <= _MAX_BYTES_DECODED_AT_START
    left = _decode_all(folder, source, variant.num_classes) if is_small else None
    sizes = left.sizes if left else source.sizes
    split = splits.published_or_proportional(sizes, PUBLISHED, options)
    load = functools.partial(_load_usable, source, variant.num_classes, reports=left is None)
    # At the start every image of few was decoded; here the headers of many have to do.
    train = functools.partial(load, is_readable=_decodes if left else _has_header)
    clients = splits.make_clients(split, {"train": train, "valid": load, "test": load})
    clients["train"].fetch(split.train[0])
    facts = {
        "source": "tfrecord",
        "files": [str(folder)],
        "files_ignored": source.ignored,
        "num_records": sum(source.sizes.values()),
        "images_checked": "at the start" if left else "when loaded, with a line on stderr",
        "images_left_out": left.reasons if left else None,
    }
    return _task(variant.num_classes, split, clients, facts)


def _decode_all(folder: Path, source: tfrecord_clients.RecordFolder, num_classes: int) -> _Left:
    """Decodes every image once."""
    left = _Left({}, {})
    for client_id, n in source.sizes.items():
        if not n:
            left.sizes[client_id] = 0
            continue
        try:
            images, labels = (t.numpy() for t in _load(source, tf.constant(client_id)))
        except (tf.errors.OpError, UnicodeDecodeError) as error:  # Its own line holds the bytes.
            problem = f"what cannot be read ({clients_lib.reason(error)})"
            raise UserError(str(folder / client_id), problem, "TFRecords of images") from error
        _note_usable(left, client_id, images, labels, num_classes)
    return left


def _note_usable(
    left: _Left, client_id: str, images: np.ndarray, labels: np.ndarray, num_classes: int
) -> np.ndarray:
    """Adds a client to what was found; returns which of its images can be used, int64 [m]."""
    rows = _readable_rows_once_traced(tf.constant(images, tf.string)).numpy()
    is_usable = (labels[rows] >= 0) & (labels[rows] < num_classes)
    left.sizes[client_id] = int(is_usable.sum())
    counts = {
        "images that do not decode": len(labels) - len(rows),
        "images with a label outside the range": int((~is_usable).sum()),
    }
    for reason, count in counts.items():
        if count:
            left.reasons.setdefault(reason, {})[client_id] = count
    return rows[is_usable]


def _load(
    source: tfrecord_clients.RecordFolder, client_id: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a client's encoded images and their labels, int64; missing ones as TFF has them."""
    features = {
        "image/encoded_jpeg": tf.io.FixedLenFeature([], tf.string, default_value=""),
        "class": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
    }
    parsed = tf.io.parse_example(source.load_serialized(client_id), features)
    return parsed["image/encoded_jpeg"], parsed["class"]


def _load_usable(
    source: tfrecord_clients.RecordFolder,
    num_classes: int,
    client_id: tf.Tensor,
    is_readable: Callable[[tf.Tensor], tf.Tensor] | None = None,
    reports: bool = False,
) -> dict[str, tf.Tensor]:
    """Returns a client's usable examples from its id, inside a graph. With `reports` stderr says
    how many are left out, and it fails if all are.
    """
    images, labels = _load(source, client_id)
    rows = _readable_rows(images, is_readable or _decodes)
    is_known = (labels >= 0) & (labels < num_classes)
    rows = tf.boolean_mask(rows, tf.gather(is_known, rows))
    if reports:
        rows = _report(client_id, tf.size(labels, tf.int64), rows)
    return {"image": tf.gather(images, rows), "label": tf.cast(tf.gather(labels, rows), tf.int32)}


def _report(client_id: tf.Tensor, n: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns `rows`; says so if they are not all, fails if they are none."""
    num_usable = tf.shape(rows, tf.int64)[0]

    def say() -> tf.Tensor:
        line = tf.print(
            "landmark: client", client_id, "has", n, "images, of which", n - num_usable,
            "are left out: they do not decode or have a label outside the range",
            output_stream=sys.stderr,
        )  # fmt: skip
        some = tf.debugging.Assert(num_usable > 0, ["none of its images can be used"])
        # Graphs that TFF traces run nothing for its side effects alone.
        with tf.control_dependencies([line, some]):
            return tf.identity(rows)

    return tf.cond(num_usable < n, say, lambda: rows)


def _decodes(image: tf.Tensor) -> tf.Tensor:
    """Returns whether an encoded image is not too large; fails if it does not decode.

    At an eighth of its size, which fails for the same files and takes less time.
    """
    pixels = inception_preprocessing.decode(image, ratio=8)
    return tf.size(pixels) <= _MAX_PIXELS * 3 // 8**2


def _has_header(image: tf.Tensor) -> tf.Tensor:
    """Returns whether an encoded image is not too large; fails if its header cannot be read."""
    shape = tf.io.extract_jpeg_shape(image, tf.int64)
    return tf.reduce_prod(shape[:2]) <= _MAX_PIXELS


def _readable_rows(
    images: tf.Tensor, is_readable: Callable[[tf.Tensor], tf.Tensor] = _decodes
) -> tf.Tensor:
    """Returns which of encoded images [n] are readable, int64 [m]; `is_readable` judges, or fails.

    `tf.data` is the one place in a graph where a decoder's error can be caught.
    """
    count = tf.size(images, tf.int64)
    rows = tf.data.Dataset.range(count).map(lambda row: (row, is_readable(images[row])))
    rows = rows.ignore_errors().filter(lambda row, is_good: is_good)
    # An empty data set has no single element: a last row that is none makes sure of one.
    end = tf.data.Dataset.from_tensors((tf.constant(-1, tf.int64), tf.constant(True)))
    return rows.concatenate(end).batch(count + 1).get_single_element()[0][:-1]


_readable_rows_once_traced = tf.function(
    _readable_rows, input_signature=[tf.TensorSpec([None], tf.string)]
)
