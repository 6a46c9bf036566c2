"""Files of arrays that anybody may have made."""

import io
import zipfile

import numpy as np
import psutil
import pytest

from motley_tff.experiment import checkpoints
from motley_tff.files import array_files, model_files
from tests.errors import refused


def _saved(path, **content):
    np.savez(path, **content)
    return path


def _packed(path, **members):
    """Writes a zip file of bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _text(code, order="<"):
    """Returns an array of one character, which may be none."""
    return np.frombuffer(np.uint32([code]).astype(f"{order}u4").tobytes(), f"{order}U1")


def _npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_whole_arrays_and_some_of_them(tmp_path):
    path = _saved(tmp_path / "a.npz", a=np.arange(3), b=np.array(["x", "é\U0010ffff"]))
    assert array_files.read(path)["b"].tolist() == ["x", "é\U0010ffff"]
    assert list(array_files.read(path, lambda name: name == "a")) == ["a"]
    np.save(tmp_path / "a.npy", np.arange(3))
    assert array_files.read(tmp_path / "a.npy")[""].tolist() == [0, 1, 2]


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_is_saved_is_read_and_has_no_date(tmp_path, compression):
    arrays = {"a": np.zeros((200, 3), np.float32), "ü/b": np.array("text"), "c": np.arange(0)}
    for name in ("one", "two"):
        array_files.save(tmp_path / name, arrays, compression)
    loaded = array_files.read(tmp_path / "one")
    assert list(loaded) == list(arrays)
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)
    first, second = ((tmp_path / name).read_bytes() for name in ("one", "two"))
    assert first == second and b"PK" in first
    with zipfile.ZipFile(tmp_path / "one") as archive:
        assert {info.date_time[0] for info in archive.infolist()} == {1980}
        assert {info.compress_type for info in archive.infolist()} == {compression}


def test_objects_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="pickle"):
        array_files.save(tmp_path / "a.npz", {"a": np.array([{}], object)})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (np.array([{}], object), "allow_pickle=False"),
        *((_text(*code), "'a' has text that is not Unicode")
          for code in ((0xD800,), (0xDFFF,), (0x110000,), (0x110000, ">"))),
    ],
)  # fmt: skip
def test_what_is_no_plain_array(tmp_path, content, words):
    with pytest.raises(ValueError, match=words):
        array_files.read(_saved(tmp_path / "a.npz", a=content))


def test_members_that_are_no_arrays(tmp_path):
    path = _packed(tmp_path / "a.npz", **{"00000": b"text", "w000": b"text"})
    with pytest.raises(ValueError, match="'00000' is no array"):
        array_files.read(path)
    path.rename(tmp_path / "round_00000001.npz")
    with refused(str(tmp_path), "'00000' is no array"):
        checkpoints.load(tmp_path, 1, (np.float32([1]),))
    with refused("round_00000001.npz", "'w000' is no array", "run's directory"):
        model_files.load(str(tmp_path / "round_00000001.npz"), [(1,)])


def test_more_than_fits_into_memory(tmp_path, monkeypatch):
    path = _saved(tmp_path / "a.npz", a=np.zeros(1000), b=np.zeros(10))
    free = type("Memory", (), {"available": 5000})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    with pytest.raises(ValueError, match="its arrays take 8,336 bytes, 5,000 of memory are free"):
        array_files.read(path)
    assert array_files.read(path, lambda name: name == "b")["b"].size == 10


def test_a_shape_beyond_all_memory(tmp_path):
    large = _declared(_npy(np.zeros(1)), "(10000000000000,)")
    path = _packed(tmp_path / "a.npz", **{"a.npy": large})
    with pytest.raises(ValueError, match="MemoryError|EOF|reading array data"):
        array_files.read(path)


def _declared(content, shape):
    """Returns an array's bytes with another shape in its header."""
    header = content[10:128].decode().replace("(1,)", shape).rstrip()
    return content[:10] + header.ljust(117).encode() + b"\n" + content[128:]
