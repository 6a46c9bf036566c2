"""The selection rule, against choices made by hand."""

import numpy as np
import pytest

from motley_tff.core import candidates

ACCURACY = np.array([[0.5, 0.7, 0.6], [0.5, 0.4, 0.6], [0.2, 0.3, 0.2]])


def test_global_takes_best_unweighted_mean():
    # Means .4, .4667, .4667: a tie, which goes to the smaller epoch.
    assert candidates.choose(ACCURACY, True) == 1


def test_error_metrics_take_the_lowest():
    assert candidates.choose(ACCURACY, False) == 0


def test_baseline_can_be_left_out():
    assert candidates.choose(ACCURACY, False, include_baseline=False) == 1


def test_baseline_is_taken_when_alone():
    assert candidates.choose(ACCURACY[:, :1], True, include_baseline=False) == 0


def test_per_client():
    np.testing.assert_array_equal(candidates.choose(ACCURACY, True, "per_client"), [1, 2, 1])
    np.testing.assert_array_equal(
        candidates.choose(ACCURACY, False, "per_client", include_baseline=False), [2, 1, 2]
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_diverged_candidates_are_not_taken(bad):
    values = ACCURACY.copy()
    values[0, 1] = bad
    assert candidates.choose(values, True) == 2
    assert candidates.choose(values, True, "per_client")[0] == 2


def test_a_client_without_a_score_has_no_say():
    values = np.array([[0.1, 0.5], [0.1, 0.6], [np.nan, np.nan]])
    assert candidates.choose(values, True) == 1
    assert candidates.choose(values[2:], True) == 0


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
