"""Shares of classes, by hand."""

import math

import numpy as np
import pytest

from motley_tff.metrics.generative import class_shares


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([0, 1, 2, 3], (4, math.log(4), 0.25)),
        ([0, 0, 1, 1], (4, math.log(2), 0.0)),
        ([2, 2, 2, 2], (4, 0.0, 0.0)),
        ([0, 0, 1, 2, 3], (4, 0.4 * math.log(2.5) + 0.6 * math.log(5), 0.2)),
    ],
)
def test_shares(classes, expected):
    row = class_shares.row(np.eye(4)[classes])
    assert tuple(row) == class_shares.COLUMNS
    assert tuple(row.values()) == pytest.approx(expected, abs=1e-15)
