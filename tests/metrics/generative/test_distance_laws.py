"""Laws of the distances of sets of features, on any sets."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays_of

from motley_tff.metrics.generative import frechet, kernel

# Whole numbers: sums of their squares and cubes have no rounding.
NUMBERS = st.integers(-5, 5).map(float)


def sets(count, least=2, most=8):
    """Returns so many sets [num_examples, num_features] of as many features."""
    return st.integers(1, 4).flatmap(
        lambda width: st.tuples(*[
            arrays_of.arrays(
                float, st.tuples(st.integers(least, most), st.just(width)), elements=NUMBERS
            )
        ] * count)
    )  # fmt: skip


def _fid(first, second):
    return frechet.distance(*(frechet.fit(x, frechet.moments(x)) for x in (first, second)))


def _kid(first, second, unbiased=False):
    total = kernel.total(first, second)
    return kernel.distance(kernel.within(first), kernel.within(second), total, unbiased)


def close(value):
    # Of a root of what is zero but for rounding, half the digits are left.
    return pytest.approx(value, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("distance", [_fid, _kid])
@given(sets(2), st.randoms(use_true_random=False))
def test_a_distance_is_symmetric_not_negative_and_zero_to_itself(distance, both, random):
    first, second = both
    actual = distance(first, second)
    assert actual >= -1e-9
    assert distance(second, first) == close(actual)
    order = random.sample(range(len(first)), len(first))
    assert distance(first[order], second) == close(actual)
    assert distance(first, first[order]) == close(0)


@given(sets(2), st.integers(-9, 9), st.sampled_from([0.5, 2.0, -1.0]))
def test_moving_and_scaling_both_sets(both, shift, scale):
    first, second = (scale * x + shift for x in both)
    assert _fid(first, second) == close(scale**2 * _fid(*both))
    # A set and its copy elsewhere are as far apart as they were moved.
    width = both[0].shape[1]
    assert _fid(both[0], both[0] + shift) == close(shift**2 * width)


@given(sets(2), st.integers(0, 9))
def test_one_feature_in_closed_form_beside_any_that_are_constant(both, num_others):
    first, second = (x[:, :1] for x in both)
    expected = (first.mean() - second.mean()) ** 2 + (first.std(ddof=1) - second.std(ddof=1)) ** 2
    wide = (np.pad(x, ((0, 0), (0, num_others)), constant_values=3) for x in (first, second))
    assert _fid(*wide) == close(expected)
