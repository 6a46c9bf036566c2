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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.options import DataOptions
from motley_tff.core.errors import UserError
from motley_tff.files import array_files

# A host that cannot be reached must be known within ten seconds of the command's start, of which
# TensorFlow's import takes four to six; a slow one gets longer per read.
_CONNECT_SECONDS = 3.5
_READ_SECONDS = 60.0
_CHUNK_BYTES = 2**20
_ABANDONED_SECONDS = 24 * 60 * 60


def find(options: DataOptions, relative_paths: Sequence[str]) -> Path | None:
    """Returns the file a user named, else the first of `relative_paths` in the data folder.

    Args:
      options: Whose `data_file` and `data_dir` count.
      relative_paths: Where to look under `data_dir`, in order.

    Returns:
      The file, or None if there is none.

    Raises:
      UserError: If `data_file` or `data_dir` is given and is not there.
    """
    if options.data_file is not None:
        return _existing(Path(os.path.expanduser(options.data_file)))
    if options.data_dir is None:
        return None
    folder = Path(os.path.expanduser(options.data_dir))
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise UserError(f"--data_dir={folder}: found {found}, expected a folder")
    return next((folder / p for p in relative_paths if (folder / p).is_file()), None)


def _existing(path: Path) -> Path:
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing"
        raise UserError(f"--data_file={path}: found {found}, expected a file")
    return path


def one_line(error: object) -> str:
    """Returns an error's type and message on one line of at most 200 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200] if text else type(error).__name__


def parse_json(text: str) -> Any:
    """Returns what a text says in JSON, if `run.json` can say it, too.

    Raises:
      ValueError: If it is no JSON, has numbers that JSON lacks, or nests beyond measure.
    """
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Returns a file's arrays by name.

    Raises:
      UserError: If it cannot be read, or holds something else than plain arrays.
    """
    try:
        return array_files.read(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read as an .npz of plain arrays, truncated or of another kind "
            f"({one_line(error)})"
        ) from error


def forget_partial(target: Path) -> None:
    """Removes what processes that were killed left of a file, if it is a day old.

    A younger one may be another process's, at work.
    """
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                left.unlink()


def download_lzma(url: str, target: Path, sha256: str) -> None:
    """Fetches an LZMA file, unpacks it on the way, and moves it into place if its hash is right.

    Args:
      url: Where it is.
      target: The unpacked file; appears whole or not at all.
      sha256: Of the packed file, as hexadecimal digits.

    Raises:
      UserError: If that cannot be done. The reason only: the caller says what the user can do.
    """
    try:
        with _open(url) as response:
            target.parent.mkdir(parents=True, exist_ok=True)
            forget_partial(target)
            handle, name = tempfile.mkstemp(
                dir=target.parent, prefix=f".{target.name}.", suffix=".partial"
            )
            temporary = Path(name)
            try:
                with os.fdopen(handle, "wb") as out:
                    found = _unpack(response, out)
                if found != sha256:
                    raise UserError(
                        f"downloaded {url} with SHA-256 {found}, expected {sha256}; it is not the "
                        "file that is known here and was removed"
                    )
                temporary.chmod(0o644)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
    except (OSError, EOFError, lzma.LZMAError, http.client.HTTPException) as error:
        # A URLError wraps what the socket said; an HTTPError has the status itself.
        reason = getattr(error, "reason", None)
        reason = reason if isinstance(reason, Exception) else error
        raise UserError(f"cannot download {url} ({one_line(reason)})") from error


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


def _unpack(response: Any, out: Any) -> str:
    """Returns the SHA-256 of what was unpacked."""
    decompressor, digest = lzma.LZMADecompressor(), hashlib.sha256()
    while chunk := response.read(_CHUNK_BYTES):
        digest.update(chunk)
        out.write(decompressor.decompress(chunk))
    if not decompressor.eof:
        raise EOFError("the connection ended before the file did")
    return digest.hexdigest()
