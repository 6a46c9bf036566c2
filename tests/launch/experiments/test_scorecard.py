"""FedEval's formulas, by hand."""

import math

import pytest

from launch.experiments.fedeval import scorecard


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        # The baseline itself: 1 point each.
        ((100, 1000, 10), (1, 1, 1)),
        # Half of everything: 1 + 4 * 50 / 99, and 1 + 4 / 2 twice.
        ((50, 500, 5), (1 + 200 / 99, 3, 3)),
        # The best there is.
        ((1, 0, 0), (5, 5, 5)),
        # Twice the cost.
        ((200, 2000, 20), (math.exp(-1),) * 3),
        # One is cheaper and one dearer.
        ((25, 4000, 10), (1 + 300 / 99, math.exp(-3), 1)),
    ],
)
def test_costs(cost, expected):
    scores = scorecard.cost_scores(scorecard.Cost(*cost), scorecard.Cost(100, 1000, 10))
    assert scores == pytest.approx(expected)
    assert scorecard.efficiency(scores) == pytest.approx(sum(expected) / 3)


def test_disparity():
    assert scorecard.disparity(0.9, 1.0, True) == pytest.approx(0.1)
    assert scorecard.disparity(1.1, 1.0, False) == pytest.approx(0.1)
    assert scorecard.disparity(0.9, 0.6, True) == pytest.approx(-0.5)
    assert scorecard.disparity(0.9, 1.0, False) == pytest.approx(-0.1)
    # Of hinge margins and the like, which may be below zero.
    assert scorecard.disparity(-2.2, -2.0, True) == pytest.approx(0.1)
    assert scorecard.disparity(0.0, 0.0, True) == 0
    assert scorecard.disparity(0.1, 0.0, False) == math.inf
    assert scorecard.disparity(0.1, 0.0, True) == -math.inf


@pytest.mark.parametrize(
    ("value", "iid", "handled", "effectiveness"),
    [
        (1.2, 3, 1, 5),
        (0.99, 3, 1, 5),
        (0.989, 2, 1, 4),
        (0.97, 2, 1, 4),
        (0.969, 1, 1, 3),
        (0.95, 1, 1, 3),
        (0.949, 0, 0, 2),
        (0.90, 0, 0, 2),
        (0.899, 0, 0, 1),
        (0.80, 0, 0, 1),
        (0.799, 0, 0, 0),
    ],
)
def test_points_for_a_value_beside_a_reference_of_1(value, iid, handled, effectiveness):
    disparity = scorecard.disparity(value, 1.0, higher_is_better=True)
    assert scorecard.iid_points(disparity) == iid
    assert scorecard.handled_points(disparity) == handled
    assert scorecard.effectiveness(True, disparity) == effectiveness
    assert scorecard.effectiveness(False, disparity) == 0


def test_robustness_goes_from_0_to_5():
    assert scorecard.robustness([3, 1, 1]) == 5 == scorecard.MOST
    assert scorecard.robustness([0, 0, 0]) == 0
    assert scorecard.robustness([2, 0, 1]) == 3
    # Nothing is made of what was not measured.
    assert scorecard.robustness([3, 1, None]) is None and scorecard.robustness([None]) is None
    assert scorecard.efficiency(None) is None


def test_federated_seconds_by_hand():
    """1 MB down and 2 MB up at 8 and 4 Mbit/s take 1 and 4 s; 0.1 s twice, 3 and 0.5 s of work."""
    network = scorecard.Network(8.0, 4.0, 100.0)
    assert scorecard.federated_seconds(1e6, 2e6, 3.0, 0.5, network) == pytest.approx(8.7)
