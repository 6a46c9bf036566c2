"""Scores are read as they were written, and joined as they were cut, whatever they hold."""

import dataclasses
import itertools

import numpy as np
from hypothesis import given, strategies as st

from motley_tff.evaluation import client_scores
from motley_tff.files import array_files


@st.composite
def scores(draw, with_further=True):
    """Returns the scores of some clients."""
    count, num_candidates = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    # NumPy's text ends before trailing NULs.
    ids = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
    sizes = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return client_scores.ClientScores(
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
        further={"ood": draw(scores(with_further=False))} if with_further else {},
    )  # fmt: skip


def _parts(whole):
    return {n: (a.dtype, a.shape, a.tobytes()) for n, a in client_scores.to_arrays(whole).items()}


@given(whole=scores())
def test_scores_come_back_from_an_archive(tmp_path_factory, whole):
    path = tmp_path_factory.getbasetemp() / "scores.npz"
    array_files.save(path, client_scores.to_arrays(whole))
    again = client_scores.from_arrays(array_files.read(path))
    assert again.client_ids == whole.client_ids
    assert (
        again.further.keys() == whole.further.keys() and again.values.keys() == whole.values.keys()
    )
    for loaded, saved in zip(again.examples, whole.examples, strict=True):
        for loaded_array, saved_array in zip(loaded, saved, strict=True):
            np.testing.assert_array_equal(loaded_array, saved_array)
    assert _parts(again) == _parts(whole)


def _rows(whole, rows):
    """Returns the scores of some of the clients."""
    return dataclasses.replace(
        whole,
        client_ids=whole.client_ids[rows],
        values={name: array[rows] for name, array in whole.values.items()},
        num_personalization_examples=whole.num_personalization_examples[rows],
        num_evaluation_examples=whole.num_evaluation_examples[rows],
        clusters=None if whole.clusters is None else whole.clusters[rows],
        examples=whole.examples[rows],
    )


@given(scores(with_further=False), st.lists(st.integers(1, 5), unique=True))
def test_batches_of_scores_join_to_the_whole(whole, cuts):
    bounds = [0, *sorted(cut for cut in cuts if cut < len(whole.client_ids)), None]
    batches = [_rows(whole, slice(a, b)) for a, b in itertools.pairwise(bounds)]
    joined = client_scores.join(batches)
    assert joined.client_ids == whole.client_ids
    assert _parts(joined) == _parts(whole)
