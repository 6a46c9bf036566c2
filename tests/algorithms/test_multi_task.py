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
from motley_tff.algorithms import FedAvg, MrMtl, PerFedAvg, mocha, optimizers
from motley_tff.algorithms.personal_training import SiloAlgorithm
from motley_tff.core import options
from tests import toy
from tests.errors import refused

pytestmark = pytest.mark.usefixtures("eagerly")

MEANS = np.array([2.0, -1.0])
SIZES = np.array([2, 1])
RATE, ROUNDS, FIRST = 0.2, 3, 0.5
OWN = optimizers.OptimizerConfig("sgd", RATE)


_PARAMS = FedAvg(
    optimizers.OptimizerConfig("sgd", 0.3),
    optimizers.OptimizerConfig("sgd", 1.0),
    train_batch_size=10,
)


@pytest.fixture(scope="module")
def task():
    return toy.scalar_task({"a": [1.0, 3.0], "b": [-1.0]}, initial=FIRST, setting="cross_silo")


@pytest.fixture(scope="module")
def silos():
    """Silos whose model has two layers."""
    return toy.without_keras(toy.classifier_silos((7, 12)))


def _train(task, algorithm, rounds=ROUNDS):
    """Returns (server weights, {silo: state}, {silo: personal model})."""
    run = toy.train(task, algorithm, rounds)
    weights, states = run.weights, run.client_states
    models = {}
    if algorithm.personal_model is not None:
        models = {i: algorithm.personal_model(weights, s) for i, s in states.items()}
    return weights, states, models


def _built(name, task, params=_PARAMS, **own):
    kind = algorithms.TRAINING[name]
    fields = {o.name.flag: o.field for o in options.options(kind)}
    own = {fields[flag]: value for flag, value in own.items()}
    if issubclass(kind, SiloAlgorithm):
        own["personal_optimizer"] = OWN
    algorithm = toy.like(params, kind, **own)
    return algorithm.build(task, task.model.initial_weights(0))


def _numbers(models):
    return np.array([np.asarray(m[0]).item() for m in models.values()])


def _mean(numbers):
    return np.average(numbers, weights=SIZES)


def _local(w, v):
    """Returns (w, v) after a round, of FedAvg's model and those of the silos, as below."""
    return _mean(w - 0.3 * (w - MEANS)), v - RATE * (v - MEANS)


def _ditto(w, v):
    return _local(w, v)[0], v - RATE * ((v - MEANS) + 0.7 * (v - w))


def _pfedme(w, v):
    for _ in range(2):
        v = v - RATE * ((v - MEANS) + 0.7 * (v - w))
    return _mean(w - 0.3 * 0.7 * (w - v)), v


def _per_fedavg(w, v):
    adapted = w - RATE * (w - MEANS)
    return _mean(w - 0.3 * (adapted - MEANS)), v


def _apfl(w, v):
    """Both gradients are taken at the models as the batch found them; two epochs a round."""
    mine = np.full(2, w)
    for _ in range(2):
        mixture = 0.4 * v + 0.6 * mine
        mine, v = mine - 0.3 * (mine - MEANS), v - RATE * 0.4 * (mixture - MEANS)
    return _mean(mine), v


@pytest.mark.parametrize(
    ("name", "own", "round_"),
    [
        ("local", {}, _local),
        ("fedper", {}, _local),  # Its one layer stays.
        ("ditto", {"lambda": 0.7}, _ditto),
        ("pfedme", {"lambda": 0.7, "inner_steps": 2}, _pfedme),
        ("per_fedavg", {}, _per_fedavg),
        ("apfl", {"alpha": 0.4}, _apfl),
    ],
)
def test_by_hand(name, own, round_, task):
    params = dataclasses.replace(_PARAMS, train_epochs=2 if name == "apfl" else 1)
    weights, states, models = _train(task, _built(name, task, params, **own))
    w, v = FIRST, np.full(2, FIRST)
    for _ in range(ROUNDS):
        w, v = round_(w, v)
    np.testing.assert_allclose(tf.nest.flatten(weights)[0].item(), w, rtol=1e-6)
    if name == "per_fedavg":
        assert not states
    else:
        expected = 0.4 * v + 0.6 * w if name == "apfl" else v
        np.testing.assert_allclose(_numbers(models), expected, rtol=1e-6)


def test_fedper_shares_all_but_the_last_layer(silos):
    _, states, models = _train(silos, _built("fedper", silos))
    first, *others = models.values()
    for other in others:
        for a, b, is_last in zip(first, other, silos.model.is_last_layer, strict=True):
            assert np.array_equal(a, b) == (not is_last)
    assert len(next(iter(states.values()))) == sum(silos.model.is_last_layer)


def test_mr_mtl_is_the_mean_of_all_silos_whoever_answers(task):
    cohorts = [(0,), (1,), (1,), (0, 1), (0,)]
    algorithm = _built("mr_mtl", task, **{"lambda": 0.7})
    weights, _, models = _train(task, algorithm, [["ab"[i] for i in c] for c in cohorts])
    w, v = FIRST, np.full(2, FIRST)
    for cohort in cohorts:
        new = v.copy()
        for i in cohort:
            new[i] -= RATE * ((v[i] - MEANS[i]) + 0.7 * (v[i] - w))
        w, v = _mean(new), new
    np.testing.assert_allclose(weights[0][0].item(), w, rtol=1e-6)
    np.testing.assert_allclose(_numbers(models), v, rtol=1e-6)


@pytest.mark.parametrize(
    ("server", "is_mean"),
    [
        (("sgd", 1.0, {}), True),
        (("fedavgm", 1.0, {"momentum": 0.9}), True),
        (("momentum", 0.1, {"momentum": 0.9}), True),
        (("sgd", 0.5, {}), False),
        (("fedavgm", 10.0, {"momentum": 0.9}), False),
        (("momentum", 1.0, {"momentum": 0.9}), False),
        (("sgd", 1.0, {"momentum": 0.9}), False),
        (("adam", 1.0, {}), False),
    ],
)
def test_mr_mtl_wants_a_server_that_makes_the_mean(server, is_mean, task):
    params = MrMtl(server_optimizer=optimizers.OptimizerConfig(*server))
    if is_mean:
        params.check()
    else:
        with refused("server_optimizer", server[0], advice="server_optimizer.learning_rate=1"):
            params.build(task, task.model.initial_weights(0))


@pytest.mark.parametrize("server", [("fedavgm", 1.0), ("momentum", 0.5)])
def test_a_mean_that_lags_comes_when_personal_models_rest(server, task):
    momentum = optimizers.OptimizerConfig(*server, {"momentum": 0.5})
    rate = optimizers.OptimizerConfig("sgd", 0.5)
    params = MrMtl(personal_optimizer=rate, server_optimizer=momentum, regularization=0.7)
    algorithm = params.build(task, task.model.initial_weights(0))
    weights, _, models = _train(task, algorithm, rounds=20)
    assert weights[0][0].item() == pytest.approx(np.average(_numbers(models), weights=SIZES), 1e-3)


def test_per_fedavg_adapts_by_plain_steps(task):
    adam = optimizers.OptimizerConfig("adam", 0.1)
    with refused("personal_optimizer", "adam", "sgd", "personalization.optimizer"):
        PerFedAvg(personal_optimizer=adam).build(task, task.model.initial_weights(0))


def test_fedrep_by_hand(task):
    pair = toy.with_pair(task)
    weights, states, _ = _train(pair, _built("fedrep", pair, head_epochs=2))
    shared, heads = 0.0, np.zeros(2)
    for _ in range(ROUNDS):
        for _ in range(2):
            heads += RATE * (MEANS - shared - heads)
        shared = _mean(shared + RATE * (MEANS - shared - heads))
    np.testing.assert_allclose(weights[1][0].item(), shared, rtol=1e-5)
    np.testing.assert_allclose(_numbers(states), heads, rtol=1e-5)


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
    relations = algorithm.matrices(list(states.values()))["relations"]
    np.testing.assert_allclose(relations, s, atol=1e-5)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4), (5, 1)])
def test_relations(shape):
    zero = mocha.relations((tf.zeros(shape),))  # As in the first round of a linear model.
    np.testing.assert_allclose(zero, np.eye(shape[0]) / shape[0], atol=1e-6)
    w = np.random.default_rng(0).normal(size=shape)
    relations = mocha.relations(
        (tf.constant(w[:, :1], tf.float32), tf.constant(w[:, 1:], tf.float32))
    )
    np.testing.assert_allclose(relations, _relations(w), atol=1e-5)
    if shape[0] <= shape[1]:
        root = scipy.linalg.sqrtm(w @ w.T).real
        np.testing.assert_allclose(relations, root / np.trace(root), atol=1e-5)


def test_scoring_of_personal_models(task):
    algorithm = _built("ditto", task, **{"lambda": 0.7})
    weights, states, models = _train(task, algorithm)
    scoring = algorithms.Ditto().personalization(task, algorithm)
    work = scoring.work(("valid", "test", "train"), "train")
    metrics = toy.evaluate(task, work, weights, ("a",), [states["a"]])["a"]
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
    assert sizes.pop("fedrep") == (model - last,) * 2 and sizes.pop("fedbn") == (last,) * 2
    assert set(sizes.values()) == {(model, model)}
