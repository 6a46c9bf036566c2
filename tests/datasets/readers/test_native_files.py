"""Files that their own libraries would not come back from: they end in one line."""

import h5py
import numpy as np
import pytest

import datasets
from datasets.readers import native_files
from tests.datasets import test_school
from tests.errors import refused


@pytest.fixture
def hdf5(tmp_path):
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file.attrs["layer_names"] = [b"a", b"b"]
        for name in "abc":
            file.create_dataset(f"{name}/kernel", data=np.arange(300.0))
    return tmp_path / "weights.h5"


def test_a_whole_hdf5_file_a_cut_one_and_another(hdf5):
    assert native_files.read("HDF5", hdf5) == {}
    hdf5.write_bytes(hdf5.read_bytes()[:-1000])
    with refused(finding="truncated file: eof", expected="HDF5"):
        native_files.read("HDF5", hdf5)


def test_a_group_without_end(hdf5):
    """A group's list of members whose next piece is itself."""
    data = bytearray(hdf5.read_bytes())
    tree = data.index(b"TREE")  # Its signature; the address of what follows is 16 bytes on.
    data[tree + 16 : tree + 24] = tree.to_bytes(8, "little")
    hdf5.write_bytes(data)
    with refused(finding="does not end within 1 seconds"):
        native_files.read("HDF5", hdf5, seconds=1.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        # A type that SciPy takes as it is: it reads memory that is not its own, and is killed.
        (b"\x02\x00\x00\x00\x0a\x00\x00\x00", b"\x02\x04\x00\x00\x0a\x00\x00\x00", ""),
        # More values than the file has, and more than memory.
        (b"\x02\x00\x00\x00\x0a\x00\x00\x00", b"\x02\x00\x00\x00\xff\xff\xff\x7f", ""),
        (b"IM", b"XX", ""),
    ],
)
def test_a_wrong_bit_of_a_matlab_file(tmp_path, old, new, words):
    path = test_school.mat(tmp_path / "school.mat")
    content = path.read_bytes()
    place = content.rindex(old) if len(old) > 2 else content.index(old)
    path.write_bytes(content[:place] + new + content[place + len(old) :])
    with refused(str(path), words, "MATLAB 5"):
        datasets.create("school", data_file=str(path))
