"""Real examples by client, as all scores take them, and the files they are read from.

`.npz` of clients: either an array a client, named as the client is, or the arrays `client_id` and
`features`, `images` or both, a row an example. `.npz` of a generated set: one array, or one named
`features` or `images` among others; `.npy`: that array. Where a file has both, `images` are read if
`embed` makes features of them, else `features`. Features are [num_examples, num_features]; images
[num_examples, height, width] or [num_examples, height, width, channels].
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import array_files
from motley_tff.metrics.generative import blocks

_EXAMPLES, _CLIENT = ("features", "images"), "client_id"
# The sixth power of larger ones, which kernels take, would be no float64.
_MOST = 1e30


@dataclasses.dataclass(frozen=True)
class ClientFeatures:
    """All clients' examples, [num_examples, num_features]; `parts` are the rows of each id."""

    ids: tuple[str, ...]
    features: np.ndarray
    parts: tuple[slice, ...]

    @property
    def shares(self) -> np.ndarray:
        """lambda_i = n_i / n, float64 [num_clients]."""
        return np.array([part.stop - part.start for part in self.parts]) / len(self.features)


def from_arrays(arrays: Mapping[str, np.ndarray]) -> ClientFeatures:
    """Returns clients' examples from an array a client, [num_examples, num_features] each."""
    ids = tuple(sorted(arrays))
    ends = np.cumsum([0, *(len(arrays[name]) for name in ids)]).tolist()
    parts = tuple(slice(a, b) for a, b in itertools.pairwise(ends))
    return ClientFeatures(ids, np.concatenate([arrays[name] for name in ids]), parts)


def read_clients(
    path: pathlib.Path, embed: Callable[[np.ndarray], np.ndarray] | None = None
) -> ClientFeatures:
    """Reads clients' examples; `embed` makes features of images, if the file holds these.

    A UserError if the file is not as the module says, a client has no example, clients have
    features of different widths, or a number is not finite.
    """
    with errors.at(path):
        arrays = _load(path)
        is_split = not {_CLIENT, *_EXAMPLES}.intersection(arrays)
        by_client = arrays if is_split else _split(arrays, _of(arrays, embed))
        features: dict[str, np.ndarray] = {}
        for name, array in by_client.items():
            with errors.at(f"[{name}]"):
                features[name] = _features(array, embed)
                first, own = next(iter(features)), features[name]
                _check_width(own, features[first].shape[1], f"client {first} has")
    return from_arrays(features)


def read_generated(
    path: pathlib.Path,
    num_features: int | None,
    embed: Callable[[np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Reads a generated set, [num_examples, `num_features`], of None of any width; UserError if it
    is anything else.
    """
    with errors.at(path):
        arrays = _load(path)
        name = _of(arrays, embed) or next(iter(arrays))
        if len(arrays) > 1 and name not in _EXAMPLES:
            _refuse_arrays(arrays, "one array, or one named features or images")
        features = _features(arrays[name], embed)
        _check_width(features, num_features, "the clients have")
    return features


def _check_width(features: np.ndarray, num_features: int | None, whose: str) -> None:
    if num_features is not None and features.shape[1] != num_features:
        expected, advice = f"{num_features} as {whose}", "take all from the same network"
        raise UserError("", f"{features.shape[1]} features", expected, advice)


def _load(path: pathlib.Path) -> dict[str, np.ndarray]:
    try:
        arrays = {name or _EXAMPLES[0]: array for name, array in array_files.read(path).items()}
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        expected = "an .npz file of arrays of numbers, as np.savez writes it"
        raise UserError("", error, expected) from error
    if not arrays:
        raise UserError("", "no array", "examples")
    return arrays


def _of(arrays: Mapping[str, np.ndarray], embed: Callable[..., np.ndarray] | None) -> str | None:
    """Returns which array has the examples: of both the images if features are made of these."""
    names = _EXAMPLES if embed is None else reversed(_EXAMPLES)
    return next((key for key in names if key in arrays), None)


def _split(arrays: Mapping[str, np.ndarray], name: str | None) -> dict[str, np.ndarray]:
    """Returns the rows of each client of a file with a column of clients."""
    if name is None or _CLIENT not in arrays or set(arrays) - {_CLIENT, *_EXAMPLES}:
        expected = "client_id and features, images or both, or an array a client"
        _refuse_arrays(arrays, expected)
    clients, examples = arrays[_CLIENT], arrays[name]
    for key in sorted(set(arrays) - {_CLIENT}):
        if clients.ndim != 1 or clients.shape != arrays[key].shape[:1]:
            shapes = f"client_id {list(clients.shape)} and {key} {list(arrays[key].shape)}"
            raise UserError("", shapes, "a client for each row")
    if clients.dtype.kind not in "Uiu":
        raise UserError("client_id", f"type {clients.dtype}", "text or whole numbers")
    if not len(clients):
        raise UserError("", "no rows", "examples")
    names, inverse = np.unique(clients.astype(str), return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    pieces = np.split(examples[order], np.cumsum(np.bincount(inverse))[:-1])
    return dict(zip(names.tolist(), pieces, strict=True))


def _features(array: np.ndarray, embed: Callable[[np.ndarray], np.ndarray] | None) -> np.ndarray:
    """Returns an array as features, checked."""
    shape = f"an array {list(array.shape)}"
    if array.dtype.kind not in "fiu":
        raise UserError("", f"values of type {array.dtype}", "real numbers")
    if array.ndim not in ((2,) if embed is None else (3, 4)):
        expected = "[examples, features]" if embed is None else "images [examples, height, width]"
        advice = f"of images say what features are, such as {errors.name('features')}=pca:64"
        raise UserError("", shape, expected, advice if array.ndim in (3, 4) else "")
    if not array.size:
        raise UserError("", shape, "examples", "leave it out")
    if not all((np.abs(block) <= _MOST).all() for _, block in blocks.of_rows(array)):
        expected = f"finite ones of at most {_MOST:g}"
        raise UserError("", "values that are nan, infinite or larger", expected)
    return array if embed is None else embed(array)


def _refuse_arrays(arrays: Mapping[str, np.ndarray], expected: str) -> NoReturn:
    names = sorted(arrays)
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    raise UserError("", f"arrays {listed}", expected)
