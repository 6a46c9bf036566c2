"""TFF's count of StackOverflow's words: `word count` lines, the most frequent word first."""

import contextlib
import itertools
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from datasets import files
from motley_tff.core.errors import UserError

URL = "https://storage.googleapis.com/tff-datasets-public/stackoverflow.word_count.tar.bz2"
ARCHIVE, NAME = "stackoverflow.word_count.tar.bz2", "stackoverflow.word_count"
# Below a folder: Keras, which TFF fetches it with, puts it into `datasets`.
_FOLDERS = ("", "datasets", "stackoverflow", "stackoverflow/datasets")
_KERAS_DIR = "~/.keras"
_MAX_LINE_BYTES = 4096


def load(database: Path, data_dir: str | None, size: int) -> tuple[Path, list[str]]:
    """Returns (the file, its first words); UserError if there is none in any folder, or it is
    broken.
    """
    roots = [database.parent, *([Path(os.path.expanduser(data_dir))] if data_dir else [])]
    roots.append(Path(os.path.expanduser(_KERAS_DIR)))
    candidates = (r / f / name for r in roots for f in _FOLDERS for name in (NAME, ARCHIVE))
    path = next((p for p in candidates if p.is_file()), None)
    if path is None:
        raise UserError(
            f"{database}: found no {NAME} or {ARCHIVE} ({URL}, a few MB) beside it; put one into "
            f"{database.parent}"
        )
    return path, _first_words(path, size)


def _first_words(path: Path, size: int) -> list[str]:
    words: dict[str, None] = {}
    with _open(path) as file:
        lines = iter(lambda: file.readline(_MAX_LINE_BYTES), b"")
        for number, line in enumerate(itertools.islice(lines, size), 1):
            try:
                word, count = line.decode().split()
                int(count)
            except ValueError:
                raise UserError(
                    f"{path}: found {line[:40]!r} in line {number}, expected a word and a count"
                ) from None
            words[word] = None
    if not words:
        raise UserError(f"{path}: found no words, expected lines of a word and a count")
    return list(words)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """Opens the lines; of an archive the one member, in memory: nothing is unpacked to disk."""
    if path.name != ARCHIVE:
        with path.open("rb") as file:
            yield file
        return
    with (
        files.reading_as(path, "a tar.bz2 archive", OSError, EOFError, tarfile.TarError),
        tarfile.open(path, "r:bz2") as archive,
    ):
        member = next((m for m in archive if Path(m.name).name == NAME and m.isfile()), None)
        if member is None:
            raise UserError(f"{path}: found no file {NAME} in it")
        lines = archive.extractfile(member)
        assert lines is not None  # only of members that are no files
        yield lines
