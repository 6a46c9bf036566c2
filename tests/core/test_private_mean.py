"""The noise of the differentially private mean, beside TFF's own."""

import re

import numpy as np
import pytest

from motley_tff.core import private_mean
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tff


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
@pytest.mark.parametrize("clients", [1, 3, 7, 10, 11, 99])
def test_the_border_is_tffs(clients):
    tenth = clients / 10
    for noise in (tenth / 2, float(np.nextafter(tenth, 0)), tenth, float(np.nextafter(tenth, 9))):
        if (expected := _of_tff(noise, clients)) is not None:
            assert private_mean.added_noise(noise, clients) == pytest.approx(expected, rel=1e-12)
            continue
        with pytest.raises(UserError) as refused:
            private_mean.added_noise(noise, clients)
        lower, more = re.search(
            "multiplier=([0-9.]+), or .* least ([0-9]+) ", str(refused.value)
        ).groups()
        assert _of_tff(float(lower), clients) is not None
        assert _of_tff(noise, int(more)) is not None and _of_tff(noise, int(more) - 1) is None
