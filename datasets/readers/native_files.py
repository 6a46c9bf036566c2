"""Reads MATLAB and HDF5 files in a process of its own, within a limit of time and of memory.

Their libraries are native code: on some damaged files libhdf5 never ends, and SciPy 1.9 takes sizes
and types from the file as they are, reads memory that is not its own, and ends the program without
a word. Here that is the end of a child alone.
"""

import json
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np

# A file of 100 MB takes a second.
_SECONDS = 30.0
_MOST_BYTES = 8 * 2**30


def read(kind: str, path: pathlib.Path, seconds: float = _SECONDS) -> dict[str, np.ndarray]:
    """Reads a file to its end; UserError, with the reason, if that fails or takes longer.

    Args:
      kind: `HDF5`, of which nothing is returned; or `MATLAB 5`, of which `contents` is (the kind
        and shape of each variable, `{name: words}` as JSON), and cell i of X and Y as `X i`, `Y i`,
        one that holds no numbers as text.
    """
    # Isolated: modules of this folder are not to stand in for others.
    command = [sys.executable, "-I", __file__, kind, str(path.absolute())]
    with tempfile.TemporaryFile() as out:
        try:
            done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            reason = f"reading it does not end within {seconds:g} seconds"
            raise _unreadable(kind, reason) from error
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            is_told = done.returncode > 0 and last
            raise _unreadable(kind, last[:200] if is_told else "reading it crashes Python")
        out.seek(0)
        with np.load(out) as arrays:
            return dict(arrays)


def _unreadable(kind: str, reason: str) -> Exception:
    from datasets.readers import files  # Not above: the child has no need of it.

    return files.unreadable(f"a file of {kind}", reason)


def _read_matlab(path: str) -> dict[str, np.ndarray]:
    import scipy.io

    contents = {name: f"{kind} {list(shape)}" for name, shape, kind in scipy.io.whosmat(path)}
    arrays = {"contents": np.array(json.dumps(contents))}
    for name, value in scipy.io.loadmat(path, variable_names=("X", "Y")).items():
        if name in ("X", "Y") and value.dtype == object:
            for i, cell in enumerate(map(np.asarray, value.ravel())):
                is_numeric = cell.dtype.kind in "biuf"
                arrays[f"{name} {i}"] = cell if is_numeric else np.full(cell.shape, "")
    return arrays


def _read_hdf5(path: str) -> dict[str, np.ndarray]:
    import h5py

    def look(name, item):
        list(item.attrs.values())
        if isinstance(item, h5py.Dataset):
            item[()]

    with h5py.File(path, "r") as file:
        look("/", file)
        file.visititems(look)
    return {}


READERS = {"HDF5": _read_hdf5, "MATLAB 5": _read_matlab}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    np.savez(sys.stdout.buffer, **READERS[sys.argv[1]](sys.argv[2]))
