"""FedSTC by hand: what is sent, what is kept on both sides, what it costs."""

import math

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import FedAvg, FedStc, FedStcServer, OptimizerConfig, fedstc
from tests import toy
from tests.errors import refused

pytestmark = pytest.mark.usefixtures("eagerly")


def _sent(values, sparsity):
    (sent,) = fedstc.compress((tf.constant(values, tf.float32),), sparsity)
    return sent.numpy()


def test_the_largest_are_sent_by_sign_and_mean_magnitude():
    # Of five numbers two: 4 and -3, whose mean magnitude is 3.5.
    np.testing.assert_array_equal(_sent([1, 4, -3, 0.5, 2], 0.4), [0, 3.5, -3.5, 0, 0])
    np.testing.assert_array_equal(_sent([[1, 4], [-3, 0.5]], 0.1), [[0, 4], [0, 0]])
    np.testing.assert_array_equal(_sent([0, 0, 0], 0.5), [0, 0, 0])
    np.testing.assert_array_equal(_sent([1, 2, -2], 0.4), [0, 2, 0])  # The first of two.
    np.testing.assert_array_equal(_sent([-7], 0.01), [-7])


@pytest.fixture(scope="module")
def silos():
    return toy.without_keras(toy.classifier_silos((7, 12)))


def _trained(task, kind, rounds=1, **own):
    """Trains in full steps."""
    params = FedAvg(OptimizerConfig("sgd", 0.5), OptimizerConfig("sgd", 1.0), 1, 100)
    built = toy.like(params, kind, **own).build(task, task.model.initial_weights(0))
    return toy.train(task, built, rounds)


def test_residuals_keep_what_was_not_sent(silos):
    """After a round, what was applied, the server's residual and the clients' add up to FedAvg's
    step: nothing is lost.
    """
    whole, run = _trained(silos, FedAvg), _trained(silos, FedStc, sparsity=0.4)
    _, (_, server_residual), residuals = run.states[0]
    for leaf, first in enumerate(silos.model.initial_weights(0)):
        kept = np.average([residuals[i][leaf] for i in silos.train.ids], axis=0, weights=[7, 12])
        applied = first - run.weights[leaf]
        assert np.count_nonzero(applied) == fedstc.num_sent(first.size, 0.4)
        assert len(np.unique(np.abs(applied[applied != 0]).round(6))) == 1
        np.testing.assert_allclose(
            applied + server_residual[leaf].numpy() + kept, first - whole.weights[leaf], atol=1e-6
        )
    assert any(np.any(leaf) for leaf in residuals[silos.train.ids[0]])


def test_what_is_kept_is_sent_later(silos):
    run = _trained(silos, FedStc, 3, sparsity=0.4)
    alone = _trained(silos, FedStcServer, 3, sparsity=0.4)
    first = next(iter(run.client_states.values()))
    assert any(np.any(leaf) for leaf in first) and not alone.client_states
    assert not all(map(np.array_equal, run.weights, alone.weights))


def test_devices_keep_nothing():
    task = toy.scalar_task({"a": [1.0]})
    with refused("algorithm", "fedstc", "fedstc_server"):
        FedStc().check_clients(task)


@pytest.mark.parametrize("server", [("adam", {}), ("momentum", {}), ("sgd", {"momentum": 0.9})])
def test_a_servers_step_that_is_not_sparse_is_refused(server):
    name, parameters = server
    params = FedStc(server_optimizer=OptimizerConfig(name, 0.1, parameters))
    with refused("server_optimizer", name, "sgd without momentum, "):
        params.check()


def test_bytes_by_hand():
    """Of 1,000 numbers 10 are sent. Golomb: log(phi - 1) / log(.99) is 47.9, so 6 bits and
    1 / (1 - .99^64) = 2.11 more for a place.
    """
    assert fedstc.bits_of_place(0.01) == pytest.approx(6 + 1 / (1 - 0.99**64))
    place = 6 + 1 / (1 - 0.99**64)
    assert fedstc.num_bytes([1000], 0.01, "golomb") == math.ceil((10 * (place + 1) + 32) / 8)
    assert fedstc.num_bytes([1000, 50], 0.01, "plain") == 8 * (10 + 1)
    assert fedstc.bits_of_place(1.0) == 0
    # Of two places one: log(phi - 1) / log(.5) is .69, so none and 1 / .5.
    assert fedstc.bits_of_place(0.5) == pytest.approx(2)


def test_who_comes_back_is_sent_what_was_missed():
    task = toy.with_pair(toy.scalar_task({"a": [1.0]}, setting="cross_silo"), width=500)
    since = FedStc().build(task, task.model.initial_weights(0)).bytes_since
    sparse = fedstc.num_bytes([500, 500], 0.01, "golomb")
    assert [since(n).down for n in (None, 1, 3, 10_000)] == [4000, sparse, 3 * sparse, 4000]
    assert {since(n).up for n in (None, 1, 3)} == {sparse}
