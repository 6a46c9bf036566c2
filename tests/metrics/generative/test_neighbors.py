"""Precision, recall, density, coverage: by hand, and against all distances at once."""

import numpy as np
import pytest
from scipy.spatial import distance
from sklearn.neighbors import NearestNeighbors

from motley_tff.metrics.generative import blocks, neighbors


def _scores(real, parts, generated, k):
    centre = real.mean(axis=0)
    fake = neighbors.balls(generated, centre, [slice(0, len(generated))], k)
    return neighbors.scores(neighbors.balls(real, centre, parts, k), parts, fake, k)


def _column(*values):
    return np.array(values, float)[:, None]


def test_by_hand():
    # One neighbour: real balls [-1, 1], [0, 2], [1, 5], [-5, 11]; generated [-4, 5], [0, 10],
    # [5, 15], [10, 30].
    real, generated = _column(0, 1, 3, 3 + 8), _column(0.5, 5, 10, 20)
    assert neighbors.balls(real, np.zeros(1), [slice(0, 4)], 1).squared_radii.tolist() == [
        1, 1, 4, 64,
    ]  # fmt: skip
    scores = _scores(real, [slice(0, 4)], generated, 1)
    # Balls around 0.5: those of 0 and 1. 5: of 3 (its border) and of 11. 10: of 11. 20: none.
    assert scores == (3 / 4, 1.0, (2 + 2 + 1 + 0) / 4, 1.0)


def test_by_hand_for_two_clients():
    # Clients [0, 1] and [3, 11]: balls [-1, 1], [0, 2] and [-5, 11], [3, 19].
    real, generated = _column(0, 1, 3, 11), _column(0.5, 5, 12, 25)
    scores = _scores(real, [slice(0, 2), slice(2, 4)], generated, 1)
    assert scores.precision == np.mean([1 / 4, 3 / 4])
    assert scores.density == np.mean([2 / 4, (1 + 2 + 1) / 4])
    assert scores.coverage == 1.0
    # Generated balls: 4.5 around 0.5 and 5, 7 around 12, 13 around 25.
    assert scores.recall == 1.0


def _reference(real, generated, k):
    """The definitions, from all distances."""

    def radii(features):
        return NearestNeighbors(n_neighbors=k).fit(features).kneighbors()[0][:, -1]

    apart = distance.cdist(real, generated)
    inside = apart <= radii(real)[:, None]
    recalled = (apart <= radii(generated)[None, :]).any(axis=1).mean()
    return (
        inside.any(axis=0).mean(),
        recalled,
        inside.sum() / k / len(generated),
        inside.any(axis=1).mean(),
    )


@pytest.mark.parametrize("k", [1, 5])
def test_all_distances_at_once_give_the_same(monkeypatch, k):
    rng = np.random.default_rng(k)
    real, generated = rng.normal(size=(60, 4)), rng.normal(size=(35, 4)) * 1.3 + 0.8
    monkeypatch.setattr(blocks, "NUM_ROWS", 8)
    whole = _scores(real, [slice(0, 60)], generated, k)
    assert whole == pytest.approx(_reference(real, generated, k), abs=1e-12)
    parts = [slice(0, 10), slice(10, 31), slice(31, 60)]
    average = _scores(real, parts, generated, k)
    each = [_reference(real[part], generated, k) for part in parts]
    shares = [10 / 60, 21 / 60, 29 / 60]
    assert average == pytest.approx(tuple(np.average(each, axis=0, weights=shares)), abs=1e-12)
    assert average.recall == whole.recall
    assert 0 < whole.recall < 1 and average.precision != whole.precision


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_a_copy_lies_on_all_borders(offset):
    features = np.random.default_rng(0).normal(size=(50, 3)) + offset
    copied = np.random.default_rng(1).permutation(features)
    # Each ball of 3 neighbours holds these and its centre.
    assert _scores(features, [slice(0, 50)], copied, 3) == (1.0, 1.0, 4 / 3, 1.0)


def test_balls_without_extent_hold_copies():
    features = np.repeat(np.random.default_rng(0).normal(size=(5, 3)), 4, axis=0)
    # Each stands 4 times: the three others are its neighbours.
    assert _scores(features, [slice(0, 20)], features[::4].repeat(4, 0), 3) == (1, 1, 4 / 3, 1)
    far = features + 10.0
    assert _scores(features, [slice(0, 20)], far, 3) == (0, 0, 0, 0)
