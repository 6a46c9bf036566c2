"""The critic's distance: of sets whose distance is known."""

import numpy as np
import pytest

from motley_tff.metrics.generative import client_features, wasserstein


@pytest.mark.parametrize("shift", [0.5, 3.0])
def test_a_set_that_is_shifted(shift):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 6))
    y = x + shift * np.eye(6)[2]
    found = wasserstein.distance(y, x, rng)
    assert found == pytest.approx(shift, rel=0.1)
    # Nothing of slope 1 tells them further apart.
    assert found < 1.02 * shift


def test_a_set_that_is_scaled():
    """In one dimension the distance is the mean of how far quantiles are apart. It takes |x|, of
    which such a critic has half the slope.
    """
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(4000, 1)), 2 * rng.normal(size=(4000, 1))
    exact = np.abs(np.sort(x, axis=0) - np.sort(y, axis=0)).mean()
    found = wasserstein.distance(y, x, rng)
    assert 0.45 * exact < found < 0.55 * exact


def test_the_same_set_and_the_scale():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1000, 3))
    assert abs(wasserstein.distance(x, x, rng)) < 1e-6
    once, again = (
        wasserstein.distance(k * (x + [1, 0, 0]), k * x, np.random.default_rng(0)) for k in (1, 10)
    )
    assert again == pytest.approx(10 * once, rel=1e-3)


def test_both_forms_and_progress(monkeypatch):
    """Clients' distances are weighted by examples; progress counts a critic a client."""
    x = np.arange(12.0).reshape(6, 2)
    clients = client_features.from_arrays({"a": x[:4], "b": x[4:]})
    monkeypatch.setattr(wasserstein, "distance", lambda generated, of, rng: float(len(of)))
    steps: list[int] = []
    found = wasserstein.forms(clients, x, 0, lambda: steps.append(1))
    assert found == (6.0, pytest.approx((4 * 4 + 2 * 2) / 6))
    assert len(steps) == len(clients.ids)
