"""Silos' optimizers that go on where their last round ended: by hand, and for every algorithm."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from motley_tff import algorithms
from motley_tff.algorithms import FedAvg, HypCluster, OptimizerConfig, kept_optimizers
from motley_tff.core import learning
from tests import toy
from tests.contracts import registry
from tests.errors import refused

_RATE, _MOMENTUM = 0.1, 0.5
_HEAVY = OptimizerConfig("momentum", _RATE, {"momentum": _MOMENTUM})
_SERVER = OptimizerConfig("sgd", 1.0)
# Of silo "a" alone, with the model's one weight: the mean of its numbers is 2.
_ALONE = {"a": [1.0, 3.0], "b": [-1.0]}


def _built(task, kind=FedAvg, keeps=True, client=_HEAVY, **own):
    if issubclass(kind, algorithms.personal_training.SiloAlgorithm):
        own.setdefault("personal_optimizer", client)
    params = kind(client, _SERVER, train_batch_size=100, keep_optimizer_state=keeps, **own)
    return kept_optimizers.build(params, task, task.model.initial_weights(0))


def _steps(numbers, rate=_RATE):
    """Returns w after each of some full-batch steps of heavy-ball momentum from 0."""
    w, velocity, path = 0.0, 0.0, []
    for mean in numbers:
        velocity = _MOMENTUM * velocity + (w - mean)
        w -= rate * velocity
        path.append(w)
    return path


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("keeps", [True, False])
def test_by_hand(keeps):
    task = toy.scalar_task(_ALONE, setting="cross_silo")
    run = toy.train(task, _built(task, keeps=keeps), [("a",)] * 3)
    path = [run.process.weights(state)[0].item() for state in run.states]
    expected = _steps([2.0] * 3)
    if not keeps:
        expected, w = [], 0.0
        for _ in range(3):
            w -= _RATE * (w - 2.0)
            expected.append(w)
    np.testing.assert_allclose(path, expected, rtol=1e-6)


@pytest.mark.usefixtures("eagerly")
def test_an_absent_silo_keeps_its_own():
    """Between two rounds of silo a, b's move the model and leave a's momentum as it was."""
    task = toy.scalar_task(_ALONE, setting="cross_silo")
    run = toy.train(task, _built(task), [("a",), ("b",), ("b",), ("a",)])
    path = [run.process.weights(state)[0].item() for state in run.states]
    w, velocities, expected = 0.0, {"a": 0.0, "b": 0.0}, []
    for silo, mean in (("a", 2.0), ("b", -1.0), ("b", -1.0), ("a", 2.0)):
        velocities[silo] = _MOMENTUM * velocities[silo] + (w - mean)
        w -= _RATE * velocities[silo]
        expected.append(w)
    np.testing.assert_allclose(path, expected, rtol=1e-6)
    states = run.client_states
    found = {i: s.optimizers[0]["accumulator"][0].item() for i, s in states.items()}
    assert found == pytest.approx(velocities)


@pytest.mark.usefixtures("eagerly")
def test_a_personal_models_optimizer_goes_on_beside_the_clients():
    task = toy.scalar_task(_ALONE, setting="cross_silo")
    run = toy.train(task, _built(task, algorithms.Local), [("a",)] * 3)
    state = run.client_states["a"]
    assert len(state.optimizers) == 2
    np.testing.assert_allclose(state.own[0].item(), _steps([2.0] * 3)[-1], rtol=1e-6)
    assert run.weights[0][0].item() == pytest.approx(_steps([2.0] * 3)[-1])


@pytest.mark.usefixtures("eagerly")
def test_the_rate_is_the_rounds_and_not_the_kept_one():
    task = toy.scalar_task(_ALONE, setting="cross_silo")
    slow, fast = (_built(task, client=_HEAVY.at(rate)) for rate in (0.1, 0.2))
    process = toy.sequential.SequentialBackend().training(task, slow)
    first = toy.train(task, slow, [("a",)])
    (state,) = first.states
    went_on = toy.sequential.SequentialBackend().training(task, fast)
    key = toy.random_streams.key(0, "local_training", 2)
    state, _ = went_on.next(state, [toy.base.Round(2, ("a",), key)])
    w = 0.1 * 2.0
    expected = w - 0.2 * (_MOMENTUM * -2.0 + (w - 2.0))
    assert process.weights(state)[0].item() == pytest.approx(expected)
    kept = collections.OrderedDict(learning_rate=0.1, accumulator=3.0)
    fresh = collections.OrderedDict(learning_rate=0.7, accumulator=0.0)
    assert learning.resumed(fresh, kept) == {"learning_rate": 0.7, "accumulator": 3.0}


# SCAFFOLD counts a round's steps, and refuses it.
_KEPT = [n for n in registry.STATEFUL if n not in (*registry.INSTALLED, "scaffold")]
_NUM_OPTIMIZERS = {
    "mr_mtl": 1, "pfedme": 1, "persfl": 1, "fedstc": 1, "feddyn": 1, "fedbn": 1, "fedrep": 3,
}  # fmt: skip


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", _KEPT)
def test_every_stateful_algorithm(name):
    """All optimizers are kept; what they hold moves the second round."""
    task = toy.with_pair(toy.scalar_task(_ALONE, initial=0.3, setting="cross_silo"), 3)
    built = registry.STATEFUL[name](task, task.model.initial_weights(0))
    kind = algorithms.TRAINING[built.name]
    runs = [toy.train(task, _built(task, kind, keeps), 2) for keeps in (True, False)]
    state, anew = (run.client_states["a"] for run in runs)
    assert len(state.optimizers) == _NUM_OPTIMIZERS.get(name, 2)
    assert all(np.any(s["accumulator"][0] != 0) for s in state.optimizers)
    pairs = ((runs[0].weights, state.own), (runs[1].weights, anew))
    numbers = [np.concatenate([np.ravel(x) for x in tf.nest.flatten(pair)]) for pair in pairs]
    assert numbers[0].shape == numbers[1].shape and np.any(numbers[0] != numbers[1])


_ADAM = OptimizerConfig("adam", 0.05, {"epsilon": 1e-3})


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        ("vectorized", FedAvg),
        pytest.param("vectorized", algorithms.Ditto, marks=pytest.mark.slow),
        pytest.param("tff", FedAvg, marks=pytest.mark.slow),
        pytest.param("tff", algorithms.Ditto, marks=pytest.mark.slow),
    ],
)
def test_backends_agree(backend, kind):
    task = toy.scalar_task(_ALONE, initial=0.3, setting="cross_silo")
    cohorts = [("a", "b"), ("b",), ("a", "b")]
    built = _built(task, kind, client=_HEAVY if kind is FedAvg else _ADAM)
    expected = toy.train(task, built, cohorts)
    with registry.BACKENDS[backend]() as opened:
        found = toy.train(task, built, cohorts, opened)
        pairs = zip(
            tf.nest.flatten((expected.weights, expected.client_states)),
            tf.nest.flatten((found.weights, found.client_states)),
            strict=True,
        )
        for a, b in pairs:
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_what_is_refused():
    silos = toy.scalar_task(_ALONE, setting="cross_silo")
    devices = toy.scalar_task(_ALONE)
    with refused("keep_optimizer_state", True, "devices, which keep nothing", "cross_silo"):
        _built(devices)
    plain = OptimizerConfig("sgd", 0.1)
    for kind in (FedAvg, algorithms.FedSgd, algorithms.Local):
        with refused("keep_optimizer_state", True, "such as momentum or adam"):
            _built(silos, kind, client=plain)
    # The personal optimizer's is enough.
    _built(silos, algorithms.Local, client=plain, personal_optimizer=_ADAM)
    clusters = HypCluster(_HEAVY, _SERVER, keep_optimizer_state=True, num_clusters=2)
    models = [silos.model.initial_weights(0)] * 2
    with refused("keep_optimizer_state", True, "one model for each silo"):
        kept_optimizers.build(clusters, silos, models)


@pytest.mark.parametrize("kind", [algorithms.FedNova, algorithms.Scaffold])
def test_an_algorithm_that_counts_a_rounds_steps_keeps_no_optimizer(kind):
    params = kind(OptimizerConfig("sgd", 0.1), keep_optimizer_state=True)
    with refused("keep_optimizer_state", True, "as it counts the steps of one round"):
        params.check_rounds(10)
