"""Clients that are stopped early."""

import numpy as np
import pytest

from motley_tff import algorithms
from motley_tff.algorithms import Centralized, FedAvg, optimizers, stragglers
from motley_tff.backends import base
from motley_tff.core import partition
from tests import toy
from tests.contracts import registry

_SGD = optimizers.OptimizerConfig("sgd", 0.5)
_SERVER = optimizers.OptimizerConfig("sgd", 1.0)
_NUMBERS = {f"c{i}": np.full(20, 1.0) for i in range(40)}


def _fedavg(task, epochs=1, size=1):
    params = FedAvg(_SGD, _SERVER, train_epochs=epochs, train_batch_size=size)
    return params.build(task, (np.zeros([1, 1], np.float32),))


def _updates(task, algorithm, backend="sequential"):
    """Returns each client's final weight in one round."""
    finals = []
    with registry.BACKENDS[backend]() as one:
        process = one.training(task, algorithm)
        for client_id in task.train.ids:
            rounds = [base.Round(1, (client_id,), np.array([5, 6], np.int32))]
            state = process.run(process.initialize(), rounds, lambda *_: None)
            finals.append(float(process.weights(state)[0][0, 0]))
    return np.array(finals)


def test_a_straggler_stops_after_some_of_its_steps():
    """At rate 1/2 towards 1, s steps from 0 end at 1 - 2^-s."""
    task = toy.scalar_task(_NUMBERS)
    steps = -np.log2(1.0 - _updates(task, stragglers.slowed(_fedavg(task), 1.0)))
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)
    assert steps.min() >= 1 and steps.max() <= 20
    # Uniform on 1..20: mean 10.5, standard error 0.91 of 40 clients; these keys draw 13.0.
    assert steps.mean() == pytest.approx(13.0, abs=1e-3)


def test_half_of_the_clients_straggle():
    task = toy.scalar_task(_NUMBERS)
    finals = _updates(task, stragglers.slowed(_fedavg(task), 0.5))
    in_time = np.sum(finals > 1.0 - 2.0**-19.5)
    # Of 40; expected are 20 and a straggler's 1/20, with a standard error of 3.
    assert in_time == 24


def test_without_stragglers_nothing_changes():
    algorithm = _fedavg(toy.scalar_task(_NUMBERS))
    assert stragglers.slowed(algorithm, 0.0) is algorithm


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, backend", [("fedavg_adam", "tff"), ("ditto", "vectorized"), ("hypcluster", "tff")]
)
def test_backends_agree(name, backend):
    is_stateful = name in registry.STATEFUL
    task = toy.classifier_silos() if is_stateful else toy.classifier_task()
    weights = task.model.initial_weights(1)
    build = (registry.STATEFUL if is_stateful else registry.TRAINING)[name]
    found = []
    for which in ("sequential", backend):
        with registry.BACKENDS[which]() as one:
            process = one.training(task, stragglers.slowed(build(task, weights), 0.7))
            rounds = [base.Round(n, task.train.ids, np.array([n, 3], np.int32)) for n in (1, 2)]
            state = process.run(process.initialize(), rounds, lambda *_: None)
            found.append(process.weights(state))
    flat = [np.concatenate([np.ravel(leaf) for leaf in _leaves(w)]) for w in found]
    np.testing.assert_allclose(*flat, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["local", "ditto", "mocha", "fedper"])
def test_every_training_pass_is_cut_by_the_same_share(name):
    """FedAvg's model, which stays with no silo, and each silo's own do as many steps.

    Both step at rate 1/2 towards 1, so s steps from 0 end at 1 - 2^-s. (Once, half of the silos'
    own models did not move.)
    """
    numbers = {f"s{i}": np.full(20, 1.0) for i in range(30)}
    task = toy.scalar_task(numbers, setting="cross_silo")
    params = FedAvg(_SGD, _SERVER, train_batch_size=1)
    own = {} if name in ("local", "fedper") else {"regularization": 0.0}
    kind = algorithms.TRAINING[name]
    algorithm = toy.like(params, kind, personal_optimizer=_SGD, **own).build(
        task, (np.zeros([1, 1], np.float32),)
    )
    steps = []
    with registry.BACKENDS["sequential"]() as one:
        process = one.training(task, stragglers.slowed(algorithm, 1.0))
        for client_id in task.train.ids:
            rounds = [base.Round(1, (client_id,), np.array([5, 6], np.int32))]
            state = process.run(process.initialize(), rounds, lambda *_: None)
            models = process.weights(state)[0], process.client_states(state)[client_id]
            steps.append([-np.log2(1.0 - float(model[0][0, 0])) for model in models])
    steps = np.array(steps)
    np.testing.assert_allclose(steps[:, 1], steps[:, 0], atol=1e-3)
    assert steps.min() > 0.99 and steps.max() > 15


def _leaves(nest):
    import tensorflow as tf

    return tf.nest.flatten(nest)


def test_central_training_is_gradient_descent_on_everything():
    """Full batches at rate 1/2 from 0: the mean of (1, 2, 9) is 4, so 2 and then 3."""
    task = partition.centralize(toy.scalar_task({"a": [1.0, 2.0], "b": [9.0]}), 1e9)
    params = Centralized(_SGD, optimizers.OptimizerConfig("adam", 9.0), 1, 10)
    algorithm = params.build(task, (np.zeros([1, 1], np.float32),))
    with registry.BACKENDS["sequential"]() as one:
        process = one.training(task, algorithm)
        rounds = [base.Round(n, task.train.ids, np.array([n, 3], np.int32)) for n in (1, 2)]
        finals = []
        process.run(
            process.initialize(), rounds, lambda _, s: finals.append(process.weights(s)[0][0, 0])
        )
    np.testing.assert_allclose(finals, [2.0, 3.0])
    assert algorithm.bytes_per_client == (0, 0)


def test_central_training_wants_one_client():
    task = toy.scalar_task({"a": [1.0], "b": [2.0]})
    params = Centralized(_SGD, _SERVER)
    with pytest.raises(ValueError, match="one training client, found 2"):
        params.build(task, (np.zeros([1, 1], np.float32),))
