"""What every registered population metric keeps to, and hand-computed values."""

import numpy as np
import pytest

from motley_tff import metrics
from motley_tff.metrics import client_values


def _values(baseline, personalized, higher_is_better=True, **more):
    count = len(baseline)
    return client_values.ClientValues(
        np.arange(count).astype(str),
        np.array(baseline, float),
        np.array(personalized, float),
        higher_is_better,
        np.ones(count, int),
        **more,
    )


@pytest.mark.parametrize("name", metrics.POPULATION)
def test_row_order_does_not_matter(name):
    rng = np.random.default_rng(0)
    baseline, personalized = rng.random((2, 50))
    clusters, groups = rng.integers(3, size=50), rng.choice(["en", "es"], 50)
    order = rng.permutation(50)
    function = metrics.POPULATION[name]
    found = function(_values(baseline, personalized, clusters=clusters, groups=groups))
    turned = _values(
        baseline[order], personalized[order], clusters=clusters[order], groups=groups[order]
    )
    assert found == pytest.approx(function(turned), rel=1e-12) and np.isfinite(found)


def test_three_clients_by_hand():
    hurt = metrics.POPULATION["pct_clients_hurt"]
    # One better, one the same, one worse.
    assert hurt(_values([0.5, 0.5, 0.5], [0.6, 0.5, 0.4])) == pytest.approx(100 / 3)
    errors = _values([0.5, 0.5, 0.5], [0.6, 0.7, 0.4], higher_is_better=False)
    assert hurt(errors) == pytest.approx(200 / 3)
    np.testing.assert_allclose(errors.delta, [-0.1, -0.2, 0.1])


def test_a_personalized_model_that_diverged_hurts():
    values = _values([0.5, 0.5], [np.nan, 0.6])
    np.testing.assert_array_equal(values.is_hurt, [True, False])
