"""Finding data files on disk and fetching them: whole or not at all, and never waiting for ever."""

import contextlib
import glob
import hashlib
import http.client
import json
import lzma
import os
import queue
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.options import DataOptions
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import array_files

# A host that cannot be reached must be known within ten seconds of the command's start, of which
# TensorFlow's import takes four to six; a slow one gets longer per read.
_CONNECT_SECONDS = 3.5
_READ_SECONDS = 60.0
_CHUNK_BYTES = 2**20
_ABANDONED_SECONDS = 24 * 60 * 60
_OTHERS = f"give {errors.name('data_file')} or {errors.name('use_synthetic_data')}"


def existing(field: str, path: str | Path, expected: str = "a file") -> Path:
    """Returns a field's path, `~` expanded; UserError if it is not there.

    An `expected` that begins with "a folder" wants a folder, any other a file.
    """
    path = Path(os.path.expanduser(path))
    if path.is_dir() if expected.startswith("a folder") else path.is_file():
        return path
    kind = "a folder" if path.is_dir() else "a file" if path.exists() else "nothing"
    raise UserError(errors.name(field), str(path), f"{expected}, and {kind} is there")


def find(
    options: DataOptions, relative_paths: Sequence[str], default_dir: str | None = None
) -> Path | None:
    """Returns the file a user named, else the first of `relative_paths` in `data_dir` or the
    default folder, or None. UserError if `data_file` or `data_dir` is given and is not there.
    """
    if options.data_file is not None:
        return existing("data_file", options.data_file)
    if options.data_dir is not None:
        folder = existing("data_dir", options.data_dir, "a folder")
    elif default_dir is not None:
        folder = Path(os.path.expanduser(default_dir))
    else:
        return None
    return next((folder / p for p in relative_paths if (folder / p).is_file()), None)


def require(
    options: DataOptions,
    relative_paths: Sequence[str],
    expected: str,
    advice: str,
    default_dir: str | None = None,
) -> Path:
    """Returns what `find` finds; else UserError with what files would do, and how to get them."""
    path = find(options, relative_paths, default_dir)
    if path is None:
        raise missing(options, expected, advice, default_dir)
    return path


def missing(
    options: DataOptions, expected: str, advice: str, default_dir: str | None = None
) -> UserError:
    """Returns the error that a data set's folder has no files that would do."""
    folder = options.data_dir or default_dir or f"any {errors.name('data_dir')}"
    problem = f"no {expected} in {os.path.expanduser(folder)}"
    return UserError(options.dataset_name, problem, advice=f"{advice}, or {_OTHERS}")


@contextlib.contextmanager
def or_by_hand(dataset: str, folder: Path, advice: str) -> Iterator[None]:
    """Has errors of a download say that a folder has no data of a data set, and the advice."""
    try:
        yield
    except UserError as error:
        place = f"{dataset} has no data in {folder}, and {error.where}"
        raise UserError(place, error.finding, error.expected, f"{advice}, or {_OTHERS}") from error


def only_npz(folder: Path, names: Sequence[str]) -> Path | None:
    """Returns the .npz in a folder's folders of these names, or None; UserError for several."""
    paths = sorted(path for name in names for path in (folder / name).glob("*.npz"))
    if len(paths) > 1:
        problem = f"{len(paths)} .npz files ({', '.join(path.name for path in paths)})"
        raise UserError(str(folder), problem, "one", f"choose with {errors.name('data_file')}")
    return paths[0] if paths else None


@contextlib.contextmanager
def readable_as(kind: str, *others: type[Exception]) -> Iterator[None]:
    """Makes the `others` among exceptions a UserError: what is read is not of the kind."""
    try:
        yield
    except UserError:
        raise
    except others as error:
        raise unreadable(kind, one_line(error)) from error


def unreadable(kind: str, reason: str) -> UserError:
    """Returns the error that what is read is not of a kind."""
    problem = f"a file that is truncated or of another kind ({reason})"
    return UserError("", problem, kind, "mend or replace it")


def required(arrays: Mapping[str, np.ndarray], *names: str) -> list[np.ndarray]:
    """Returns a file's arrays of these names; UserError if it lacks one."""
    if missing := [name for name in names if name not in arrays]:
        raise UserError("", f"arrays {list(arrays)}", f"also {missing}")
    return [arrays[name] for name in names]


def other_array(name: str, array: np.ndarray, expected: str) -> UserError:
    """Returns the error that an array has another type or shape than expected."""
    return UserError(name, f"type {array.dtype}, shape {list(array.shape)}", expected)


def one_line(error: object) -> str:
    """Returns an error's type and message on one line of at most 200 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200] if text else type(error).__name__


def parse_json(text: str) -> Any:
    """Returns what a text says in JSON, if `run.json` can say it, too; ValueError if it is no JSON,
    has numbers that JSON lacks, or nests beyond measure.
    """
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Returns a file's arrays by name; UserError if it is broken or holds else than plain ones."""
    kind = "an .npz of plain arrays"
    with errors.at(path), readable_as(kind, OSError, ValueError):
        if path.suffix == ".json":
            raise UserError("", "JSON", kind)
        return array_files.read(path)


@contextlib.contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """Yields an empty temporary file that takes a file's place if all goes well, and else is gone.

    What killed processes left of it is removed after a day: what is younger may be at work.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                left.unlink()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".partial")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def download(url: str, target: Path, sha256: str) -> None:
    """Fetches a file into place, whole or not at all, if its SHA-256 is right; what ends in .lzma
    is unpacked. UserError says why not: the caller says what the user can do.
    """
    try:
        with _open(url) as response, appearing(target) as temporary:
            with temporary.open("wb") as out:
                digest = _copy(response, out, unpacks=url.endswith(".lzma"))
            if digest != sha256:
                advice = "fetch it by hand: this one was removed"
                raise UserError(url, f"SHA-256 {digest}", sha256, advice)
    except (OSError, EOFError, lzma.LZMAError, http.client.HTTPException) as error:
        # A URLError wraps what the socket said; an HTTPError has the status itself.
        reason = getattr(error, "reason", None)
        reason = reason if isinstance(reason, Exception) else error
        raise UserError(f"cannot download {url}", one_line(reason)) from error


def _open(url: str) -> Any:
    """Opens a URL within a deadline that holds for name resolution too, which has no timeout."""
    outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def connect():
        try:
            outcome.put(urllib.request.urlopen(url, timeout=_READ_SECONDS))
        except Exception as error:  # handed to the caller's thread, which raises it
            outcome.put(error)

    threading.Thread(target=connect, daemon=True).start()
    try:
        response = outcome.get(timeout=_CONNECT_SECONDS)
    except queue.Empty:
        raise TimeoutError(f"no answer within {_CONNECT_SECONDS:g} seconds") from None
    if isinstance(response, Exception):
        raise response
    return response


def _copy(response: Any, out: Any, unpacks: bool) -> str:
    """Returns the SHA-256 of what was copied, before it was unpacked."""
    decompressor, digest = lzma.LZMADecompressor(), hashlib.sha256()
    while chunk := response.read(_CHUNK_BYTES):
        digest.update(chunk)
        out.write(decompressor.decompress(chunk) if unpacks else chunk)
    if unpacks and not decompressor.eof:
        raise EOFError("the connection ended before the file did")
    return digest.hexdigest()
