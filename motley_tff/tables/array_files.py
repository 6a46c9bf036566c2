"""Archives of named arrays (`.npz`), always whole and never with pickled objects."""

import pathlib
from collections.abc import Mapping

import numpy as np

from motley_tff.core import signals
from motley_tff.tables import csv_files


def save(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an archive.

    Raises:
      UserError: If the disk is full or the directory cannot be written.
    """
    with signals.held(), csv_files.replacing(path, "wb") as file:
        np.savez(file, **arrays)


def load(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads an archive.

    Raises:
      Exception: If it is damaged; zip, zlib and NumPy each raise their own.
    """
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
