"""Laws of the quantum of improvement, on any clients."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from motley_tff.metrics import quantum_of_improvement as quantum

# Multiples of 1/64: their differences have no rounding.
NUMBERS = st.integers(-128, 128).map(lambda n: n / 64)
FOUND = st.lists(NUMBERS, min_size=1, max_size=25).map(np.array)
PART = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=25).map(np.array)
SIZED = {"pui": 0, "mpi": 1, "api": 1, "mpd": 1, "apd": 1} | {
    name: 2 if "variance" in name else 0 for name in quantum.QUANTUM if "_" in name
}


@st.composite
def columns(draw, count):
    """Returns so many columns of as many clients."""
    rows = draw(st.lists(st.tuples(*[NUMBERS] * count), min_size=1, max_size=25))
    return np.array(rows).T


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True)


@given(columns(3), st.booleans())
def test_gains_are_over_the_better_of_both_models(models, higher_is_better):
    personalized, first, other = models
    gains = quantum.quantum(personalized, first, other, higher_is_better)
    over = [quantum.quantum(personalized, m, None, higher_is_better) for m in (first, other)]
    np.testing.assert_array_equal(gains, np.minimum(*over))
    np.testing.assert_array_equal(
        gains, quantum.quantum(personalized, other, first, higher_is_better)
    )
    np.testing.assert_array_equal(
        gains, quantum.quantum(-personalized, -first, -other, not higher_is_better)
    )
    sign = 1 if higher_is_better else -1
    np.testing.assert_array_equal(over[0] > 0, sign * personalized > sign * first)


@pytest.mark.parametrize("name", quantum.QUANTUM)
@settings(max_examples=settings().max_examples // 3)
@given(FOUND, st.randoms(use_true_random=False), st.sampled_from([0.25, 1.0, 8.0]))
def test_order_units_and_signs(name, gains, random, scale):
    function = quantum.QUANTUM[name]
    order = random.sample(range(len(gains)), len(gains))
    assert function(gains[order]) == close(function(gains))
    assert function(scale * gains) == close(scale ** SIZED[name] * function(gains))
    turned = {"mpi": "mpd", "api": "apd"}.get(name, name.replace("improved", "decreased"))
    if turned != name:
        assert quantum.QUANTUM[turned](-gains) == close(function(gains))


@given(PART)
def test_bounds_of_fairness(part):
    count = len(part)
    assert 1 / count - 1e-9 <= quantum.jain_index(part) <= 1 + 1e-9
    assert -1e-9 <= quantum.entropy(part) <= math.log(count) + 1e-9
    assert quantum.jain_index(part) == close(quantum.cosine_similarity(part) ** 2)
    mean_square = quantum.average_variance(part) + part.mean() ** 2
    assert quantum.jain_index(part) == close(part.mean() ** 2 / mean_square)
