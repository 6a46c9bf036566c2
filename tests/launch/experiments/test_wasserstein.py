"""The critic's distance: of sets whose distance is known."""

import numpy as np
import pytest

from launch.experiments.generative import wasserstein
from motley_tff.metrics.generative import client_features


@pytest.mark.parametrize("shift", [0.5, 3.0])
def test_a_set_that_is_shifted_and_the_scale(shift):
    x = np.random.default_rng(0).normal(size=(300, 4))
    once, again = (
        wasserstein.distance(k * (x + shift * np.eye(4)[2]), k * x, np.random.default_rng(0), 30)
        for k in (1, 10)
    )
    # Nothing of slope 1 tells them further apart.
    assert 0.95 * shift < once < 1.005 * shift
    assert again == pytest.approx(10 * once, rel=1e-3)


def test_both_forms_and_progress(monkeypatch):
    """Clients' distances are weighted by examples; progress counts a critic a client."""
    x = np.arange(12.0).reshape(6, 2)
    clients = client_features.from_arrays({"a": x[:4], "b": x[4:]})
    monkeypatch.setattr(wasserstein, "distance", lambda generated, client, rng: float(len(client)))
    steps: list[int] = []
    forms = wasserstein.forms(clients, x, 0, lambda: steps.append(1))
    assert forms == (6.0, pytest.approx((4 * 4 + 2 * 2) / 6))
    assert len(steps) == len(clients.ids)
