"""Rates that change over rounds: by hand, of every algorithm, and on every backend."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import FedAvg, FedSgd, MrMtl, PerFedAvg, optimizers, rate_schedules
from motley_tff.algorithms.rate_schedules import RoundRates, factors
from motley_tff.backends import base, sequential, vectorized
from motley_tff.core import random_streams
from motley_tff.generative.ddpm import Ddpm
from tests import toy
from tests.contracts import registry
from tests.errors import refused

_EVERY = {**registry.TRAINING, **registry.STATEFUL}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("constant", 3, 0.5, 1, 0), (1, 1, 1, 1)),
        # (1 + cos(45 degrees)) / 2 and so on; the one after the last is not used.
        (("cosine", 4, 0.5, 1, 0), (1, 0.5 + 8**-0.5, 0.5, 0.5 - 8**-0.5, 0)),
        (("step", 4, 0.5, 2, 0), (1, 1, 0.5, 0.5, 0.25)),
        (("exponential", 4, 0.25, 2, 0), (1, 0.5, 0.25, 0.125, 0.0625)),
        (("constant", 3, 0.5, 1, 4), (0.25, 0.5, 0.75, 1)),
        (("exponential", 2, 0.25, 2, 2), (0.5, 0.5, 0.25)),
    ],
)
def test_factors(arguments, expected):
    np.testing.assert_allclose(factors(*arguments), expected, atol=1e-12)


def _scheduled(algorithm, client, server):
    return rate_schedules.scheduled(algorithm, RoundRates(*map(np.array, (client, server)), 1, 1))


@pytest.mark.parametrize("backend", ["sequential", "vectorized"])
def test_two_rounds_by_hand(backend):
    """All numbers are 1. From 0 a step at rate 0.5 is to 0.5, all of which the server takes; a step
    at a quarter of what is left of 1 is 0.125, of which it takes half.
    """
    task = toy.scalar_task({"a": [1.0, 1.0], "b": [1.0]})
    params = FedAvg(optimizers.OptimizerConfig("sgd", 0.5), train_batch_size=100)
    built = _scheduled(params.build(task, task.model.initial_weights(0)), (1, 0.5, 9), (1, 0.5, 9))
    runner = vectorized.VectorizedBackend(lambda *_: False)
    runner = sequential.SequentialBackend() if backend == "sequential" else runner
    (weights, factor) = toy.train(task, built, 2, runner).weights
    np.testing.assert_allclose(np.ravel(weights), 0.5 + 0.5 * 0.125)
    assert float(factor) == 9.0
    assert built.bytes_per_client == (4, 4)


@pytest.fixture(scope="module")
def silos():
    numbers = {"a": np.linspace(-1, 2, 5), "b": [0.5, 0.25, 1.5]}
    return toy.with_pair(toy.scalar_task(numbers, setting="cross_silo", initial=0.3), width=5)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", [n for n in _EVERY if n not in registry.INSTALLED])
def test_every_algorithm_trains_as_with_rates_that_are_set_by_hand(name, silos):
    """Its second round is that of an algorithm with other rates, which goes on from the first."""
    server = (1.0, 1.0) if name == "mr_mtl" else (0.75, 0.25)
    client, initial = (0.5, 0.125), silos.model.initial_weights(1)
    scheduled = _scheduled(_EVERY[name](silos, initial), (*client, 0), (*server, 0))
    found = toy.train(silos, scheduled, 2)
    backend, ids = sequential.SequentialBackend(), silos.train.ids
    state = None
    for number, by in enumerate(zip(client, server, strict=True), 1):
        process = backend.training(
            silos, _EVERY[name](silos, initial, functools.partial(_times, *by))
        )
        first = process.initialize()
        if state is not None:
            rates = rate_schedules._rates(first[1])
            optimizer = rate_schedules._with_rates(state[1], rates)
            first = state[0], optimizer, state[2]
        key = random_streams.key(0, "local_training", number)
        state, _ = process.next(first, [base.Round(number, ids, key)])
    expected = process.weights(state), process.client_states(state)
    pairs = zip(tf.nest.flatten((found.weights[0], found.client_states)),
                tf.nest.flatten(expected), strict=True)  # fmt: skip
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def _times(client, server, algorithm):
    """Returns the algorithm with rates of training times factors."""
    by = {"client_optimizer": client, "server_optimizer": server, "personal_optimizer": client}
    if isinstance(algorithm, PerFedAvg):  # Its own rate is that of evaluations, too.
        del by["personal_optimizer"]
    known = {field: getattr(algorithm, field) for field in by if hasattr(algorithm, field)}
    return dataclasses.replace(
        algorithm, **{field: o.at(o.learning_rate * by[field]) for field, o in known.items()}
    )


# Those with passes of their own are quick.
_OF_STEPS = [n for n in _EVERY if n not in registry.INSTALLED and n != "fedsgd"]
_PASSES = ("fedavg_adam", "hypcluster", "mocha", "fedrep", "ditto")


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in _PASSES else pytest.mark.slow) for n in _OF_STEPS],
)
def test_every_algorithm_counts_steps_in_place_of_epochs(name, silos):
    """Of batches of all examples, as many steps are as many epochs, shuffled alike."""
    trained = []
    for length in ({"train_epochs": 3}, {"train_epochs": 1, "train_steps": 3}):
        change = functools.partial(dataclasses.replace, train_batch_size=100, **length)
        built = _EVERY[name](silos, silos.model.initial_weights(1), change)
        run = toy.train(silos, built)
        trained.append(tf.nest.flatten((run.weights, run.client_states)))
    for a, b in zip(*trained, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("fedavg_fedavgm", "vectorized"), ("pfedme", "vectorized"), ("hypcluster", "vectorized"),
        ("mr_mtl", "vectorized"), ("fedavg_adam", "tff"), ("ditto", "tff"),
        ("hypcluster_shared", "tff"),
    ],
)  # fmt: skip
def test_backends_agree(name, backend, silos):
    built = _EVERY[name](silos, silos.model.initial_weights(1))
    scheduled = _scheduled(built, (0.5, 1, 0.1, 0), (1, 0.5, 0.25, 0))
    weights = []
    for which in ("sequential", backend):
        with registry.BACKENDS[which]() as runner:
            run = toy.train(silos, scheduled, [silos.train.ids, ("a",), silos.train.ids], runner)
        weights.append(tf.nest.flatten((run.weights, run.client_states)))
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg_adam", "hypcluster"])
def test_what_bounds_updates_does_not_see_the_factor(name, silos):
    from motley_tff.backends.tff import aggregators, backend, runtime

    built = _EVERY[name](silos, silos.model.initial_weights(1))
    weights = []
    with runtime.tff_runtime():
        runner = backend.TffBackend(aggregators.build("robust", 1.0, 2))
        for algorithm in (built, _scheduled(built, np.ones(4), np.ones(4))):
            weights.append(toy.train(silos, algorithm, 3, runner).weights)
    for a, b in zip(*map(tf.nest.flatten, (weights[0], weights[1][0])), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.usefixtures("eagerly")
def test_an_optimizer_that_a_silo_keeps_keeps_the_whole_rate():
    """From 0 towards 1 at rates 0.05, then 0.025: a step of 0.05, then one along 0.95 and half of
    the 1 before. Else its rate would be multiplied by every round's factor so far.
    """
    task = toy.scalar_task({"a": [1.0]}, setting="cross_silo")
    rate = optimizers.OptimizerConfig("momentum", 0.1, {"momentum": 0.5})
    params = Ddpm(rate, server_decay=0.0, keep_optimizer_state=True)
    built = params.build(task, task.model.initial_weights(0))
    run = toy.train(task, _scheduled(built, (0.5, 0.25, 0), np.ones(3)), 2)
    (weight,) = run.weights[0]["net"]
    assert weight.item() == pytest.approx(0.05 + 0.025 * (0.95 + 0.5))
    assert float(run.client_states["a"]["learning_rate"]) == pytest.approx(0.1)


def test_what_an_algorithm_does_not_have_is_refused():
    FedAvg(client_schedule="step", decay_factor=0.1, warmup_rounds=3).check_rounds(3)
    with refused("warmup_rounds", 4, "at most 3, the rounds"):
        FedAvg(warmup_rounds=4).check_rounds(3)
    with refused("decay_rounds", 7, "step or exponential"):
        FedAvg(client_schedule="cosine", decay_rounds=7).check_rounds(10)
    with refused("client_schedule", "step", "takes no steps"):
        FedSgd(client_schedule="step").check_rounds(10)
    with refused("server_schedule", "cosine", "whole change"):
        MrMtl(server_schedule="cosine").check_rounds(10)
    with refused("train_epochs", 2, "train_steps takes its place"):
        FedAvg(train_epochs=2, train_steps=4).check_rounds(10)


def test_a_round_says_its_rates():
    rates = FedAvg(client_schedule="cosine", server_schedule="step", decay_rounds=1).round_rates(2)
    assert rates.of_round(2) == pytest.approx(
        {"client_learning_rate": 0.05, "server_learning_rate": 0.5}
    )
    assert FedAvg().round_rates(2) is None
    rates = FedSgd(server_schedule="cosine").round_rates(2)
    assert rates.of_round(1) == {"client_learning_rate": None, "server_learning_rate": 1.0}
