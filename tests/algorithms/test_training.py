"""FedAvg, FedBABU, FedProx and FedSGD by hand on models of a weight or two, and their limits."""

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import FedAvg, FedBabu, FedProx, FedSgd, fedavg, optimizers
from motley_tff.backends import base
from motley_tff.core import options
from tests import toy
from tests.errors import refused

pytestmark = pytest.mark.usefixtures("eagerly")


def _config(name="sgd", rate=1.0, **parameters):
    return optimizers.OptimizerConfig(name, rate, parameters)


def _params(client_rate=0.5, server=None, epochs=1, batch_size=100):
    return FedAvg(_config(rate=client_rate), server or _config(), epochs, batch_size)


def train(task, params, rounds=1):
    """Returns (server weights, round results)."""
    run = toy.train(task, params.build(task, task.model.initial_weights(0)), rounds)
    return run.weights, run.results


def _value(weights):
    return float(weights[0][0, 0])


def test_fedavg_by_hand():
    # a: mean 1, b: mean 4 (3 examples). A full-batch step at rate .5 from 0 gives .5 and 2;
    # weighted by 1 and 3 examples: .125 + 1.5.
    task = toy.scalar_task({"a": [1.0], "b": [3.0, 4.0, 5.0]})
    weights, results = train(task, _params())
    assert _value(weights) == pytest.approx(1.625)
    # The loss at w = 0 over all four examples: (1 + 9 + 16 + 25) / 8.
    assert results[0].means["loss"] == pytest.approx(51 / 8)
    assert results[0].num_clients == 2


@pytest.mark.parametrize(
    ("numbers", "drop_remainder", "batches", "expected"),
    [
        # Batches of one example, all 2: w -> (w + 2) / 2, four times.
        (2, False, {"epochs": 2, "batch_size": 1}, 2 * (1 - 0.5**4)),
        # Ten, ten and five of 25, three times. Batches across epochs would be eight.
        (25, False, {"epochs": 3, "batch_size": 10}, 2 * (1 - 0.5**9)),
        # Three examples in batches of two, whose short last one silos drop.
        (3, True, {"batch_size": 2}, 1.0),
        (3, False, {"batch_size": 2}, 1.5),
        # A client smaller than a batch has one.
        (3, True, {"batch_size": 10}, 1.0),
    ],
)
def test_epochs_and_batches_by_hand(numbers, drop_remainder, batches, expected):
    task = toy.scalar_task({"a": [2.0] * numbers}, drop_remainder=drop_remainder)
    weights, _ = train(task, _params(**batches))
    assert _value(weights) == pytest.approx(expected, rel=1e-6)


def test_fedavgm_is_an_exponential_average():
    # One client at 1, client rate 1: delta is 1 - w. m = .9 m + .1 delta, w = w + 2 m.
    task = toy.scalar_task({"a": [1.0]})
    params = _params(1.0, _config("fedavgm", 2.0, momentum=0.9))
    weights, _ = train(task, params, rounds=3)
    w = m = 0.0
    for _ in range(3):
        m = 0.9 * m + 0.1 * (1 - w)
        w += 2 * m
    assert _value(weights) == pytest.approx(w, rel=1e-5)


@pytest.mark.parametrize(
    ("server", "rounds", "expected"),
    [
        # m = 1, w = .5; then m = .9 + .5, w = .5 + .7.
        (("momentum", 0.5, {"momentum": 0.9}), 2, 1.2),
        # Adam's first step is its learning rate in the gradient's direction (epsilon aside).
        (("adam", 0.01, {"beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-8}), 1, 0.01),
    ],
)
def test_server_optimizers_by_hand(server, rounds, expected):
    """One client at 1 and client rate 1: the change is 1 - w."""
    params = _params(1.0, optimizers.OptimizerConfig(*server))
    weights, _ = train(toy.scalar_task({"a": [1.0]}), params, rounds)
    assert _value(weights) == pytest.approx(expected, rel=1e-4)


def test_a_round_of_no_examples_changes_nothing():
    nothing = fedavg.mean((tf.zeros([2]),), tf.constant(0.0))
    np.testing.assert_array_equal(nothing[0], [0.0, 0.0])


def test_fedbabu_by_hand():
    """b is the body, h the head; clients' means are 2 (two numbers) and -1 (one)."""
    task = toy.scalar_task({"a": [1.0, 3.0], "b": [-1.0]})
    fedbabu, pair = toy.like(_params(), FedBabu), toy.with_pair(task)
    algorithm = fedbabu.build(pair, pair.model.initial_weights(0))
    assert algorithm.bytes_per_client == (4, 4)  # Of the body alone.
    body, head = toy.train(pair, algorithm, rounds=3).weights
    # The mean of the clients' means is 1, and half the way to it is gone each round.
    np.testing.assert_allclose(body.item(), 1 - 0.5**3, rtol=1e-6)
    assert head.item() == 0.0
    with refused("algorithm", "fedbabu", "layers below"):
        fedbabu.build(task, task.model.initial_weights(0))


def _prox(params, strength):
    return toy.like(params, FedProx, proximal_strength=strength)


def test_fedprox_by_hand_and_at_zero():
    # Two steps at rate .5 towards 2 with mu = 1: w1 = 1; then gradient (1 - 2) + (1 - 0) = 0.
    task = toy.scalar_task({"a": [2.0]})
    params = _params(epochs=2)
    weights, results = train(task, _prox(params, 1.0))
    assert _value(weights) == pytest.approx(1.0)
    # The reported loss leaves the penalty out: 2 at w = 0 and .5 at w = 1.
    assert results[0].means["loss"] == pytest.approx(1.25)
    without, _ = train(task, _prox(params, 0.0))
    plain, _ = train(task, params)
    assert _value(without) == _value(plain) == pytest.approx(1.5)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_fedsgd_is_one_full_batch_step(batch_size):
    task = toy.scalar_task({"a": [1.0], "b": [3.0, 4.0, 5.0]})
    params = _params(server=_config(rate=0.5), batch_size=batch_size)
    weights, _ = train(task, toy.like(params, FedSgd))
    # The gradient at 0 is minus the mean of all four numbers, 13 / 4.
    assert _value(weights) == pytest.approx(0.5 * 13 / 4)


def test_divergence_names_round_and_client():
    task = toy.scalar_task({"good": [1.0], "bad": [np.inf]})
    with pytest.raises(base.DivergedError, match="round 1.*'bad'"):
        train(task, _params())


def test_bad_optimizer_values_are_user_errors():
    with refused("server_optimizer.momentum", 2.0, "below 1"):
        options.checked(_params(server=_config("momentum", 1.0, momentum=2.0)))
    with refused("optimizer", "sdg", "yogi"):
        optimizers.build_optimizer(_config("sdg"))
