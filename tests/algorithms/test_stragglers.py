"""Clients that are stopped early."""

import numpy as np
import pytest
import tensorflow as tf

from motley_tff import algorithms
from motley_tff.algorithms import Centralized, FedAvg, optimizers, stragglers
from motley_tff.backends import base
from motley_tff.core import partition
from tests import toy
from tests.contracts import registry

_SGD = optimizers.OptimizerConfig("sgd", 0.5)
_SERVER = optimizers.OptimizerConfig("sgd", 1.0)
_PARAMS = FedAvg(_SGD, _SERVER, train_batch_size=1)


def _trained_alone(task, params, rate):
    """Yields (server weights, the client's state) after a round of each client by itself.

    All numbers are 1: at rate 1/2, s steps from 0 end at 1 - 2^-s.
    """
    built = stragglers.slowed(params.build(task, task.model.initial_weights(0)), rate)
    with registry.BACKENDS["sequential"]() as backend:
        process = backend.training(task, built)
        for client_id in task.train.ids:
            rounds = [base.Round(1, (client_id,), np.array([5, 6], np.int32))]
            state, _ = process.next(process.initialize(), rounds)
            yield process.weights(state), process.client_states(state).get(client_id)


def _steps(weights):
    return -np.log2(1.0 - float(weights[0][0, 0]))


def test_half_of_the_clients_straggle_and_stop_after_some_of_their_steps():
    task = toy.scalar_task({f"c{i}": np.full(20, 1.0) for i in range(40)})
    steps = np.array([_steps(weights) for weights, _ in _trained_alone(task, _PARAMS, 0.5)])
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)
    # Of 40; expected are 20 and a straggler's 1/20, with a standard error of 3.
    assert np.sum(steps > 19.5) == 24
    # Uniform on 1..20: mean 10.5, standard error 1.4 of 16 clients.
    late = steps[steps < 19.5]
    assert late.min() >= 1 and late.mean() == pytest.approx(11.5, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), [("ditto", "vectorized"), ("hypcluster", "tff")])
def test_backends_agree(name, backend):
    numbers = {f"c{i}": np.linspace(i, 1.0, 9) for i in range(4)}
    task = toy.scalar_task(numbers, setting="cross_silo", initial=0.3)
    build = {**registry.STATEFUL, **registry.TRAINING}[name]
    slow = stragglers.slowed(build(task, task.model.initial_weights(1)), 0.7)
    weights = []
    for which in ("sequential", backend):
        with registry.BACKENDS[which]() as runner:
            weights.append(tf.nest.flatten(toy.train(task, slow, 2, runner).weights))
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", ["local", "mocha"])
def test_every_training_pass_is_cut_by_the_same_share(name):
    """FedAvg's model, which stays with no silo, and each silo's own do as many steps. (Once, half
    of the silos' own models did not move.)
    """
    numbers = {f"s{i}": np.full(8, 1.0) for i in range(8)}
    task = toy.scalar_task(numbers, setting="cross_silo")
    own = {} if name == "local" else {"regularization": 0.0}
    params = toy.like(_PARAMS, algorithms.TRAINING[name], personal_optimizer=_SGD, **own)
    steps = np.array([[_steps(w[0]), _steps(v)] for w, v in _trained_alone(task, params, 1.0)])
    np.testing.assert_allclose(steps[:, 1], steps[:, 0], atol=1e-3)
    assert set(steps[:, 0].round()) == {1, 2, 5, 6}  # Of 8.


def test_central_training_is_gradient_descent_on_everything():
    """Full batches at rate 1/2 from 0: the mean of (1, 2, 9) is 4, so 2 and then 3."""
    task = partition.centralize(toy.scalar_task({"a": [1.0, 2.0], "b": [9.0]}), 1e9)
    params = Centralized(_SGD, optimizers.OptimizerConfig("adam", 9.0), 1, 10)
    algorithm = params.build(task, task.model.initial_weights(0))
    run = toy.train(task, algorithm, rounds=2)
    finals = [run.process.weights(state)[0][0, 0] for state in run.states]
    np.testing.assert_allclose(finals, [2.0, 3.0])
    assert algorithm.bytes_per_client == (0, 0)
    with pytest.raises(ValueError, match="found 2"):
        params.build(toy.scalar_task({"a": [1.0], "b": [2.0]}), task.model.initial_weights(0))
