"""Checkpoints and model files: exact, safe, and clear about what does not fit."""

import collections

import numpy as np
import tensorflow as tf
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as arrays_of

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


def test_damaged_and_pickled_files_are_refused(tmp_path):
    checkpoints.save(tmp_path, 1, STATE)
    path = tmp_path / "round_00000001.npz"
    path.write_bytes(path.read_bytes()[:100])
    with refused(str(path), expected="whole", advice="move it away"):
        checkpoints.load(tmp_path, 1, STATE)
    np.savez(path, **{"00000": np.array([{"code": print}], dtype=object)})
    with refused(str(path), "pickle", "whole"):
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


LEAVES = arrays_of.arrays(
    st.sampled_from([np.float32, np.int32, np.int64, np.bool_]),
    arrays_of.array_shapes(min_dims=0, min_side=0, max_dims=2, max_side=3),
)
STATES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
    ),
    max_leaves=14,
)


def _bytes(state):
    return [(leaf.dtype, leaf.shape, leaf.tobytes()) for leaf in tf.nest.flatten(state)]


@given(state=STATES, other=STATES)
@example(state=(np.zeros(2),), other=(np.zeros(3),))
def test_a_state_comes_back_into_its_own_structure_alone(tmp_path_factory, state, other):
    folder = tmp_path_factory.mktemp("round_trips")
    checkpoints.save(folder, 1, state)
    loaded = checkpoints.load(folder, 1, state)
    tf.nest.assert_same_structure(loaded, state)
    assert _bytes(loaded) == _bytes(state)
    if [kind[:2] for kind in _bytes(state)] != [kind[:2] for kind in _bytes(other)]:
        with refused("round_00000001.npz", "another model"):
            checkpoints.load(folder, 1, other)
