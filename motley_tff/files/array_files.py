"""Archives of named arrays (`.npz`): ours, always whole, and such as anybody may have made.

Plain arrays of numbers and text, nothing that runs.
"""

import os
import pathlib
import zipfile
from collections.abc import Callable, Mapping

import numpy as np
import psutil

from motley_tff.core import signals
from motley_tff.files import csv_files

# Code points of halves of characters, and the last one that there is.
_SURROGATES, _LAST = (0xD800, 0xDFFF), 0x10FFFF


def save(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray], compression: int = zipfile.ZIP_STORED
) -> None:
    """Writes an archive of arrays by name; the same arrays give the same bytes.

    A full disk is a UserError; `np.savez` leaves its archive open then, which complains on stderr
    when it is collected.
    """
    with (
        signals.delay(),
        csv_files.replacing(path, "wb") as file,
        zipfile.ZipFile(file, "w", compression) as archive,
    ):
        for name, array in arrays.items():
            # Of no date, as `ZipInfo` makes it.
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type = compression
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def read(
    path: str | os.PathLike[str], is_wanted: Callable[[str], bool] = lambda name: True
) -> dict[str, np.ndarray]:
    """Returns a file's wanted arrays by name, that of an `.npy` as ""; nothing is unpickled.

    A file that cannot be opened is an OSError, anything else than whole arrays of numbers and text
    that fit into memory a ValueError.
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            arrays = {"": loaded}
        else:
            with loaded:
                members = loaded.zip.infolist()
                chosen = (m for m in members if is_wanted(m.filename.removesuffix(".npy")))
                needed, free = sum(m.file_size for m in chosen), psutil.virtual_memory().available
                if needed > free:  # A few kB can stand for gigabytes.
                    raise ValueError(
                        f"its arrays take {needed:,} bytes, {free:,} of memory are free"
                    )
                arrays = {name: loaded[name] for name in loaded.files if is_wanted(name)}
    except OSError:
        raise
    except Exception as error:  # zip, zlib and NumPy each raise their own on a broken file
        raise ValueError(f"{type(error).__name__}: {error}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name[:80]!r} is no array")
        if array.dtype.kind == "U" and array.size:
            codes = np.frombuffer(array.astype(array.dtype.newbyteorder("=")).tobytes(), np.uint32)
            if ((codes > _LAST) | ((codes >= _SURROGATES[0]) & (codes <= _SURROGATES[1]))).any():
                raise ValueError(f"{name!r} has text that is not Unicode")
    return arrays
