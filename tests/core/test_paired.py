"""What a client's difference rests on, by hand and by NumPy."""

import types

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.core import paired
from motley_tff.core.client_work import Batch
from motley_tff.core.task import Metric

NAN = float("nan")


def _task():
    """Examples whose value is what the model says; in a row of entries, 0 is no entry."""

    def function(labels, outputs):
        return outputs, tf.cast(labels > 0, tf.float32)

    return types.SimpleNamespace(metric=Metric("m", function, True))


def _statistics(baseline, model, weights=None, higher_is_better=True):
    weights = np.ones(len(baseline)) if weights is None else weights
    values = np.stack([baseline, model], axis=1).astype(np.float32)
    # Between two clients without examples, and behind another one with two.
    of_all = np.concatenate([[[5, 6], [7, 8]], values]), np.concatenate([[1, 1], weights])
    sizes = np.array([2, 0, len(values), 0])
    cells = paired.statistics(higher_is_better, *of_all, sizes)
    assert all(column.shape == (4, 2) and column.dtype == np.float32 for column in cells.values())
    return {name: float(column[2, 1]) for name, column in cells.items()}


def test_right_and_wrong_examples_by_hand():
    cells = _statistics([0, 0, 1, 1, 0], [1, 1, 0, 1, 0])
    # d = 1, 1, -1, 0, 0: mean 0.2, squares of the rest 0.64 + 0.64 + 1.44 + 2 * 0.04 = 2.8.
    assert cells["delta_se"] == pytest.approx(np.sqrt(2.8 / 4 / 5))
    assert (cells["num_gained"], cells["num_lost"]) == (2, 1)
    # The baseline on examples 1, 3, 5, the difference on 2 and 4.
    assert cells["baseline_half"] == pytest.approx(1 / 3)
    assert cells["delta_half"] == pytest.approx(1 / 2)


def test_errors_have_no_counts_and_gain_where_they_fall():
    cells = _statistics([2.0, 3.0], [1.0, 3.5], higher_is_better=False)
    assert np.isnan([cells["num_gained"], cells["num_lost"]]).all()
    assert cells["delta_se"] == pytest.approx(0.75)  # d = 1, -0.5: deviation 1.0607 over sqrt(2).
    assert cells["delta_half"] == pytest.approx(-0.5)


def test_sentences_weigh_by_their_tokens():
    # Sums of right tokens and numbers of tokens of three sentences, and padding behind them.
    cells = _statistics([1, 2, 0, 0], [2, 2, 3, 0], [2, 4, 3, 0])
    residual = np.array([1, 0, 3]) - np.array([2, 4, 3]) * 4 / 9
    assert cells["delta_se"] == pytest.approx(np.sqrt(3 / 2 * np.sum(residual**2)) / 9)
    assert cells["baseline_half"] == pytest.approx(1 / 5)
    assert cells["delta_half"] == 0


@pytest.mark.parametrize(
    ("number", "expected"), [(0, [NAN, 0, 0, NAN, NAN]), (1, [NAN, 1, 0, 0, NAN])]
)
def test_what_is_not_defined_is_not_a_number(number, expected):
    cells = _statistics([0, 0], [number, 0], [number, 0])
    np.testing.assert_equal(list(cells.values()), expected)


def test_a_model_that_diverged_has_no_statistics_but_the_baselines():
    cells = _statistics([0, 1], [1, NAN])
    assert cells.pop("baseline_half") == 0
    assert np.isnan(list(cells.values())).all()


def test_batches_are_appended_in_order_without_their_padding():
    task, sums = _task(), paired.empty(4)
    batches = [([[1, 1], [1, 0]], [1, 1]), ([[1, 1], [1, 1]], [1, 0])]
    for i, (labels, mask) in enumerate(batches):
        outputs = tf.constant([[0.5, 1.0], [2.0, 9.0]]) + i
        batch = Batch(None, tf.constant(labels), tf.constant(mask, tf.float32), None)
        sums = paired.append(sums, batch, *paired.of_batch(task, batch, outputs))
    np.testing.assert_array_equal(sums.values, [1.5, 2.0, 3.5, 0])
    np.testing.assert_array_equal(sums.weights, [2, 1, 2, 0])
    assert int(sums.count) == 3
