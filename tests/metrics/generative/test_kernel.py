"""Kernel distances: by hand, against scikit-learn's kernel, and Theorem 2 of the paper."""

import numpy as np
import pytest
from sklearn.metrics import pairwise

from motley_tff.metrics.generative import blocks, client_features, kernel, scores


def _distance(first, second, unbiased):
    total = kernel.total(first, second)
    return kernel.distance(kernel.within(first), kernel.within(second), total, unbiased)


def _column(*values):
    return np.array(values, float)[:, None]


def test_one_feature_by_hand():
    # k(0, 0) = 1, k(1, 1) = 2^3, k(0, 1) = 1.
    assert _distance(_column(0), _column(1), unbiased=False) == 1 + 8 - 2
    # k(0, 1) = 1 and k(1, 2) = 27 within; k(0, 1), k(0, 2), k(1, 1), k(1, 2) = 1, 1, 8, 27 between.
    assert _distance(_column(0, 1), _column(1, 2), unbiased=True) == 1 + 27 - 2 * 37 / 4
    assert np.isnan(_distance(_column(0), _column(1, 2), unbiased=True))


def test_the_unbiased_form_is_below_0_of_a_copy_and_about_0_of_an_honest_sample():
    rng = np.random.default_rng(0)
    real = rng.normal(size=(20, 3))
    alone = kernel.within(real)
    # Between copies each example meets itself, within a set it does not.
    apart = alone.diagonal / 20 - alone.mean(unbiased=True)
    copied = _distance(real, real, unbiased=True)
    assert copied == pytest.approx(-2 * apart / 20) == pytest.approx(-0.71, abs=0.005)
    alike = [_distance(*rng.normal(size=(2, 20, 3)), unbiased=True) for _ in range(400)]
    assert abs(np.mean(alike)) < 4 * np.std(alike) / 20


def _reference(first, second, unbiased):
    def k(a, b):
        return pairwise.polynomial_kernel(a, b, degree=3, gamma=1 / a.shape[1], coef0=1)

    def within(a):
        values = k(a, a)
        return values[~np.eye(len(a), dtype=bool)].mean() if unbiased else values.mean()

    return within(first) + within(second) - 2 * k(first, second).mean()


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("width", [2, 16, 17, 40])
def test_scikit_learns_kernel_gives_the_same(monkeypatch, width, unbiased):
    rng = np.random.default_rng(width)
    first, second = rng.normal(size=(30, width)), rng.normal(size=(41, width)) * 1.5 + 0.3
    monkeypatch.setattr(blocks, "NUM_ROWS", 8)
    expected = _reference(first, second, unbiased)
    assert _distance(first, second, unbiased) == pytest.approx(expected, rel=1e-10)
    assert _distance(second, first, unbiased) == pytest.approx(expected, rel=1e-10)


def _clients(rng, sizes, apart):
    return client_features.from_arrays(
        {str(i): rng.normal(size=(n, 3)) + apart * i for i, n in enumerate(sizes)}
    )


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_theorem_2(apart):
    rng = np.random.default_rng(1)
    clients = _clients(rng, (5, 20, 40), apart)
    generated = {str(s): rng.normal(size=(10 + 7 * s, 3)) * s + s for s in range(1, 6)}
    rows = scores.table(clients, generated, 0).rows

    def gaps(name):
        return np.array([row[f"{name}_avg"] - row[f"{name}_all"] for row in rows])

    own = [clients.features[part] for part in clients.parts]
    biased, unbiased = (
        clients.shares @ [_reference(clients.features, client, form) for client in own]
        for form in (False, True)
    )
    # The biased form is the distance of distributions, which the theorem is about.
    np.testing.assert_allclose(gaps("kid_biased"), biased, rtol=1e-9)
    # The unbiased one differs by a constant as well, by another one than that.
    np.testing.assert_allclose(gaps("kid"), gaps("kid")[0], rtol=1e-9)
    assert abs(gaps("kid")[0] - unbiased) > 1e-3
    for row, generated_set in zip(rows, generated.values(), strict=True):
        expected = clients.shares @ [_reference(client, generated_set, True) for client in own]
        assert row["kid_avg"] == pytest.approx(expected, rel=1e-9)
