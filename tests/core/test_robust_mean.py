"""Median and trimmed mean by hand."""

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.core import robust_mean

_VALUES = [[1.0, 10.0], [2.0, -50.0], [900.0, 20.0], [3.0, 30.0]]


@pytest.mark.parametrize(
    ("name", "share", "count", "expected"),
    [
        ("median", 0.1, 4, [2.5, 15.0]),
        ("median", 0.1, 3, [2.0, 10.0]),
        ("median", 0.1, 1, [1.0, 10.0]),
        ("trimmed_mean", 0.25, 4, [2.5, 15.0]),
        ("trimmed_mean", 0.2, 4, [226.5, 2.5]),  # Less than one client: nobody is left out.
        ("trimmed_mean", 0.49, 3, [2.0, 10.0]),
        ("trimmed_mean", 0.4999999999999, 4, [2.5, 15.0]),  # Who is in the middle stays.
        ("trimmed_mean", 0.0, 4, [226.5, 2.5]),
    ],
)
def test_by_hand(name, share, count, expected):
    mean = robust_mean.combine(name, share, tf.constant(_VALUES[:count]))
    np.testing.assert_allclose(mean, expected)


def test_a_share_that_floats_cannot_hold():
    values = tf.range(100, dtype=tf.float32)
    # 0.29 * 100 is 28.999... in floats: 29 at either end leave 29 to 70.
    assert robust_mean.combine("trimmed_mean", 0.29, values - 49.5).numpy() == pytest.approx(0)
    one_sided = tf.concat([values[:71], tf.fill([29], 1e6)], 0)
    assert robust_mean.combine("trimmed_mean", 0.29, one_sided).numpy() == pytest.approx(49.5)


@pytest.mark.parametrize(
    ("share", "count", "expected"),
    [(0.1, 9, True), (0.1, 10, False), (0.29, 100, False), (0.49, 2, True), (0.4, 3, False)],
)
def test_whether_anybody_is_left_out(share, count, expected):
    assert robust_mean.trims_nobody(share, count) == expected
    values = tf.constant([[0.0]] * (count - 1) + [[float(count)]])
    is_mean = robust_mean.combine("trimmed_mean", share, values).numpy().item() == 1.0
    assert is_mean == expected
