"""The selection rule, against choices made by hand."""

import numpy as np
import pytest

from motley_tff.core import candidates

ACCURACY = np.array([[0.5, 0.7, 0.6], [0.5, 0.4, 0.6], [0.2, 0.3, 0.2]])


@pytest.mark.parametrize(
    ("values", "higher_is_better", "tuning", "include_baseline", "chosen"),
    [
        # Means .4, .4667, .4667: a tie, which goes to the smaller epoch.
        (ACCURACY, True, "global", True, 1),
        (ACCURACY, False, "global", True, 0),
        (ACCURACY, False, "global", False, 1),
        (ACCURACY[:, :1], True, "global", False, 0),  # There is nothing else.
        (ACCURACY, True, "per_client", True, [1, 2, 1]),
        (ACCURACY, False, "per_client", False, [2, 1, 2]),
    ],
)
def test_by_hand(values, higher_is_better, tuning, include_baseline, chosen):
    actual = candidates.choose(values, higher_is_better, tuning, include_baseline)
    np.testing.assert_array_equal(actual, chosen)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_diverged_candidates_are_not_taken(bad):
    values = ACCURACY.copy()
    values[0, 1] = bad
    assert candidates.choose(values, True) == 2
    assert candidates.choose(values, True, "per_client")[0] == 2


def test_of_candidates_that_all_diverged_for_somebody_those_are_left_that_did_for_fewest():
    values = np.array(
        [[0.1, np.nan, 0.9], [-np.inf, 0.6, 0.5], [0.2, 0.3, np.nan], [0, 0.9, -np.inf]]
    )
    np.testing.assert_array_equal(candidates.diverged_for(values), [1, 1, 2])
    assert candidates.choose(values, True) == 1  # Means .1 and .6 of three clients each.
    assert candidates.choose(values, True, include_baseline=False) == 1


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, -1e3])
@pytest.mark.parametrize(("apart", "chosen"), [(8e-8, 0), (2e-7, 1)])
def test_a_tie_is_relative(scale, apart, chosen):
    values = np.array([[scale, scale + abs(scale) * apart]])
    assert candidates.choose(values, True) == chosen
    assert candidates.choose(-values, False) == chosen


def test_take():
    np.testing.assert_array_equal(candidates.take(ACCURACY, np.int64(2)), [0.6, 0.6, 0.2])
    np.testing.assert_array_equal(candidates.take(ACCURACY, np.array([0, 1, 2])), [0.5, 0.4, 0.2])


def test_wrong_shape():
    with pytest.raises(ValueError, match="clients"):
        candidates.choose(np.zeros([0, 3]), True)
