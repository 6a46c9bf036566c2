"""Features of pictures where no weights of InceptionV3 are at hand: PCA, or a classifier of ours.

Frechet distances of either are no FIDs that could be compared with published ones; what they are of
is written beside each.
"""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import datasets
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import model_files

_BATCH = 500
_PIXELS = "pixels"
# What decides a model's shape, of the flags of a run.
_OF_MODEL = ("only_digits", "model", "image_size")
# What decides of what its pictures are, and how: EMNIST's are black on white, MNIST's not.
_OF_PICTURES = ("dataset_name", "only_digits", "use_synthetic_data", "image_size")


class Pca(NamedTuple):
    """A projection: mean [num_pixels], components [num_pixels, k]."""

    mean: np.ndarray
    components: np.ndarray

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Returns features float64 [n, k] of rows [n, num_pixels]."""
        return (rows - self.mean) @ self.components


def flat(images: np.ndarray) -> np.ndarray:
    """Returns pictures as rows float64 [n, num_pixels] in 0 to 1; UserError if they are other."""
    if images.ndim not in (3, 4) or not images.size:
        raise UserError("", f"{list(images.shape)}", "pictures [n, height, width, ...]")
    scale = 255.0 if images.dtype.kind in "iu" else 1.0
    rows = images.reshape(len(images), -1) / scale
    if not (rows.min() >= 0 and rows.max() <= 1):  # Not-a-number is neither.
        problem = f"pixels from {rows.min() * scale:g} to {rows.max() * scale:g}"
        raise UserError("", problem, "whole numbers 0 to 255 or fractions 0 to 1")
    return rows


def fit_pca(rows: np.ndarray, size: int) -> Pca:
    """Returns the first `size` principal components of rows [n, num_pixels]; UserError if there are
    not as many that the rows differ in.
    """
    if not 1 <= size <= min(rows.shape):
        raise UserError(f"pca:{size}", expected=f"1 to {min(rows.shape)} of these pictures")
    mean = rows.mean(axis=0)
    apart = rows - mean
    values, vectors = np.linalg.eigh(apart.T @ apart)
    # Below, eigenvectors are whatever rounding makes them.
    rank = int((values > values[-1] * max(rows.shape) * np.finfo(np.float64).eps).sum())
    if size > rank:
        expected = f"at most {rank}, as these pictures differ in no more directions"
        raise UserError(f"pca:{size}", expected=expected)
    return Pca(mean, vectors[:, ::-1][:, :size].copy())


class Classifier(NamedTuple):
    """A trained model of pictures, and the inputs of its last layer.

    Attributes:
      name: The data set it was trained on, and its run.
      shape: Of a picture: height, width, channels.
    """

    name: str
    shape: tuple[int, int, int]
    model: Any
    weights: Any
    task: Any

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Returns features float32 [n, k] of pictures uint8 [n, height, width] or with channels;
        UserError if they are of another size or depth.
        """
        return self._of_each(images, self.model.embed)

    def predicted(self, images: np.ndarray) -> np.ndarray:
        """Returns float64 [n, num_classes] of the same, 1 in the column of the class of each."""
        no_key = np.zeros(2, np.int32)
        logits = self._of_each(
            images, lambda weights, x: self.model.predict(weights, x, False, no_key)
        )
        return np.eye(logits.shape[1])[logits.argmax(axis=1)]

    def _of_each(self, images: np.ndarray, function: Callable[[Any, Any], Any]) -> np.ndarray:
        import tensorflow as tf

        images = images if images.ndim == 4 else images[..., None]
        if images.shape[1:] != self.shape or images.dtype != np.uint8:
            expected = f"uint8 {list(self.shape)} as {self.name} was trained on"
            problem = f"pictures {list(images.shape[1:])} of type {images.dtype}"
            raise UserError("", problem, expected)
        spec = self.task.train.spec["train"]
        pixels = images if len(spec[_PIXELS].shape) == 4 else images[..., 0]
        parts = []
        for start in range(0, len(pixels), _BATCH):
            raw = {_PIXELS: tf.constant(pixels[start : start + _BATCH])}
            raw["label"] = tf.zeros([len(raw[_PIXELS])], tf.int32)
            x, _ = self.task.preprocess(raw, False, tf.zeros([2], tf.int32))
            parts.append(function(self.weights, x).numpy())
        return np.concatenate(parts)


def classifier(run: pathlib.Path, flag: str = "features") -> Classifier:
    """Returns the global model of a run of ours on pictures; UserError of `flag` if it is none."""
    flags = _classifiers_flags(run, flag)
    name = flags.get("dataset_name")
    if name not in ("cifar10", "emnist", "mnist"):
        expected = f"a run on cifar10, emnist or mnist, and this is on {name}"
        raise UserError(errors.name(flag), str(run), expected)
    if "generator" in flags:
        raise UserError(errors.name(flag), str(run), "a classifier's run, no generator's")
    chosen: dict[str, Any] = {flag: flags[flag] for flag in _OF_MODEL if flags.get(flag)}
    if sizes := flags.get("model_sizes"):
        chosen["model_sizes"] = tuple(map(int, sizes))
    if name in datasets.DEALT:
        chosen["partition"] = "iid"
    task = datasets.create(name, use_synthetic_data=True, **chosen)
    weights = model_files.load(str(run), task.model.shapes, task.model.names)
    height, width, *channels = task.train.spec["train"][_PIXELS].shape[1:]
    shape = (height, width, channels[0] if channels else 1)
    return Classifier(f"{name}'s classifier {run.name}", shape, task.model, weights, task)


def check_alike(
    run: pathlib.Path, of_generators: Sequence[pathlib.Path], flag: str = "features"
) -> None:
    """Refuses runs of generators of other pictures than a classifier's run was trained on."""
    known = _classifiers_flags(run, flag)
    for generators in of_generators:
        if not (flags := _flags(generators)):
            raise UserError(str(generators), expected="a run of generative_trainer, with run.json")
        for name in _OF_PICTURES:
            value, other = (options.get(name) for options in (flags, known))
            if (value or None) != (other or None):
                problem = f"a run with {errors.name(name)}={value}"
                expected = f"{other}, as {errors.name(flag)}={run} has"
                advice = "give a classifier of the same pictures"
                raise UserError(str(generators), problem, expected, advice)


def is_of_generator(run: pathlib.Path) -> bool:
    """Returns whether a directory is of a run of generative_trainer."""
    return "generator" in _flags(run)


def _classifiers_flags(run: pathlib.Path, flag: str) -> Mapping[str, Any]:
    if flags := _flags(run):
        return flags
    kind = "the directory of a run of finetuning_trainer on pictures, which has run.json"
    expected = f"pca:K, or {kind}" if flag == "features" else kind
    raise UserError(errors.name(flag), str(run), expected)


def _flags(run: pathlib.Path) -> Mapping[str, Any]:
    """Returns a run's flags, none if it is not there or has none."""
    try:
        record = json.loads((run / "run.json").read_text(encoding="utf-8"))
        return dict(record["flags"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}
