"""Checkpoints and model files: exact, safe, and clear about what does not fit."""

import collections

import numpy as np

from motley_tff.experiment import checkpoints
from motley_tff.files import model_files
from tests.errors import refused

STATE = (
    (np.float32([[1 / 3, -0.0]]),),
    collections.OrderedDict(learning_rate=np.float32(0.1), step=np.int32(3)),
    {"silo": np.float32([np.nan, np.inf])},
    (),
)


def test_the_newest_two_are_kept(tmp_path):
    for number in (1, 20, 3):
        checkpoints.save(tmp_path, number, STATE)
    assert checkpoints.rounds(tmp_path) == [3, 20]
    assert checkpoints.rounds(tmp_path / "none") == []


def test_what_a_save_that_was_killed_had_still_to_remove(tmp_path, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr(checkpoints, "forget_old", lambda directory: None)
        for number in (1, 2, 3):
            checkpoints.save(tmp_path, number, STATE)
    assert checkpoints.rounds(tmp_path) == [1, 2, 3]
    checkpoints.forget_old(tmp_path)
    assert checkpoints.rounds(tmp_path) == [2, 3]


def test_damaged_and_pickled_files_are_refused(tmp_path):
    checkpoints.save(tmp_path, 1, STATE)
    path = tmp_path / "round_00000001.npz"
    path.write_bytes(path.read_bytes()[:100])
    with refused(str(path), expected="read", advice="move it away"):
        checkpoints.load(tmp_path, 1, STATE)
    np.savez(path, **{"00000": np.array([{"code": print}], dtype=object)})
    with refused(str(path), expected="read"):
        checkpoints.load(tmp_path, 1, STATE)


def test_model_files(tmp_path):
    weights = (np.float32([[1, 2]]), np.float32([3]))
    path = tmp_path / model_files.FILE_NAME
    model_files.save(path, ["kernel", "bias"], weights)
    for place in (path, tmp_path):
        loaded = model_files.load(str(place), [(1, 2), (1,)])
        for a, b in zip(weights, loaded, strict=True):
            np.testing.assert_array_equal(a, b)
    with refused(str(path), expected="[(1, 2)] in float32"):
        model_files.load(str(path), [(1, 2)])
    with refused("nowhere", expected="SavedModel"):
        model_files.load(str(tmp_path / "nowhere"), [(1, 2)])
    path.write_bytes(b"PK\x03\x04 no zip")
    with refused(str(path), "no initial weights", "SavedModel"):
        model_files.load(str(path), [(1, 2)])
