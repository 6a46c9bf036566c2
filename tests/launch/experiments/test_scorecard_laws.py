"""Laws of FedEval's scorecard."""

from hypothesis import given, strategies as st

from launch.experiments.fedeval import scorecard

COSTS = st.floats(0, 1e6)
CHANGES = st.floats(-1, 1) | st.sampled_from([0.01, 0.03, 0.05, 0.1, 0.2])
VALUES = st.integers(-100, 100).map(lambda n: n / 16)


def _score(cost, baseline):
    one = scorecard.Cost(1.0, cost, 1.0)
    return scorecard.cost_scores(one, scorecard.Cost(1.0, baseline, 1.0)).bytes


@given(COSTS, COSTS, st.floats(1e-3, 1e6))
def test_dearer_is_never_better(cost, other, baseline):
    low, high = sorted((cost, other))
    assert 0 <= _score(high, baseline) <= _score(low, baseline) <= scorecard.MOST
    assert _score(baseline, baseline) == 1
    assert _score(0, baseline) == scorecard.MOST


@given(CHANGES, CHANGES)
def test_worse_never_has_more_points(change, other):
    low, high = sorted((change, other))
    for points, most in (
        (scorecard.iid_points, 3),
        (scorecard.handled_points, 1),
        (lambda found: scorecard.effectiveness(True, found), 5),
    ):
        assert 0 <= points(high) <= points(low) <= most
        assert points(min(low, 0)) == most
    # Who is handled has a point for alike clients, too.
    assert scorecard.handled_points(low) == min(1, scorecard.iid_points(low))
