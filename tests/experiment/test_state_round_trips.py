"""States are read as they were written, whatever they hold."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as arrays_of

from motley_tff.experiment import checkpoints
from tests.errors import refused

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("round_trips")


def _bytes(state):
    return [(leaf.dtype, leaf.shape, leaf.tobytes()) for leaf in tf.nest.flatten(state)]


@given(state=STATES, other=STATES)
@example(state=(np.zeros(2),), other=(np.zeros(3),))
def test_a_state_comes_back_into_its_own_structure_alone(folder, state, other):
    checkpoints.save(folder, 1, state)
    loaded = checkpoints.load(folder, 1, state)
    tf.nest.assert_same_structure(loaded, state)
    assert _bytes(loaded) == _bytes(state)
    if [kind[:2] for kind in _bytes(state)] != [kind[:2] for kind in _bytes(other)]:
        with refused("round_00000001.npz", "another model"):
            checkpoints.load(folder, 1, other)
