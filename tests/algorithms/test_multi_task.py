"""Algorithms that train a model for each silo: hand-derived numbers and limits.

Two silos with one number w: silo a's numbers have mean 2 (2 examples), silo b's mean -1 (1), one
full batch a round, so a step of local training at rate r moves v to v - r * (v - mean).
"""

import dataclasses

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from motley_tff import algorithms
from motley_tff.algorithms import (
    FedAvg,
    FedPer,
    PerFedAvg,
    mocha,
    optimizers,
    personal_training,
)
from motley_tff.backends import base, sequential
from motley_tff.core import random_streams
from motley_tff.core.errors import UserError
from tests import toy

MEANS = np.array([2.0, -1.0])
SIZES = np.array([2, 1])
RATE, ROUNDS, FIRST = 0.2, 3, 0.5
OWN = optimizers.OptimizerConfig("sgd", RATE)


def _params(client_rate=0.3, batch_size=10):
    sgd = optimizers.OptimizerConfig
    return FedAvg(sgd("sgd", client_rate), sgd("sgd", 1.0), train_batch_size=batch_size)


@pytest.fixture(scope="module")
def task():
    return toy.scalar_task({"a": [1.0, 3.0], "b": [-1.0]}, initial=FIRST, setting="cross_silo")


@pytest.fixture(scope="module")
def silos():
    """Silos with several batches and a model of two layers."""
    return toy.classifier_silos()


def _train(task, algorithm, rounds=ROUNDS):
    """Returns (server weights, {silo: state}, {silo: personal model})."""
    process = sequential.SequentialBackend().training(task, algorithm)
    plan = [
        base.Round(n, task.train.ids, random_streams.key(0, "local_training", n))
        for n in range(1, rounds + 1)
    ]
    state = process.run(process.initialize(), plan, lambda *_: None)
    weights, states = process.weights(state), process.client_states(state)
    models = {}
    if algorithm.personal_model is not None:
        models = {i: algorithm.personal_model(weights, s) for i, s in states.items()}
    return weights, states, models


def _built(name, task, params=None, **own):
    kind = algorithms.TRAINING[name]
    fields = {parameter.flag: parameter.field for parameter in algorithms.parameters(kind)}
    own = {fields[flag]: value for flag, value in own.items()}
    algorithm = toy.like(params or _params(), kind, personal_optimizer=OWN, **own)
    return algorithm.build(task, task.model.initial_weights(0))


def _numbers(models):
    return np.array([np.asarray(m[0]).item() for m in models.values()])


def _train_fedavg(task):
    algorithm = _params().build(task, task.model.initial_weights(0))
    return _train(task, algorithm)[0]


def _locally(rounds=ROUNDS, steps=1):
    return MEANS + (FIRST - MEANS) * (1 - RATE) ** (rounds * steps)


def _assert_same(found, expected, atol=1e-6):
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=atol)


def test_local_by_hand(task):
    weights, _, models = _train(task, _built("local", task))
    np.testing.assert_allclose(_numbers(models), _locally(), rtol=1e-6)
    _assert_same(weights[0], _train_fedavg(task))


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("ditto", {"lambda": 0.0}),
        ("mr_mtl", {"lambda": 0.0}),
        ("mocha", {"lambda": 0.0}),
        ("apfl", {"alpha": 1.0}),
        ("fedper", {}),
        ("pfedme", {"lambda": 0.0, "inner_steps": 1}),
    ],
)
def test_limits_that_are_local_training(name, limit, task):
    _, _, models = _train(task, _built(name, task, **limit))
    np.testing.assert_allclose(_numbers(models), _locally(), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ditto", "mocha"])
def test_no_regularization_is_local_training_on_many_batches_too(name, silos):
    _, _, expected = _train(silos, _built("local", silos, _params(batch_size=4)))
    _, _, found = _train(silos, _built(name, silos, _params(batch_size=4), **{"lambda": 0.0}))
    _assert_same(list(found.values()), list(expected.values()))


def test_apfl_without_its_own_half_is_fedavg(silos):
    expected = _train_fedavg(silos)
    _, _, models = _train(silos, _built("apfl", silos, alpha=0.0))
    for model in models.values():
        _assert_same(model, expected)


def test_fedper_without_personal_layers_is_fedavg(silos):
    # The silo's own pass has other shuffles and dropout than FedAvg's: full batches and none.
    plain = toy.without_dropout(silos)
    initial, params = plain.model.initial_weights(0), _params(batch_size=100)
    own = toy.like(params, FedPer, personal_optimizer=params.client_optimizer, personal_layers=0)
    _, states, models = _train(plain, own.build(plain, initial))
    expected, _, _ = _train(plain, params.build(plain, initial))
    assert all(state == () for state in states.values())
    for model in models.values():
        _assert_same(model, expected)


def test_fedper_shares_all_but_the_last_layer(silos):
    _, states, models = _train(silos, _built("fedper", silos))
    first, *others = models.values()
    for other in others:
        for a, b, is_last in zip(first, other, silos.model.is_last_layer, strict=True):
            assert np.array_equal(a, b) == (not is_last)
    assert len(next(iter(states.values()))) == sum(silos.model.is_last_layer)


def test_per_fedavg_without_adaptation_is_fedavg(task):
    initial = task.model.initial_weights(0)
    still = optimizers.OptimizerConfig("sgd", 0.0)
    algorithm = toy.like(_params(), PerFedAvg, personal_optimizer=still).build(task, initial)
    _assert_same(_train(task, algorithm)[0], _train_fedavg(task))


def _ditto_by_hand(strength):
    w, v = FIRST, np.full(2, FIRST)
    for _ in range(ROUNDS):
        v = v - RATE * ((v - MEANS) + strength * (v - w))
        w = w + np.average(0.3 * (MEANS - w), weights=SIZES)
    return w, v


def test_ditto_by_hand(task):
    weights, _, models = _train(task, _built("ditto", task, **{"lambda": 0.7}))
    w, v = _ditto_by_hand(0.7)
    np.testing.assert_allclose(weights[0][0].item(), w, rtol=1e-6)
    np.testing.assert_allclose(_numbers(models), v, rtol=1e-6)


def _mr_mtl_by_hand(cohorts, strength=0.7):
    """Returns (w, v) after rounds of some silos (numbers 0 and 1)."""
    w, v = FIRST, np.full(2, FIRST)
    for cohort in cohorts:
        new = v.copy()
        for i in cohort:
            new[i] -= RATE * ((v[i] - MEANS[i]) + strength * (v[i] - w))
        w, v = np.average(new, weights=SIZES), new
    return w, v


def test_mr_mtl_by_hand(task):
    weights, _, models = _train(task, _built("mr_mtl", task, **{"lambda": 0.7}))
    w, v = _mr_mtl_by_hand([(0, 1)] * ROUNDS)
    np.testing.assert_allclose(weights[0][0].item(), w, rtol=1e-6)
    np.testing.assert_allclose(_numbers(models), v, rtol=1e-6)


def test_mr_mtl_is_the_mean_of_all_silos_whoever_answers(task):
    cohorts = [(0,), (1,), (1,), (0, 1), (0,)]
    process = sequential.SequentialBackend().training(
        task, _built("mr_mtl", task, **{"lambda": 0.7})
    )
    plan = [
        base.Round(n, tuple("ab"[i] for i in cohort), random_streams.key(0, "local_training", n))
        for n, cohort in enumerate(cohorts, 1)
    ]
    state = process.run(process.initialize(), plan, lambda *_: None)
    w, v = _mr_mtl_by_hand(cohorts)
    np.testing.assert_allclose(process.weights(state)[0][0].item(), w, rtol=1e-6)
    np.testing.assert_allclose(_numbers(process.client_states(state)), v, rtol=1e-6)


def _slowly(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("server", "is_mean"),
    [
        _slowly(("sgd", 1.0, {}), True),
        (("fedavgm", 1.0, {"momentum": 0.9}), True),
        _slowly(("momentum", 0.1, {"momentum": 0.9}), True),
        (("sgd", 0.5, {}), False),
        (("fedavgm", 10.0, {"momentum": 0.9}), False),
        (("momentum", 1.0, {"momentum": 0.9}), False),
        _slowly(("momentum", 1.0, {"momentum": 0.0}), True),
        (("momentum", 0.1, {"momentum": 0.0}), False),
        (("sgd", 1.0, {"momentum": 0.9}), False),
        (("adam", 1.0, {}), False),
        (("yogi", 1.0, {}), False),
        (("adagrad", 1.0, {}), False),
    ],
)
def test_mr_mtl_wants_a_server_that_makes_the_mean(server, is_mean, task):
    params = dataclasses.replace(_params(), server_optimizer=optimizers.OptimizerConfig(*server))
    if not is_mean:
        with pytest.raises(UserError, match=r"is the mean of the personal models.*rate=1"):
            _built("mr_mtl", task, params)
        return
    # Personal models at rest: whatever lagged has come by then.
    weights, _, models = _train(task, _built("mr_mtl", task, params, **{"lambda": 0.7}), rounds=200)
    expected = np.average(_numbers(models), weights=SIZES)
    np.testing.assert_allclose(weights[0][0].item(), expected, rtol=1e-5)


def test_per_fedavg_adapts_by_plain_steps(task):
    adam = optimizers.OptimizerConfig("adam", 0.1)
    with pytest.raises(UserError, match="plain SGD"):
        toy.like(_params(), PerFedAvg, personal_optimizer=adam).build(
            task, task.model.initial_weights(0)
        )


def test_apfl_by_hand(task):
    """Both gradients are taken at the models as the batch found them; two epochs a round."""
    params = dataclasses.replace(_params(), train_epochs=2)
    weights, _, models = _train(task, _built("apfl", task, params, alpha=0.4))
    w, v = FIRST, np.full(2, FIRST)
    for _ in range(ROUNDS):
        mine = np.full(2, w)
        for _ in range(2):
            mine, v = (
                mine - 0.3 * (mine - MEANS),
                v - RATE * 0.4 * (0.4 * v + 0.6 * mine - MEANS),
            )
        w = np.average(mine, weights=SIZES)
    np.testing.assert_allclose(_numbers(models), 0.4 * v + 0.6 * w, rtol=1e-6)
    np.testing.assert_allclose(weights[0][0].item(), w, rtol=1e-6)


def test_pfedme_by_hand(task):
    weights, _, models = _train(task, _built("pfedme", task, **{"lambda": 0.7, "inner_steps": 2}))
    w, v = FIRST, np.full(2, FIRST)
    for _ in range(ROUNDS):
        for _ in range(2):
            v = v - RATE * ((v - MEANS) + 0.7 * (v - w))
        w = np.average(w - 0.3 * 0.7 * (w - v), weights=SIZES)
    np.testing.assert_allclose(weights[0].item(), w, rtol=1e-6)
    np.testing.assert_allclose(_numbers(models), v, rtol=1e-6)


def test_per_fedavg_by_hand(task):
    weights, states, _ = _train(task, _built("per_fedavg", task))
    w = FIRST
    for _ in range(ROUNDS):
        adapted = w - RATE * (w - MEANS)
        w = w - np.average(0.3 * (adapted - MEANS), weights=SIZES)
    np.testing.assert_allclose(weights[0].item(), w, rtol=1e-6)
    assert not states


def _relations(w):
    values, vectors = np.linalg.eigh(w @ w.T)
    root = (vectors * np.sqrt(np.maximum(values, 1e-8))) @ vectors.T
    return root / np.trace(root)


def test_mocha_by_hand(task):
    algorithm = _built("mocha", task, **{"lambda": 0.7, "mocha_outer": 2})
    weights, states, models = _train(task, algorithm)
    w, s = np.full(2, FIRST), np.eye(2) / 2
    for _ in range(ROUNDS):
        before = w.copy()
        for _ in range(2):
            others = s @ before - np.diag(s) * before
            w = w - RATE * ((w - MEANS) + 0.7 * (np.diag(s) * w + others))
        s = _relations(w[:, None])
    np.testing.assert_allclose(_numbers(models), w, rtol=1e-5)
    own, (others,) = weights[1]
    np.testing.assert_allclose(own, np.diag(s), rtol=1e-4)
    np.testing.assert_allclose(others.ravel(), s @ w - np.diag(s) * w, rtol=1e-4)
    found = algorithm.matrices(list(states.values()))["relations"]
    np.testing.assert_allclose(found, s, atol=1e-5)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4), (5, 1)])
def test_relations(shape):
    w = np.random.default_rng(0).normal(size=shape)
    found = mocha.relations((tf.constant(w[:, :1], tf.float32), tf.constant(w[:, 1:], tf.float32)))
    np.testing.assert_allclose(found, _relations(w), atol=1e-5)
    if shape[0] <= shape[1]:
        root = scipy.linalg.sqrtm(w @ w.T).real
        np.testing.assert_allclose(found, root / np.trace(root), atol=1e-5)


def test_relations_of_models_that_are_all_zero():
    """As in the first round of a linear model: no relation, not a number that is none."""
    found = mocha.relations((tf.zeros([4, 2]),))
    np.testing.assert_allclose(found, np.eye(4) / 4, atol=1e-6)


def test_a_silo_that_stays_away_keeps_its_row(task):
    algorithm = _built("mocha", task, **{"lambda": 0.3})
    process = sequential.SequentialBackend().training(task, algorithm)
    only = [base.Round(1, ("a",), random_streams.key(0, "local_training", 1))]
    state = process.run(process.initialize(), only, lambda *_: None)
    rows = state[1][1][0].numpy().ravel()  # The server's part of the optimizer state.
    assert rows[1] == pytest.approx(FIRST) and rows[0] != pytest.approx(FIRST)


def test_scoring_of_personal_models(task):
    algorithm = _built("ditto", task, **{"lambda": 0.7})
    weights, states, models = _train(task, algorithm)
    work = personal_training.personalization(task, algorithm).work(
        ("valid", "test", "train"), "train"
    )
    key = random_streams.key(0, "personalization", 1)
    found = sequential.SequentialBackend().map_clients(
        base.ClientCall(task, work, weights, task.valid, ("a",), key, [states["a"]])
    )
    ((_, metrics),) = found
    numbers = np.array([1.0, 3.0])
    expected = [
        np.mean(0.5 * (numbers - w) ** 2) for w in (weights[0][0].item(), models["a"][0].item())
    ]
    for part in ("valid", "test", "train"):
        np.testing.assert_allclose(metrics["curves"][part]["loss"], expected, rtol=1e-5)


def test_only_what_an_algorithm_sends_is_counted(silos):

    model = sum(4 * int(np.prod(shape)) for shape in silos.model.shapes)
    last = 4 * (8 * 3 + 3)
    sizes = {
        name: _built(name, silos).bytes_per_client for name in algorithms.offered_by("mtl_trainer")
    }
    assert sizes.pop("local") == (0, 0) and sizes.pop("fedper") == (model - last,) * 2
    assert sizes.pop("fedrep") == (model - last,) * 2
    assert set(sizes.values()) == {(model, model)}
