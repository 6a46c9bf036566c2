"""Laws of federated ROC-AUC, on any examples."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn import metrics as sklearn_metrics

from motley_tff.metrics import roc_auc

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
def test_a_share_of_pairs_as_scikit_learn(rows):
    _, labels, scores = rows
    positives, negatives = scores[labels == 1, None], scores[labels == 0]
    wins = np.mean(positives > negatives) + np.mean(positives == negatives) / 2
    assert roc_auc.roc_auc(labels, scores) == close(wins)
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
