"""Real examples by client, as all scores take them, and the files they are read from.

`.npz` of clients: either an array a client, named as the client is, or the arrays `client_id` and
`features`, `images` or both, a row an example. `.npz` of a generated set: one array, or one named
`features` or `images` among others; `.npy`: that array. Of both the one that is wanted. Features
are [num_examples, num_features]; images [num_examples, height, width] or [num_examples, height,
width, channels].
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping

import numpy as np

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
    arrays = _load(path)
    is_split = not {_CLIENT, *_EXAMPLES}.intersection(arrays)
    by_client = arrays if is_split else _split(path, arrays, _of(arrays, embed))
    features = {name: _features(f"{path} [{name}]", a, embed) for name, a in by_client.items()}
    first = next(iter(features))
    expected = features[first].shape[1]
    for name, array in features.items():
        if array.shape[1] != expected:
            raise UserError(
                f"{path}: client {name} has {array.shape[1]} features and client {first} "
                f"{expected}; expected as many in all"
            )
    return from_arrays(features)


def read_generated(
    path: pathlib.Path,
    num_features: int | None,
    embed: Callable[[np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Reads a generated set, [num_examples, `num_features`], of None of any width; UserError if it
    is anything else.
    """
    arrays = _load(path)
    name = _of(arrays, embed) or next(iter(arrays))
    if len(arrays) > 1 and name not in _EXAMPLES:
        raise UserError(
            f"{path} has arrays {_listed(arrays)}; expected one array, or one named features or "
            "images"
        )
    features = _features(str(path), arrays[name], embed)
    if num_features is not None and features.shape[1] != num_features:
        raise UserError(
            f"{path}: found {features.shape[1]} features, expected {num_features} as the clients "
            "have; take both from the same network"
        )
    return features


def _load(path: pathlib.Path) -> dict[str, np.ndarray]:
    try:
        arrays = {name or _EXAMPLES[0]: array for name, array in array_files.read(path).items()}
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(
            f"{path}: {error}; expected an .npz file of arrays of numbers, as np.savez writes it"
        ) from error
    if not arrays:
        raise UserError(f"{path} holds no array; expected examples")
    return arrays


def _of(arrays: Mapping[str, np.ndarray], embed: Callable[..., np.ndarray] | None) -> str | None:
    """Returns which array has the examples: of both the images if features are made of these."""
    wanted = _EXAMPLES if embed is None else reversed(_EXAMPLES)
    return next((key for key in wanted if key in arrays), None)


def _split(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray], name: str | None
) -> dict[str, np.ndarray]:
    """Returns the rows of each client of a file with a column of clients."""
    if name is None or _CLIENT not in arrays or set(arrays) - {_CLIENT, *_EXAMPLES}:
        raise UserError(
            f"{path} has arrays {_listed(arrays)}; expected client_id and features, images or "
            "both, or an array a client"
        )
    clients, examples = arrays[_CLIENT], arrays[name]
    for key in sorted(set(arrays) - {_CLIENT}):
        if clients.ndim != 1 or clients.shape != arrays[key].shape[:1]:
            raise UserError(
                f"{path}: client_id is {list(clients.shape)} and {key} {list(arrays[key].shape)}; "
                "expected a client for each row"
            )
    if clients.dtype.kind not in "Uiu":
        raise UserError(
            f"{path}: client_id is of type {clients.dtype}, expected text or whole numbers"
        )
    if not len(clients):
        raise UserError(f"{path} has no rows; expected examples")
    names, inverse = np.unique(clients.astype(str), return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    pieces = np.split(examples[order], np.cumsum(np.bincount(inverse))[:-1])
    return dict(zip(names.tolist(), pieces, strict=True))


def _features(
    name: str, array: np.ndarray, embed: Callable[[np.ndarray], np.ndarray] | None
) -> np.ndarray:
    """Returns an array as features, checked."""
    if array.dtype.kind not in "fiu":
        raise UserError(f"{name}: found values of type {array.dtype}, expected real numbers")
    if array.ndim in (3, 4) and embed is None:
        raise UserError(
            f"{name}: found an array {list(array.shape)}; if these are images, say what features "
            "are, such as --features=pca:64, else make it [examples, features]"
        )
    if array.ndim not in ((2,) if embed is None else (3, 4)):
        expected = "[examples, features]" if embed is None else "images [examples, height, width]"
        raise UserError(f"{name}: found an array {list(array.shape)}, expected {expected}")
    if not array.size:
        raise UserError(f"{name} has no examples (found {list(array.shape)}); leave it out")
    if not all((np.abs(block) <= _MOST).all() for _, block in blocks.of_rows(array)):
        raise UserError(f"{name} has values that are nan, infinite or beyond {_MOST:g}")
    try:
        return array if embed is None else embed(array)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def _listed(arrays: Mapping[str, np.ndarray]) -> str:
    names = sorted(arrays)
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
