"""Your pictures: a folder `<client>/<label>/<file>` or an `.npz`; devices or silos.

Card
  Source: --data_dir, a folder of clients' folders of labels' folders of PNG, JPEG, BMP, GIF, TIFF,
    PPM or WebP pictures (what begins with a dot, Thumbs.db and desktop.ini are left out); or
    --data_file, an `.npz` with `images` uint8 [n, height, width] or [n, height, width, channels],
    `labels` and `client_id`, integers or text [n], and optionally `group`, a known group of each
    client. Or synthetic writers of digits.
  Licence: your own.
  Clients: as the folders or `client_id` say; with --setting=cross_silo silos, else devices.
    Synthetic: 40 writers, about 50 digits each, in four planted groups.
  Fields: `pixels` uint8 [height, width, channels], grey ones of 1 channel, coloured ones, if any
    is, of 3; --image_size scales them. `label` int32: a class of the training clients (devices) or
    the silos' training parts, in the order of their names; -1 of another, which counts as wrong and
    not in the loss.
  Model: a CNN sized to the picture (`models.cnn`), or --model=linear or mlp; accuracy.
  Split: as `table`'s, without time.
  Citation: your own.
"""

import concurrent.futures
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import PIL.Image
import PIL.ImageOps
import tensorflow as tf

from datasets import packages
from datasets.kinds import classification
from datasets.models import choice, cnn, linear, mlp
from datasets.options import DataOptions
from datasets.partition import assignment
from datasets.readers import files, picture_files, rows as rows_lib
from datasets.synthetic import writers as synthetic_writers
from motley_tff.core import errors, task as task_lib
from motley_tff.core.cores import num_available
from motley_tff.core.errors import UserError

_SYNTHETIC_WRITERS = 40
_IGNORED = ("thumbs.db", "desktop.ini")
_GREY_MODES = ("1", "L", "LA")
# Pillow reads others, too, of which EPS would be run as a program by Ghostscript.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_IMAGE_SIZE = errors.name("image_size")
_LAYOUT = "<client>/<label>/<file> in it"

_MODELS: Mapping[str, choice.Architecture] = {
    "cnn": choice.Architecture(
        lambda facts, sizes: cnn.Cnn(facts.num_outputs, max(facts.input_shape[:2]), sizes),
        "filters of each block, then units",
        None,
    ),
    "linear": choice.Architecture(lambda facts, sizes: linear.Linear(facts.num_outputs)),
    "mlp": choice.Architecture(
        lambda facts, sizes: mlp.Mlp(facts.num_outputs, sizes or (64, 64)), "units", None
    ),
}


class Pictures(NamedTuple):
    """Examples in memory.

    Attributes:
      pixels: uint8 [n, height, width, channels].
      labels, client_ids: Text [n].
      groups: `{client id: group}`, empty if none are known.
    """

    pixels: np.ndarray
    labels: np.ndarray
    client_ids: np.ndarray
    groups: Mapping[str, str]


class _PictureFile(NamedTuple):
    client_id: str
    label: str
    path: str


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on a folder's or a file's pictures, or synthetic ones; UserError says what
    is wrong.
    """
    if options.use_synthetic_data:
        pictures = synthesize(options.seed)
        return create_task_from_data(pictures, options, {"source": "synthetic"})
    facts: dict[str, Any]
    if options.data_file is not None:
        path = files.existing("data_file", options.data_file, "an .npz file")
        facts = {"source": "npz", "files": [str(path)]}
        arrays = files.read_npz(path)
        with errors.at(path):
            pictures = _pictures(arrays, options.image_size)
    else:
        path = files.existing("data_dir", options.data_dir or "", "a folder of clients' folders")
        pictures, ignored = _read_folder(path, options.image_size)
        facts = {"source": "folder", "files": [str(path)], "files_left_out": ignored}
    with errors.at(path):
        return create_task_from_data(pictures, options, facts)


def create_task_from_data(
    pictures: Pictures, options: DataOptions, facts: Mapping[str, Any] | None = None
) -> task_lib.Task:
    """Returns the task on pictures in memory; `options` has the setting, the seed, shares and the
    model. UserError if there are too few clients, or one class alone.
    """
    by_client = dict(rows_lib.by_client(pd.Series(pictures.client_ids)))
    by_client = dict(sorted(by_client.items()))
    facts = {**(facts or {}), **({"client_groups": pictures.groups} if pictures.groups else {})}
    rows = assignment.assign(by_client, options, False, pictures.labels, facts)
    known = classification.classes_in("the pictures", map(str, pictures.labels[rows.train]))
    labels = pd.Categorical(pictures.labels, known).codes.astype(np.int32)
    clients, client_facts = rows.clients_with({"pixels": pictures.pixels, "label": labels})
    unknown = int((labels == -1).sum())
    shape = pictures.pixels.shape[1:]
    all_facts = {
        **facts,
        "pictures": len(labels),
        "shape": list(shape),
        "num_classes": len(known),
        **({"pictures_with_a_label_of_no_training_part": unknown} if unknown else {}),
        **client_facts,
    }
    model_facts = choice.ModelFacts(len(known), shape)
    return task_lib.Task(
        dataset="images",
        setting=packages.setting("images", options.setting),
        model=choice.build(options, _MODELS, model_facts, np.zeros((1, *shape), np.float32)),
        preprocess=preprocess,
        facts=all_facts,
        **classification.fields(known, clients),
    )


def preprocess(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (pictures float32 [batch, height, width, channels] in 0..1, labels int32 [batch])."""
    del training, key  # no augmentation
    return tf.cast(examples["pixels"], tf.float32) / 255.0, examples["label"]


def synthesize(seed: int, num_writers: int = _SYNTHETIC_WRITERS) -> Pictures:
    """Returns digits of synthetic writers, at most 50 of each."""
    writing = synthetic_writers.write(seed, num_writers, synthetic_writers.CHARACTERS[:10])
    place = pd.Series(writing.writer_ids).groupby(writing.writer_ids).cumcount()
    chosen = (place < 50).to_numpy()
    return Pictures(
        255 - writing.images[chosen][..., None],
        writing.labels[chosen].astype(str),
        writing.writer_ids[chosen],
        writing.groups,
    )


# --- a folder -------------------------------------------------------------------------------------


def read_folder(folder: Path, only: Sequence[str], layout: str, advice: str) -> Pictures:
    """Returns the pictures of some of a folder's clients; UserError as of the task's, which says
    what layout is expected, and gives advice where sizes differ.
    """
    return _read_folder(folder, None, only, layout, advice)[0]


def _read_folder(
    folder: Path,
    image_size: int | None,
    only: Sequence[str] | None = None,
    layout: str = _LAYOUT,
    advice: str = f"give {_IMAGE_SIZE} to scale them",
) -> tuple[Pictures, int]:
    """Returns a folder's pictures, and how many files were left out."""
    listed, ignored = _list(folder, only, layout)
    with warnings.catch_warnings():  # Around threads, which share the filters.
        warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
        first = _read(listed[0].path, image_size)
        needed = 3 * len(listed) * first.nbytes  # As they are read, stacked, dealt to clients.
        smaller = f"give a smaller {_IMAGE_SIZE} or fewer pictures"
        with errors.at(folder):
            rows_lib.check_memory(f"{len(listed):,} pictures", needed, smaller)

        def read(file: _PictureFile) -> np.ndarray:
            array = _read(file.path, image_size)
            if array.shape[:2] != first.shape[:2]:
                sizes = " and of ".join(f"{a.shape[1]}x{a.shape[0]}" for a in (first, array))
                problem = f"pictures of {sizes} pixels, such as {file.path}"
                raise UserError(str(folder), problem, "one size", advice)
            return array

        with concurrent.futures.ThreadPoolExecutor(
            num_available()
        ) as pool:  # Pillow lets others run.
            arrays = list(pool.map(read, listed))
    if any(array.ndim == 3 for array in arrays):
        arrays = [a if a.ndim == 3 else np.repeat(a[..., None], 3, 2) for a in arrays]
    else:
        arrays = [array[..., None] for array in arrays]
    labels, clients = (np.array([getattr(f, k) for f in listed]) for k in ("label", "client_id"))
    return Pictures(np.stack(arrays), labels, clients, {}), ignored


def _list(folder: Path, only: Sequence[str] | None, layout: str) -> tuple[list[_PictureFile], int]:
    """Returns the pictures' files, sorted, and how many were left out; UserError for a file where a
    folder should be, and none at all.
    """
    clients = (entry for entry in _entries(folder) if only is None or entry.name in only)
    level: list[tuple[list[str], os.DirEntry[str]]] = [([], client) for client in clients]
    ignored = 0
    for is_file in (False, False, True):  # Clients, labels, pictures.
        used = [(names, entry) for names, entry in level if not _is_ignored(entry)]
        ignored += len(level) - len(used)
        if not is_file:
            level = [
                ([*names, _name(entry)], below)
                for names, entry in used
                for below in _entries(_folder(entry, layout))
            ]
    for _, entry in used:
        if entry.is_dir():
            raise UserError(entry.path, "a folder", f"a picture, as in {layout}")
        if not entry.is_file():  # Reading a pipe would wait for ever.
            problem = "a pipe, a device or a link to nothing"
            raise UserError(entry.path, problem, "a picture", "remove it")
    if not used:
        raise UserError(str(folder), "no pictures", layout)
    return [_PictureFile(client, label, entry.path) for (client, label), entry in used], ignored


def _entries(folder: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        problem = f"a folder that cannot be read ({error.strerror})"
        raise UserError(str(error.filename), problem) from error


def _folder(entry: os.DirEntry[str], layout: str) -> os.DirEntry[str]:
    if not entry.is_dir():
        raise UserError(entry.path, "a file", f"a folder, as in {layout}")
    return entry


def _name(entry: os.DirEntry[str]) -> str:
    try:
        entry.name.encode()  # As tables of results need it.
    except UnicodeEncodeError as error:
        problem = "a name that is no UTF-8"
        raise UserError(f"{entry.path!a}", problem, advice="rename it") from error
    return entry.name


def _is_ignored(entry: os.DirEntry[str]) -> bool:
    return entry.name.startswith(".") or entry.name.lower() in _IGNORED


def _read(path: str, image_size: int | None) -> np.ndarray:
    """Returns a picture, uint8 [height, width] if it is grey, else [height, width, 3]."""
    # Each of Pillow's formats has errors of its own.
    with errors.at(path), files.readable_as("a picture", Exception):
        try:
            with PIL.Image.open(path, formats=_FORMATS) as file:
                return _decoded(file, image_size)
        except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning) as error:
            problem = f"too large a picture ({error})"
            raise UserError("", problem, advice="make it smaller") from error


def _decoded(file: PIL.Image.Image, image_size: int | None) -> np.ndarray:
    picture_files.check_kind(file)
    mode = "L" if file.mode in _GREY_MODES else "RGB"
    PIL.ImageOps.exif_transpose(file, in_place=True)
    picture = file
    if "A" in file.getbands() or "transparency" in file.info:  # Seen on white paper.
        colours = file.convert("RGBA")
        white = PIL.Image.new("RGBA", colours.size, "white")
        picture = PIL.Image.alpha_composite(white, colours)
    return _resized(picture.convert(mode), image_size)


def _resized(picture: PIL.Image.Image, side: int | None) -> np.ndarray:
    if side is not None:
        picture = picture.resize((side, side), PIL.Image.Resampling.BILINEAR)
    return np.asarray(picture)


# --- an .npz --------------------------------------------------------------------------------------


def _pictures(arrays: Mapping[str, np.ndarray], image_size: int | None) -> Pictures:
    names = ("images", "labels", "client_id")
    images, *texts = files.required(arrays, *names)
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or not images.size:
        raise files.other_array("images", images, "uint8 [n, height, width] or with channels")
    if images.ndim == 4 and images.shape[3] not in (1, 3):
        raise files.other_array("images", images, "1 or 3 channels in the last place")
    for name in (*names[1:], "group"):
        array = arrays.get(name)
        if array is not None and (array.dtype.kind not in "iuU" or array.shape != images.shape[:1]):
            expected = f"integers or text [{len(images)}] as there are images"
            raise files.other_array(name, array, expected)
    images = images if images.ndim == 4 else images[..., None]
    if image_size is not None:
        small = (_resized(PIL.Image.fromarray(image.squeeze()), image_size) for image in images)
        images = np.stack([picture.reshape(*picture.shape[:2], -1) for picture in small])
    labels, clients = (np.char.strip(array.astype(str)) for array in texts)
    for name, values in (("label", labels), ("client_id", clients)):
        if (values == "").any():
            raise UserError(f"image {int(np.argmin(values != ''))}", f"no {name}")
    has_groups = "group" in arrays
    groups = rows_lib.groups_of(clients, arrays["group"].astype(str)) if has_groups else {}
    return Pictures(images, labels, clients, groups)
