"""Silos are scaled as scikit-learn does it."""

import numpy as np
from sklearn import preprocessing

from datasets.kinds import silos


def test_scaling_has_the_numbers_of_scikit_learn():
    stream = np.random.default_rng(0)
    x = stream.normal(1e3, 2.0, [37, 8])
    x[:, 2], x[:, 3], x[:, 4] = 0.0, 0.1, 1e9 + x[:, 4]  # Of 0.1 the mean is off by rounding.
    for rows in (x, x[:1], x * 1e8):
        scaler = preprocessing.StandardScaler().fit(rows)
        mean, deviation = silos.moments(rows)
        np.testing.assert_array_equal(mean, scaler.mean_)
        np.testing.assert_array_equal(deviation, scaler.scale_)
    assert silos.moments(x)[1][3] == 1.0
