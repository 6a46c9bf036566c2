"""The noise of the differentially private mean, beside TFF's own."""

import re

import numpy as np
import pytest

from motley_tff.core import private_mean
from motley_tff.core.lazy import tff
from tests.errors import refused


@pytest.mark.parametrize(
    ("noise", "clients", "added"),
    # With 10 clients the count's noise is worth 1: of 0.6, the updates' is 0.6 / 0.8.
    [(0.6, 10, 0.75), (0.9, 10, 2.0647), (0.99, 10, 7.018), (1.0, 100, 1.005), (0.0, 1, 0.0)],
)
def test_by_hand(noise, clients, added):
    assert private_mean.added_noise(noise, clients) == pytest.approx(added, rel=1e-3)


def _of_tff(noise, clients):
    """Returns TFF's noise, or None if it refuses."""
    try:
        factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(noise, clients)
    except ValueError:
        return None
    return factory._query._numerator._noise_multiplier


@pytest.mark.filterwarnings("ignore:A significant amount of noise")
@pytest.mark.parametrize("clients", [1, 3, 6, 7, 10, 11, 12, 14, 17, 19, 23, 99, 1234])
def test_the_border_is_inside_tffs(clients):
    """At n / 10 floats' rounding decides whether TFF takes a noise; 0.3 of 3 has 1.4e7 added."""
    most, tenth = 99 * clients / 1000, clients / 10
    for noise in (tenth / 2, most):
        added = private_mean.added_noise(noise, clients)
        assert added == pytest.approx(_of_tff(noise, clients), rel=1e-12)
        assert added < 7.1 * noise
    above = float(np.nextafter(most, np.inf))
    for noise in (above, float(np.nextafter(tenth, 0)), tenth, 3 * tenth):
        with refused("dp_noise_multiplier", noise) as caught:
            private_mean.added_noise(noise, clients)
        lower, more = re.findall("[0-9][0-9.,]*[0-9]|[0-9]", caught.value.advice)
        assert float(lower) == most
        enough = int(more.replace(",", ""))
        assert private_mean.added_noise(noise, enough) < 7.1 * noise
        with refused("dp_noise_multiplier", noise):
            private_mean.added_noise(noise, enough - 1)
