"""The server's half of FedAvg's round by hand: weighted mean and step."""

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import fedavg, optimizers

_UPDATES = ((tf.constant([1.0, 2.0]),), (tf.constant([3.0, 6.0]),))


@pytest.mark.parametrize(("weights", "mean"), [((1.0, 3.0), [2.5, 5.0]), ((0.0, 0.0), [0.0, 0.0])])
def test_a_round_by_hand(weights, mean):
    first, second = (
        fedavg.weigh(u, tf.constant(w)) for u, w in zip(_UPDATES, weights, strict=True)
    )
    change = fedavg.mean(tf.nest.map_structure(tf.add, first, second), tf.constant(sum(weights)))
    np.testing.assert_allclose(change[0], mean)
    sgd = optimizers.Sgd(0.5)
    (model,), _ = fedavg.server_step(sgd, (tf.zeros([2]),), sgd.initialize(change), change)
    np.testing.assert_allclose(model, -0.5 * np.array(mean))


def test_runs_and_clients_are_leading_axes():
    weights = tf.constant([[1.0, 3.0], [2.0, 0.0]])
    updates = tf.reshape(tf.range(8.0), [2, 2, 2])
    total = tf.reduce_sum(fedavg.weigh((updates,), weights)[0], axis=1)
    (mean,) = fedavg.mean((total,), tf.reduce_sum(weights, axis=1))
    np.testing.assert_allclose(mean, [[1.5, 2.5], [4.0, 5.0]])
