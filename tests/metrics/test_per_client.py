"""Metrics of one client's labels and predictions: by hand, by scikit-learn, and their laws."""

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, strategies as st

from motley_tff.metrics import per_client
from motley_tff.metrics.per_client.examples import ClientExamples


def _examples(seed=0, of_numbers=False, n=30, num_classes=4, num_candidates=3):
    """Returns random examples, of classes with scores that agree with what is predicted."""
    rng = np.random.default_rng(seed)
    if of_numbers:
        labels = rng.normal(size=n)
        return ClientExamples(
            labels, labels[:, None] + rng.normal(size=(n, num_candidates)), unit=3.0
        )
    labels = rng.integers(num_classes, size=n).astype(np.float32)
    scores = rng.normal(size=(n, num_candidates, num_classes)).round(1)
    if num_classes == 2:
        scores = scores[..., 1:] - scores[..., :1]
        return ClientExamples(labels, (scores[..., 0] > 0).astype(np.float32), scores)
    return ClientExamples(labels, scores.argmax(axis=2).astype(np.float32), scores)


def _of(name, labels, predictions, **more):
    examples = ClientExamples(np.float32(labels), np.float32(predictions)[:, None], **more)
    return per_client.of_client(name, examples)[0]


def test_a_rare_class_by_hand():
    """Nine of ten are of class 0; a model that always says so has half, and 18 / 19 / 2."""
    labels, predictions = [0] * 9 + [1], [0] * 10
    assert _of("balanced_accuracy", labels, predictions) == 0.5
    assert _of("macro_f1", labels, predictions) == pytest.approx((18 / 19 + 0) / 2)


def test_which_classes_count():
    # Class 2 is nowhere; class 3 is only predicted, which balanced accuracy does not count.
    assert _of("macro_f1", [0, 0, 1], [0, 0, 3]) == pytest.approx((1 + 0 + 0) / 3)
    assert _of("balanced_accuracy", [0, 0, 1], [0, 0, 3]) == pytest.approx((1 + 0) / 2)
    # A class of no training part is one that no model predicts.
    assert _of("balanced_accuracy", [0, -1], [0, 0]) == 0.5
    assert _of("macro_f1", [0, -1], [0, 0]) == pytest.approx((2 / 3 + 0) / 2)
    # A client of one class has that class's recall.
    assert _of("balanced_accuracy", [1, 1], [1, 0]) == 0.5


def test_numbers_by_hand():
    """Labels 0, 1, 2 around 1: squares 2; errors 1, 0, 1 are as large, and R2 is 0."""
    assert _of("r2", [0, 1, 2], [1, 1, 1]) == 0.0
    assert _of("r2", [0, 1, 2], [0, 1, 3]) == 0.5
    assert _of("absolute_error", [0, 1, 2], [1, 1, 0], unit=10.0) == 10.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_classes", [2, 5])
def test_classes_as_scikit_learn(seed, num_classes):
    examples = _examples(seed, num_classes=num_classes)
    found = {name: per_client.of_client(name, examples) for name in _names()}
    for i, predictions in enumerate(examples.predictions.T):
        assert found["balanced_accuracy"][i] == pytest.approx(
            sklearn.metrics.balanced_accuracy_score(examples.labels, predictions)
        )
        f1 = sklearn.metrics.f1_score(examples.labels, predictions, average="macro")
        assert found["macro_f1"][i] == pytest.approx(f1)
        scores = examples.scores[:, i]
        if num_classes == 2:
            expected = sklearn.metrics.roc_auc_score(examples.labels, scores[:, 0])
        else:
            each = [
                sklearn.metrics.roc_auc_score(examples.labels == c, scores[:, c])
                for c in range(num_classes)
            ]
            expected = np.mean(each)
        assert found["roc_auc"][i] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_as_scikit_learn(seed):
    examples = _examples(seed, True)
    for i, predictions in enumerate(examples.predictions.T):
        expected = sklearn.metrics.r2_score(examples.labels, predictions)
        assert per_client.of_client("r2", examples)[i] == pytest.approx(expected)
        expected = 3.0 * sklearn.metrics.mean_absolute_error(examples.labels, predictions)
        assert per_client.of_client("absolute_error", examples)[i] == pytest.approx(expected)


def _names():
    return [name for name, metric in per_client.METRICS.items() if not metric.of_numbers]


@pytest.mark.parametrize("name", per_client.METRICS)
def test_order_does_not_matter_and_candidates_do_not_meet(name):
    examples = _examples(of_numbers=per_client.METRICS[name].of_numbers)
    values = per_client.of_client(name, examples)
    order = np.random.default_rng(1).permutation(len(examples.labels))
    scores = None if examples.scores is None else examples.scores[order]
    turned = examples._replace(
        labels=examples.labels[order], predictions=examples.predictions[order], scores=scores
    )
    assert per_client.of_client(name, turned) == pytest.approx(values, rel=1e-12)
    second = examples._replace(
        predictions=examples.predictions[:, 1:2],
        scores=None if examples.scores is None else examples.scores[:, 1:2],
    )
    assert per_client.of_client(name, second) == pytest.approx(values[1:2], rel=1e-12)


@pytest.mark.parametrize("name", per_client.METRICS)
def test_what_is_not_finite_and_what_is_not_defined(name):
    metric = per_client.METRICS[name]
    examples = _examples(of_numbers=metric.of_numbers)
    values = per_client.of_client(name, examples)
    bad = examples.predictions.copy()
    bad[3, 1] = np.nan
    scores = None
    if examples.scores is not None:
        scores = examples.scores.copy()
        scores[3, 1] = np.nan
    found = per_client.of_client(name, examples._replace(predictions=bad, scores=scores))
    worst = -np.inf if metric.higher_is_better else np.inf
    assert found.tolist() == [values[0], worst, values[2]]
    # Of nothing, or of labels that tell nothing, there is no score, whatever a model says.
    assert np.isnan(per_client.of_client(name, examples.between(0, 0))).all()
    same = examples._replace(labels=np.ones_like(examples.labels), predictions=bad, scores=scores)
    if name in ("roc_auc", "r2"):
        assert np.isnan(per_client.of_client(name, same)).all()
    else:
        assert np.isfinite(per_client.of_client(name, same)[[0, 2]]).all()


@pytest.mark.parametrize("name", per_client.METRICS)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 6))
def test_range(name, seed, num_classes, n):
    of_numbers = per_client.METRICS[name].of_numbers
    examples = _examples(seed, of_numbers, n, num_classes)
    values = per_client.of_client(name, examples)
    values = values[~np.isnan(values)]
    assert (values <= 1).all() if name == "r2" else (values >= 0).all()
    assert of_numbers or (values <= 1).all()
    right = examples._replace(
        predictions=np.repeat(examples.labels[:, None], 3, axis=1), scores=None
    )
    if name != "roc_auc":
        perfect = per_client.of_client(name, right)
        best = 0.0 if name == "absolute_error" else 1.0
        assert np.all(np.isnan(perfect) | (perfect == best))
