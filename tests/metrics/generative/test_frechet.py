"""Frechet distances: by hand, against scipy's matrix root, and Theorem 1 of the paper."""

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from motley_tff.metrics.generative import blocks, client_features, frechet, scores


def _fit(features):
    return frechet.fit(features, frechet.moments(features))


def _distance(first, second):
    return frechet.distance(_fit(first), _fit(second))


def _reference(mean_1, covariance_1, mean_2, covariance_2):
    """The formula as it stands in the paper."""
    root = scipy.linalg.sqrtm(covariance_1 @ covariance_2)
    trace = np.trace(covariance_1 + covariance_2 - 2 * root.real)
    return np.sum((mean_1 - mean_2) ** 2) + trace


def _column(*values):
    return np.array(values, float)[:, None]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Variances 2 and 2, means 0 and 3.
        ([-1, 1], [2, 4], 9.0),
        # Variances 2 and 8, means 0 and 2: 4 + (sqrt(8) - sqrt(2))^2.
        ([-1, 1], [0, 4], 6.0),
        # A set of one value has no variance.
        ([-1, 1], [1, 1], 3.0),
        ([5, 5], [2, 2], 9.0),
    ],
)
def test_one_feature_by_hand(first, second, expected):
    assert _distance(_column(*first), _column(*second)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_root_has_the_covariances_rank_at_any_scale(scale):
    # Of the eigenvalues 14, 0, 0 of this matrix, rounding makes some a little above 0.
    covariance = scale * np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    actual = frechet.root(covariance)
    assert actual.shape == (3, 1)
    np.testing.assert_allclose(actual @ actual.T, covariance, rtol=1e-12)
    assert frechet.root(scale * np.diag([1.0, 0.01])).shape == (2, 2)
    assert frechet.root(np.zeros((2, 2))).shape == (2, 0)


def test_scipys_matrix_root_gives_the_same():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(50, 4)) @ rng.normal(size=(4, 4)) + 1
    second = rng.normal(size=(70, 4)) @ rng.normal(size=(4, 4))
    expected = _reference(first.mean(0), np.cov(first.T), second.mean(0), np.cov(second.T))
    assert _distance(first, second) == pytest.approx(expected, rel=1e-10)
    assert _distance(second, first) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("num", "width"), [(5, 40), (40, 40), (41, 40), (200, 40)])
def test_rotating_into_more_features_changes_nothing(num, width):
    # All covariances have rank 3 of 40 at most: the naive root of their product is complex noise.
    rng = np.random.default_rng(num)
    first, second = rng.normal(size=(num, 3)), rng.normal(size=(num, 3)) * [1, 2, 3] + 1
    rotation = scipy.stats.ortho_group.rvs(width, random_state=rng)[:3]
    wide = _distance(first @ rotation, second @ rotation)
    assert wide == pytest.approx(_distance(first, second), rel=1e-9)


def test_moments_in_blocks_and_merged(monkeypatch):
    single = (np.random.default_rng(4).normal(size=(101, 5)) + 1e3).astype(np.float32)
    features = single.astype(float)
    monkeypatch.setattr(blocks, "NUM_ROWS", 7)
    whole = frechet.moments(single)
    assert whole.num == 101
    np.testing.assert_allclose(whole.mean, features.mean(0), rtol=1e-13)
    np.testing.assert_allclose(whole.scatter, np.cov(features.T) * 100, rtol=1e-9)
    first, second = frechet.moments(single[:30]), frechet.moments(single[30:])
    for merged in (frechet.merged(first, second), frechet.merged(second, first)):
        assert merged.num == 101
        np.testing.assert_allclose(merged.mean, whole.mean, rtol=1e-13)
        np.testing.assert_allclose(merged.scatter, whole.scatter, rtol=1e-9, atol=1e-9)


def test_theorem_1_fid_all_depends_on_the_moments_of_the_mixture():
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=(n, 3)) * rng.uniform(1, 3, 3) + n / 20 for n in (20, 50, 90)]
    generated = rng.normal(size=(60, 3))
    n = np.array([len(a) for a in arrays])
    shares, means = n / n.sum(), [a.mean(0) for a in arrays]
    mean = np.einsum("i,id->d", shares, means)
    covariance = sum(
        share * (np.cov(a.T, ddof=0) + np.outer(m, m))
        for share, a, m in zip(shares, arrays, means, strict=True)
    ) - np.outer(mean, mean)
    unbiased = covariance * n.sum() / (n.sum() - 1)
    expected = _reference(mean, unbiased, generated.mean(0), np.cov(generated.T))
    clients = client_features.from_arrays({str(i): a for i, a in enumerate(arrays)})
    row = scores.table(clients, {"g": generated}, 0).rows[0]
    assert row["fid_all"] == pytest.approx(expected, rel=1e-10)
    average = sum(s * _distance(a, generated) for s, a in zip(shares, arrays, strict=True))
    assert row["fid_avg"] == pytest.approx(average, rel=1e-12)
