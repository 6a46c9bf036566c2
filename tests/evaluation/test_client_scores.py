"""Scores are stacked, read as they were written, and joined as they were cut."""

import itertools

import numpy as np
from hypothesis import given, strategies as st

from motley_tff.evaluation import client_scores
from motley_tff.files import array_files
from tests import toy


@st.composite
def outputs(draw):
    """Returns the outputs of some clients' work, whose examples' scores have padding behind."""
    count, num_candidates = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    has_clusters, has_examples = draw(st.booleans()), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 99)))

    def output(size):
        curves = {name: np.float32(rng.normal(size=num_candidates)) for name in ("loss", "a/b")}
        metrics = {"curves": {"test": curves}, "num_examples": {"test": np.int32(size)}}
        if has_clusters:
            metrics["cluster"] = np.int32(rng.integers(3))
        sums = {"values": rng.random((4, num_candidates)), "weights": rng.integers(2, size=4)}
        metrics["example_sums"] = {"test": sums}
        if has_examples:
            scores = {"labels": rng.integers(2, size=4), "outputs": rng.random((4, num_candidates))}
            metrics["scores"] = {"test": scores}
        return metrics

    return [
        output(size) for size in draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    ]


def _bytes(arrays):
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()}


@given(outputs=outputs())
def test_arrays_come_back_from_an_archive(tmp_path_factory, outputs):
    path = tmp_path_factory.getbasetemp() / "scores.npz"
    array_files.save(path, client_scores.stack(outputs, True))
    assert _bytes(array_files.read(path)) == _bytes(client_scores.stack(outputs, True))


@given(outputs(), st.lists(st.integers(1, 5), unique=True))
def test_batches_join_to_the_whole(outputs, cuts):
    bounds = [0, *sorted(cut for cut in cuts if cut < len(outputs)), None]
    batches = [client_scores.stack(outputs[a:b], True) for a, b in itertools.pairwise(bounds)]
    assert _bytes(client_scores.join(batches)) == _bytes(client_scores.stack(outputs, True))


def test_scores_of_two_clients_by_hand():
    task = toy.classifier_silos((7, 12))

    def output(number):
        curves = {name: np.float32([number, -number]) for name in ("loss", "accuracy")}
        return {
            "curves": {"valid": curves, "test": curves},
            "num_examples": {"train": 5, "valid": number, "test": 0},
            "scores": {
                part: {"labels": np.arange(3), "outputs": np.arange(6).reshape(3, 2)}
                for part in ("valid", "test")
            },
        }

    arrays = client_scores.stack([output(1), output(2)], True)
    scores = client_scores.of_split(task, "valid", ("a", "b"), arrays)
    assert scores.values["accuracy"].tolist() == [[1, -1], [2, -2]]
    assert scores.num_personalization_examples.tolist() == [5, 5]
    assert scores.num_evaluation_examples.tolist() == [1, 2]
    assert [labels.tolist() for labels, _ in scores.examples] == [[0], [0, 1]]
    assert [outputs.tolist() for _, outputs in scores.examples] == [[[0, 1]], [[0, 1], [2, 3]]]
    assert scores.clusters is None and not scores.further
    empty = client_scores.of_split(task, "test", ("a", "b"), arrays)
    assert [len(labels) for labels, _ in empty.examples] == [0, 0]
