"""Reads LEAF's JSON: `users`, `num_samples` of each, and `user_data: {user: {x: [...], y: [...]}}`.

Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings" (https://arxiv.org/abs/1812.01097).
A file is read user by user, never whole. Of a folder all .json files are read, or those of its
folders train and test, as LEAF splits each user's examples: those of a user are joined.
"""

import collections
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from datasets.readers import files
from motley_tff.core import errors
from motley_tff.core.errors import UserError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KIND = "LEAF's JSON"
_PARTS = ("train", "test")
_DEEPEST = 16  # LEAF's own have 6 brackets open at most.
_NO_BRACKETS = bytes({*range(256)} - {*b"[{]}"})

# A user's x and y, as JSON has them, to arrays [n, ...] by field. UserError says what is wrong.
Convert = Callable[[list[Any], list[Any]], Mapping[str, np.ndarray]]


def find(folder: Path) -> list[Path]:
    """Returns a folder's files, train before test; none if there are no such."""
    for sides in ([folder], [folder / part for part in _PARTS]):
        files_below = [path for side in sides for path in sorted(side.glob("*.json"))]
        if files_below:
            return files_below
    return []


def find_in(folder: Path, names: Iterable[str]) -> Path | None:
    """Returns the first of a folder's folders that has files of LEAF, "" for itself, or None."""
    return next((folder / name for name in names if find(folder / name)), None)


def paths(path: Path) -> list[Path]:
    """Returns a file, or all of a folder; UserError if it has none."""
    files_below = find(path) if path.is_dir() else [path]
    if not files_below:
        raise UserError(str(path), "no .json file", "LEAF's, or folders train and test")
    return files_below


def is_leaf(path: Path) -> bool:
    """Returns whether a path is LEAF's by its name: a .json file, or a folder."""
    return path.is_dir() or path.suffix == ".json"


def facts(path: Path) -> dict[str, Any]:
    """Returns what a task says of where it is from, and how many users have no examples, if any."""
    totals: collections.Counter[str] = collections.Counter()
    for file in paths(path):
        with errors.at(file):
            totals.update(_sizes(file))
    empty = sum(total == 0 for total in totals.values())
    left_out = {"users_without_examples_left_out": empty} if empty else {}
    return {"source": "leaf", "files": [*map(str, paths(path))], **left_out}


def read(path: Path, convert: Convert) -> dict[str, dict[str, np.ndarray]]:
    """Returns `{user: {field: array [n, ...]}}` of a file, or of all of a folder, in their order.

    UserError if what is there is not LEAF's, contradicts itself, has no examples, or cannot be
    converted.
    """
    owners: dict[tuple[Path, str], Path] = {}
    read_ones: dict[str, list[Mapping[str, np.ndarray]]] = {}
    for file in paths(path):
        for user, arrays in _users(file, convert):
            other = owners.setdefault((file.parent, user), file)
            if other != file:
                problem = f"user {user!r}, who is in {other.name}, too"
                raise UserError(str(file), problem, "each in one file", "take one of them out")
            read_ones.setdefault(user, []).append(arrays)
    if not read_ones:
        raise UserError(str(path), "no examples", "users who have some")
    return {
        user: {field: np.concatenate([arrays[field] for arrays in parts]) for field in parts[0]}
        for user, parts in read_ones.items()
    }


def _users(path: Path, convert: Convert) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    """Yields a file's users who have examples."""
    import ijson  # Takes 0.1 s.

    broken = files.readable_as(_KIND, OSError, UnicodeDecodeError)
    with errors.at(path), broken, _parsing():
        left = _sizes(path)
        with _opened(path) as file:
            for user, data in ijson.kvitems(file, "user_data", use_float=True):
                if user not in left:
                    raise UserError("", f"user_data of {user!r}", "each of users once")
                with _of_user(user):
                    x, y = _examples(data, left.pop(user))
                    if x:
                        yield user, convert(x, y)
        if left:
            raise UserError("", f"no user_data of {next(iter(left))!r}", "each of users once")


def _sizes(path: Path) -> dict[str, int]:
    """Returns what `num_samples` says of each of `users`."""
    users, sizes = (_list(path, name) for name in ("users", "num_samples"))
    if not users or not all(isinstance(user, str) for user in users):
        raise UserError("users", str(users)[:40], "some names")
    if len(set(users)) < len(users):
        double = next(user for user in users if users.count(user) > 1)
        raise UserError("users", f"{double!r} twice", "each once")
    if len(sizes) != len(users) or not all(type(size) is int and size >= 0 for size in sizes):
        expected = f"a whole number for each of {len(users)} users"
        raise UserError("num_samples", f"{len(sizes)}, such as {str(sizes)[:40]}", expected)
    return dict(zip(users, sizes, strict=True))


def _list(path: Path, name: str) -> list[Any]:
    import ijson

    with _opened(path) as file:
        listed = next(ijson.items(file, name, use_float=True), None)
    if not isinstance(listed, list):
        raise UserError("", f"no list of {name}", f"{_KIND}, which has one")
    return listed


class _Shallow:
    """A file of JSON that is refused where it nests deeper than LEAF's: what ijson takes of memory
    grows with the square of the depth.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._depth, self._is_in_text, self._cut = 0, 0, b""

    def read(self, size: int = -1, /) -> bytes:
        chunk = self._file.read(size)
        plain = re.sub(rb"\\.", b"", self._cut + chunk, flags=re.DOTALL)
        self._cut = plain[-1:] if plain.endswith(b"\\") else b""  # Half of an escape.
        pieces = plain.split(b'"')
        outside = b"".join(pieces[self._is_in_text :: 2])
        self._is_in_text = (self._is_in_text + len(pieces) - 1) % 2
        brackets = np.frombuffer(outside.translate(None, _NO_BRACKETS), np.uint8)
        is_open = (brackets == ord("[")) | (brackets == ord("{"))
        depths = self._depth + np.cumsum(np.where(is_open, 1, -1))
        if depths.size:
            if depths.max() > _DEEPEST:
                raise UserError("", f"more than {_DEEPEST} brackets open", _KIND)
            self._depth = int(depths[-1])
        return chunk


def _examples(data: Any, size: int) -> tuple[list[Any], list[Any]]:
    x, y = (data.get(name) if isinstance(data, dict) else None for name in "xy")
    if not isinstance(x, list) or not isinstance(y, list):
        raise UserError("", "no lists x and y", "both")
    if not len(x) == len(y) == size:
        expected = f"{size} of each, as num_samples says"
        raise UserError("", f"{len(x)} x and {len(y)} y", expected)
    return x, y


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_Shallow]:
    """Opens a file behind its byte order mark; UserError if it is an archive or the like."""
    with path.open("rb") as file:
        head = file.read(16)
        from datasets.readers import rows  # With pandas.

        for signature, (kind, _) in rows.SIGNATURES.items():
            if head.startswith(signature):
                raise UserError("", kind, "JSON", "unpack it")
        file.seek(len(_BYTE_ORDER_MARK) if head.startswith(_BYTE_ORDER_MARK) else 0)
        yield _Shallow(file)


@contextlib.contextmanager
def _parsing() -> Iterator[None]:
    """Has errors of the parser say on one line what it found."""
    import ijson

    try:
        yield
    except ijson.JSONError as error:
        text = " ".join(
            part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)
            for part in error.args
        )
        if not_in_json := re.search(r"\b(NaN|Infinity)\b", text):
            raise UserError("", f"{not_in_json[0]}, which JSON lacks", "numbers") from error
        raise files.unreadable(_KIND, " ".join(text.split())[:200]) from error


@contextlib.contextmanager
def _of_user(user: str) -> Iterator[None]:
    """Has errors of a conversion say whose."""
    with errors.at(f"user {user!r}"):
        try:
            yield
        except (ValueError, TypeError, OverflowError) as error:
            raise UserError("", files.one_line(error)) from error


def classes(y: list[Any], num_classes: int, expected: str | None = None) -> np.ndarray:
    """Returns labels int32 [n]; UserError if one is no whole number from 0 to below `num_classes`,
    or, in other words, what is `expected`.

    LEAF has some as text and some as numbers with a point.
    """
    labels = np.array([_number(label) for label in y])
    wrong = ~((labels >= 0) & (labels < num_classes) & (labels == np.floor(labels)))
    if wrong.any():
        problem = f"label {str(y[int(np.argmax(wrong))])[:40]}"
        raise UserError("", problem, expected or f"0 to {num_classes - 1}")
    return labels.astype(np.int32)


def table(x: list[Any], width: int, unit: str) -> np.ndarray:
    """Returns x, a list of `width` numbers each, float32 [n, width]; UserError if it is other."""
    for row in x:
        if not isinstance(row, list) or len(row) != width:
            problem = f"a list of {len(row)}" if isinstance(row, list) else str(row)[:40]
            raise UserError("", f"{problem} among x", f"lists of {width} {unit}")
    try:
        return np.array(x, np.float32).reshape(len(x), width)
    except (ValueError, TypeError, OverflowError) as error:
        odd = next(value for row in x for value in row if np.isnan(_number(value)))
        problem = f"{str(odd)[:40]!r} among {unit} of x"
        raise UserError("", problem, "numbers") from error


def _number(value: Any) -> float:
    """Returns a value as a float, NaN if it is no number."""
    try:
        return float(value)
    except (ValueError, TypeError, OverflowError):
        return np.nan
