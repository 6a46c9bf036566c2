"""ROC-AUC over clients: the article's four cases, by hand, clients of one class, and laws."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn import metrics as sklearn_metrics

from motley_tff.metrics import roc_auc

# Four clients, 500 negatives and 500 positives each.
CLIENTS = np.tile(np.repeat(np.arange(4), 500), 2)
LABELS = np.repeat([0, 1], 2000)


def _article(sorted_negatives, sorted_positives, seed=3):
    """The same scores in all four cases, dealt as they come or in order."""
    rng = np.random.default_rng(seed)
    negatives, positives = rng.normal(-16, 20, 2000), rng.normal(16, 10, 2000)
    scores = np.concatenate([
        np.sort(negatives) if sorted_negatives else negatives,
        np.sort(positives) if sorted_positives else positives,
    ])  # fmt: skip
    tests = [
        roc_auc.homogeneity(CLIENTS[part], scores[part]) for part in (LABELS == 0, LABELS == 1)
    ]
    clients = roc_auc.of_clients(CLIENTS, LABELS, scores)
    verdict = roc_auc.equals_pooled(clients, *tests)
    return roc_auc.summarize(CLIENTS, LABELS, scores), clients, tests, verdict


@pytest.mark.parametrize(
    ("sorted_negatives", "sorted_positives", "verdict", "own"),
    [
        (False, False, "any", (0.912, 0.924, 0.921, 0.921)),
        (False, True, "weighted_by_positives", (0.83, 0.924, 0.949, 0.97)),
        (True, False, "weighted_by_negatives", (0.999, 0.999, 0.992, 0.687)),
        (True, True, "none", None),
    ],
)
def test_the_four_cases(sorted_negatives, sorted_positives, verdict, own):
    summary, clients, tests, said = _article(sorted_negatives, sorted_positives)
    # P(positive above negative) of the two normal distributions: 0.924.
    truth = 0.5 * math.erfc(-32 / math.sqrt(20**2 + 10**2) / math.sqrt(2))
    assert summary.pooled == pytest.approx(truth, abs=0.01)
    assert said == verdict
    assert [test.is_alike for test in tests] == [not sorted_negatives, not sorted_positives]
    if verdict == "none":
        assert summary.mean_over_clients > summary.pooled + 0.05
    else:
        # Clients have as many of each: all averages are one.
        np.testing.assert_allclose(summary[1:], summary.pooled, atol=0.005)
        np.testing.assert_allclose(clients.roc_auc, own, atol=0.04)


def test_three_clients_with_weights_by_hand():
    # a: 1 positive, 2 negatives, 1 of 2 pairs right; b: 2 and 1, both right; c: positives only.
    ids = np.array(list("aaabbbcc"))
    labels = np.array([1, 0, 0, 1, 1, 0, 1, 1])
    scores = np.array([0.5, 0.4, 0.6, 0.9, 0.8, 0.1, 0.3, 0.7])
    clients = roc_auc.of_clients(ids, labels, scores)
    assert clients.client_ids.tolist() == ["a", "b", "c"]
    assert clients.num_positives.tolist() == [1, 2, 2]
    assert clients.num_negatives.tolist() == [2, 1, 0]
    np.testing.assert_array_equal(clients.roc_auc, [0.5, 1, np.nan])
    # Of 15 pooled pairs, 0.5 wins 2, 0.9, 0.8 and 0.7 win 3 each, 0.3 wins 1.
    expected = roc_auc.RocAuc(12 / 15, 0.75, (0.5 + 2) / 3, (1 + 1) / 3, (1 + 2) / 4)
    assert roc_auc.summarize(ids, labels, scores) == pytest.approx(expected)
    order = np.random.default_rng(0).permutation(8)
    shuffled = roc_auc.summarize(ids[order], labels[order], scores[order])
    assert shuffled == pytest.approx(expected, rel=1e-12)


def test_clients_of_one_class_only():
    ids, scores = np.array(["a", "a", "b", "b"]), np.array([0.1, 0.2, 0.8, 0.9])
    summary = roc_auc.summarize(ids, np.array([0, 0, 1, 1]), scores)
    assert summary.pooled == 1.0 and np.isnan(summary[1:]).all()
    assert np.isnan(roc_auc.summarize(ids, np.zeros(4), scores)).all()
    nothing = roc_auc.homogeneity(ids[:2], scores[:2])
    assert nothing.is_alike is None and math.isnan(nothing.statistic)
    # An average that leaves a client's positives out cannot be the pooled value.
    alike, unlike = roc_auc.Homogeneity(0.0, 0.25), roc_auc.Homogeneity(9.0, 0.001)
    clients = roc_auc.of_clients(np.array(list("aabbc")), np.array([0, 1, 0, 1, 1]), np.zeros(5))
    assert roc_auc.equals_pooled(clients, alike, unlike) == "none"
    assert roc_auc.equals_pooled(clients, unlike, alike) == "weighted_by_negatives"
    assert roc_auc.equals_pooled(clients, nothing, unlike) == ""
    # Nor one that leaves negatives out.
    clients = roc_auc.of_clients(np.array(list("aabbc")), np.array([0, 1, 0, 1, 0]), np.zeros(5))
    assert roc_auc.equals_pooled(clients, unlike, alike) == "none"
    assert roc_auc.equals_pooled(clients, alike, unlike) == "weighted_by_positives"


def test_two_values_are_enough_and_nobody_is_warned_where_the_table_ends():
    ids = np.array(list("aabb"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert roc_auc.homogeneity(ids, np.array([0.0, 1.0, 0.0, 1.0])).p_value == 0.25
    assert roc_auc.homogeneity(ids, np.zeros(4)).is_alike is None
    for few in ("", "ab", "aab", "abc", "aaaa", "abcdef"):
        homogeneity = roc_auc.homogeneity(np.array(list(few)), np.arange(float(len(few))))
        assert homogeneity.is_alike is None and math.isnan(homogeneity.statistic)


def test_clients_whose_scores_are_not_finite_are_left_out():
    labels, scores = np.array([0, 1, 0, 1]), np.array([0.9, np.nan, 0.2, 0.3])
    assert math.isnan(roc_auc.roc_auc(labels, scores))
    ids = np.array(["a", "a", "b", "b"])
    assert roc_auc.summarize(ids, labels, scores) == roc_auc.RocAuc(1, 1, 1, 1, 1)
    assert list(roc_auc.of_clients(ids, labels, scores).client_ids) == ["b"]
    assert np.isnan(roc_auc.summarize(ids, labels, np.full(4, np.inf))).all()
    assert roc_auc.homogeneity(ids, scores).is_alike is None


# Few values, so that many are tied, or any.
SCORES = st.integers(-4, 4).map(float) | st.floats(-1e6, 1e6)


@st.composite
def examples(draw, clients="abc", both=True):
    """Returns (client ids, labels, scores), of both classes if asked for."""
    rows = st.tuples(st.sampled_from(clients), st.integers(0, 1), SCORES)
    examples = draw(st.lists(rows, min_size=1, max_size=30))
    if both:
        examples += [(clients[0], label, draw(SCORES)) for label in (0, 1)]
    return tuple(map(np.array, zip(*examples, strict=True)))


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True)


@given(examples())
def test_scikit_learns_is_the_same(rows):
    _, labels, scores = rows
    assert roc_auc.roc_auc(labels, scores) == close(sklearn_metrics.roc_auc_score(labels, scores))


@given(examples(both=False))
def test_averages_lie_between_clients(rows):
    ids, labels, scores = rows
    clients = roc_auc.of_clients(ids, labels, scores)
    summary = roc_auc.summarize(ids, labels, scores)
    for row, client in enumerate(clients.client_ids):
        mine = ids == client
        assert clients.num_positives[row] + clients.num_negatives[row] == mine.sum()
        assert clients.num_positives[row] == labels[mine].sum()
        assert clients.roc_auc[row] == close(roc_auc.roc_auc(labels[mine], scores[mine]))
    known = clients.roc_auc[~np.isnan(clients.roc_auc)]
    assert np.all(np.isnan(clients.roc_auc) == (clients.num_positives * clients.num_negatives == 0))
    if len(known):
        averages = np.array(summary[1:])
        assert np.all((known.min() - 1e-9 <= averages) & (averages <= known.max() + 1e-9))
        assert 0 <= known.min() <= known.max() <= 1
    else:
        assert np.isnan(summary[1:]).all()


@given(
    st.lists(SCORES, min_size=1, max_size=6),
    st.lists(st.lists(SCORES, min_size=1, max_size=6), min_size=1, max_size=4),
    st.booleans(),
)
def test_the_right_weights_give_the_pooled_value(alike, others, alike_are_positive):
    """Exactly, where clients have the very same scores in one class: the article's theorem."""
    label = int(alike_are_positive)
    rows = [(c, label, score) for c in range(len(others)) for score in alike]
    rows += [(c, 1 - label, score) for c, own in enumerate(others) for score in own]
    summary = roc_auc.summarize(*map(np.array, zip(*rows, strict=True)))
    weighted = (
        summary.weighted_by_negatives if alike_are_positive else summary.weighted_by_positives
    )
    assert weighted == close(summary.pooled)
    assert summary.weighted_by_pairs == close(summary.pooled)
