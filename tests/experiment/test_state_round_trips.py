"""States and scores are read as they were written, whatever they hold."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as arrays_of

from motley_tff.experiment import checkpoints, client_scores
from motley_tff.files import array_files
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


@st.composite
def scores(draw, with_beside=True):
    """Returns the scores of some clients."""
    count, num_candidates = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    # NumPy's text ends before trailing NULs.
    ids = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
    sizes = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return client_scores.Scores(
        client_ids=tuple(draw(st.lists(ids, min_size=count, max_size=count, unique=True))),
        values={
            name: rng.normal(size=(count, num_candidates)).astype(np.float32)
            for name in ("loss", "a/b")
        },
        num_personalization_examples=rng.integers(9, size=count),
        num_evaluation_examples=np.array(sizes),
        clusters=draw(st.none() | st.just(np.arange(count))),
        examples=draw(st.sampled_from([
            (), [(rng.integers(2, size=n), rng.random((n, num_candidates))) for n in sizes]
        ])),
        beside={"ood": draw(scores(with_beside=False))} if with_beside else {},
    )  # fmt: skip


def _parts(found):
    return {n: (a.dtype, a.shape, a.tobytes()) for n, a in client_scores.to_arrays(found).items()}


@given(found=scores())
def test_scores_come_back_from_an_archive(folder, found):
    array_files.save(folder / "scores.npz", client_scores.to_arrays(found))
    again = client_scores.from_arrays(array_files.read(folder / "scores.npz"))
    assert again.client_ids == found.client_ids
    assert again.beside.keys() == found.beside.keys() and again.values.keys() == found.values.keys()
    for one, other in zip(again.examples, found.examples, strict=True):
        for ours, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert _parts(again) == _parts(found)


def _rows(found, rows):
    """Returns the scores of some of the clients."""
    return dataclasses.replace(
        found,
        client_ids=found.client_ids[rows],
        values={name: array[rows] for name, array in found.values.items()},
        num_personalization_examples=found.num_personalization_examples[rows],
        num_evaluation_examples=found.num_evaluation_examples[rows],
        clusters=None if found.clusters is None else found.clusters[rows],
        examples=found.examples[rows],
    )


@given(scores(with_beside=False), st.lists(st.integers(1, 5), unique=True))
def test_blocks_of_scores_join_to_the_whole(found, cuts):
    bounds = [0, *sorted(cut for cut in cuts if cut < len(found.client_ids)), None]
    blocks = [_rows(found, slice(a, b)) for a, b in itertools.pairwise(bounds)]
    joined = client_scores.join(blocks)
    assert joined.client_ids == found.client_ids
    assert _parts(joined) == _parts(found)
