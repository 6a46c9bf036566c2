"""Looks HDF5 files through before anything trusts them.

libhdf5 never ends on some damaged files and crashes on others, which no exception tells of. So a
process of its own reads a file once from end to end.
"""

import pathlib
import resource
import subprocess
import sys
from typing import Any

import h5py

# A file of 100 MB takes a second.
_SECONDS = 30.0
_MOST_BYTES = 8 * 2**30


def problem(path: pathlib.Path, seconds: float = _SECONDS) -> str:
    """Returns why a file cannot be read to its end in so many seconds; empty if it can."""
    # Isolated: modules of this folder are not to stand in for others.
    command = [sys.executable, "-I", __file__, str(path.absolute())]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"reading it does not end within {seconds:g} seconds"
    if not result.returncode:
        return ""
    last = result.stderr.strip().rpartition("\n")[2]
    return last if result.returncode > 0 and last else "reading it crashes Python"


def _read(name: str, item: Any) -> None:
    list(item.attrs.values())
    if isinstance(item, h5py.Dataset):
        item[()]


def main() -> None:
    """Reads all of the file that the first argument names."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    with h5py.File(sys.argv[1], "r") as file:
        _read("/", file)
        file.visititems(_read)


if __name__ == "__main__":
    main()
