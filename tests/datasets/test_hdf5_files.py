"""HDF5 files that h5py alone would not come back from."""

import h5py
import numpy as np
import pytest

from datasets import hdf5_files


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file.attrs["layer_names"] = [b"a", b"b"]
        for name in "abc":
            file.create_dataset(f"{name}/kernel", data=np.arange(300.0))
    return tmp_path / "weights.h5"


def test_a_whole_file_a_cut_one_and_another(path):
    assert hdf5_files.problem(path) == ""
    path.write_bytes(path.read_bytes()[:-1000])
    assert "truncated" in hdf5_files.problem(path)
    path.write_bytes(b"nothing of the kind")
    assert "signature" in hdf5_files.problem(path)


@pytest.mark.slow
def test_a_group_without_end(path):
    """A group's list of members whose next piece is itself."""
    data = bytearray(path.read_bytes())
    tree = data.index(b"TREE")  # Its signature; the address of what follows is 16 bytes on.
    data[tree + 16 : tree + 24] = tree.to_bytes(8, "little")
    path.write_bytes(data)
    assert hdf5_files.problem(path, seconds=5.0) == "reading it does not end within 5 seconds"
