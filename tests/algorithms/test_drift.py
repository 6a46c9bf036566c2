"""SCAFFOLD, FedDyn and FedNova: by hand, three rounds in NumPy, and where they are FedAvg."""

import contextlib
import dataclasses
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import (
    FedAvg,
    FedDyn,
    FedNova,
    OptimizerConfig,
    Scaffold,
    optimizers,
    stragglers,
)
from motley_tff.core import clients, random_streams, tensor_random
from motley_tff.experiment import schedule
from motley_tff.experiment.config import LoopConfig
from tests import eager, toy
from tests.contracts import registry
from tests.errors import refused

# The last one has no examples.
SIZES = {"a": 6, "b": 3, "c": 9, "d": 4, "e": 0}
NO_DATA = "e"
EPOCHS, BATCH_SIZE = 2, 4
# Three of the five a round, of whom some drop out.
LOOP = LoopConfig(total_rounds=3, clients_per_train_round=3, dropout_rate=0.3, base_random_seed=30)


class _Linear(toy.Bare):
    def __call__(self, x, training, key):
        return (x @ self._next())[:, 0]


@functools.cache
def regression(setting="cross_silo"):
    """Returns a task of linear regression on two features."""
    rng = np.random.default_rng(0)
    task = toy.scalar_task({name: [0.0] for name in SIZES}, setting=setting)
    examples = {
        name: {"x": rng.normal(size=(n, 2)).astype(np.float32),
               "y": rng.normal(size=n).astype(np.float32)}
        for name, n in SIZES.items()
    }  # fmt: skip
    parts = ("train", "valid", "test") if setting == "cross_silo" else ("train",)
    population = clients.InMemoryClients({c: dict.fromkeys(parts, e) for c, e in examples.items()})
    silos = {"valid": population, "test": population} if setting == "cross_silo" else {}
    return dataclasses.replace(
        task,
        model=toy.model(_Linear, (2, 1), initializer="glorot_uniform"),
        preprocess=lambda raw, training, key: (raw["x"], raw["y"]),
        train=population,
        **silos,
    )


def plan(task):
    return [schedule.round_of(LOOP, task, number) for number in range(1, LOOP.total_rounds + 1)]


def batches(task, round_, client_id):
    """Yields (x, y) of a client's batches, in the order in which backends draw them."""
    examples = {k: v.astype(np.float64) for k, v in task.train.fetch(client_id)["train"].items()}
    number = SIZES[client_id]
    size = min(BATCH_SIZE, number) or 1
    key = tensor_random.client_round_key(
        tf.constant(round_.key), tf.constant(random_streams.client_key(client_id))
    )
    key = tensor_random.fold(key, tensor_random.PASS, 0)
    for epoch in range(EPOCHS):
        own = tensor_random.fold(key, tensor_random.EPOCH, epoch)
        order = tensor_random.permutation(tensor_random.fold(own, tensor_random.SHUFFLE, 0), number)
        for first in range(0, number, size):
            chosen = order.numpy()[first : first + size]
            yield examples["x"][chosen], examples["y"][chosen]


def gradient(w, x, y):
    return x.T @ (x @ w - y) / len(y)


def in_numpy_scaffold(task, w, rate, server_rate):
    """The paper's Algorithm 1 with option II, and a mean by examples in place of its plain one."""
    ids, c, variates = task.train.ids, 0.0, dict.fromkeys(task.train.ids, np.zeros(2))
    total = sum(SIZES.values())
    for round_ in plan(task):
        present = [i for i in ids if i in round_.client_ids and SIZES[i]]
        share = sum(SIZES[i] for i in present)
        new_w, new_c = w.copy(), c
        for i in present:
            y, steps = w.copy(), 0
            for batch in batches(task, round_, i):
                y -= rate * (gradient(y, *batch) - variates[i] + c)
                steps += 1
            new = variates[i] - c + (w - y) / (steps * rate)
            new_w += server_rate * SIZES[i] / share * (y - w)
            new_c = new_c + SIZES[i] / total * (new - variates[i])
            variates[i] = new
        w, c = new_w, new_c
    return w, variates, c


def in_numpy_feddyn(task, w, rate, alpha):
    """The paper's Algorithm 1; m are the silos with examples."""
    ids, h, gradients = task.train.ids, np.zeros(2), dict.fromkeys(task.train.ids, np.zeros(2))
    m = sum(size > 0 for size in SIZES.values())
    for round_ in plan(task):
        thetas = []
        for i in (i for i in ids if i in round_.client_ids and SIZES[i]):
            theta = w.copy()
            for batch in batches(task, round_, i):
                theta -= rate * (gradient(theta, *batch) - gradients[i] + alpha * (theta - w))
            gradients[i] = gradients[i] - alpha * (theta - w)
            thetas.append(theta)
        h = h - alpha / m * sum(theta - w for theta in thetas)
        w = np.mean(thetas, axis=0) - h / alpha
    return w, {i: g / alpha for i, g in gradients.items()}, h / alpha


def in_numpy_fednova(task, w, rate, momentum=0.0, scale=1.0):
    """Equation 10 with tau the mean of ||a_i||_1, which is in the paper's closed form."""
    for round_ in plan(task):
        present = [i for i in round_.client_ids if SIZES[i]]
        p = {i: SIZES[i] / sum(SIZES[j] for j in present) for i in present}
        tau, direction = 0.0, 0.0
        for i in present:
            y, m, steps = w.copy(), 0.0, 0
            for batch in batches(task, round_, i):
                m = momentum * m + gradient(y, *batch)
                y -= scale * rate * m
                steps += 1
            b = momentum
            norm = (steps - b * (1 - b**steps) / (1 - b)) / (1 - b)
            tau += p[i] * norm
            direction += p[i] * (w - y) / norm
        w = w - tau * direction
    return w, {}, None


def _config(name="sgd", rate=0.2, **parameters):
    return OptimizerConfig(name, rate, parameters)


def params(client=None, server=None, epochs=EPOCHS, batch_size=BATCH_SIZE):
    return FedAvg(client or _config(), server or _config(rate=1.0), epochs, batch_size)


# name -> (kind, FedAvg's hyperparameters, its own, setting, the same in NumPy)
CASES = {
    "scaffold": (Scaffold, params(server=_config(rate=0.8)), {}, "cross_silo",
                 lambda t, w: in_numpy_scaffold(t, w, 0.2, 0.8)),
    "feddyn": (FedDyn, params(), {"dynamic_regularization": 0.7}, "cross_silo",
               lambda t, w: in_numpy_feddyn(t, w, 0.2, 0.7)),
    "fednova": (FedNova, params(), {}, "cross_device", lambda t, w: in_numpy_fednova(t, w, 0.2)),
    "fednova_momentum": (FedNova, params(_config("momentum", 0.1, momentum=0.8)), {}, "cross_silo",
                         lambda t, w: in_numpy_fednova(t, w, 0.1, 0.8)),
    "fednova_fedavgm": (FedNova, params(_config("fedavgm", 0.5, momentum=0.8)), {}, "cross_silo",
                        lambda t, w: in_numpy_fednova(t, w, 0.5, 0.8, 0.2)),
}  # fmt: skip
_QUICK = (("vectorized", "scaffold"), ("tff", "feddyn"), ("tff", "fednova"))


@functools.cache
def expected_of(name):
    *_, setting, in_numpy = CASES[name]
    task = regression(setting)
    return in_numpy(task, task.model.initial_weights(0)[0].astype(np.float64)[:, 0])


def _cases():
    for backend, name in itertools.product(("sequential", "vectorized", "tff"), CASES):
        is_quick = backend == "sequential" or (backend, name) in _QUICK
        yield pytest.param(backend, name, marks=[] if is_quick else pytest.mark.slow)


@pytest.fixture(scope="module")
def opened():
    """Returns backends by name, open until the tests are over."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda name: stack.enter_context(registry.BACKENDS[name]()))


def test_the_plan_has_absent_clients_and_drop_outs():
    first, second, third = (set(round_.client_ids) for round_ in plan(regression()))
    assert (first & third) - second, "some come back"
    assert len(second) < LOOP.clients_per_train_round, "some drop out"
    assert NO_DATA in first & second


@pytest.mark.parametrize(("backend", "name"), _cases())
def test_three_rounds_are_those_of_numpy(name, backend, opened):
    kind, fedavg, own, setting, _ = CASES[name]
    task, close = regression(setting), functools.partial(np.testing.assert_allclose, atol=1e-6)
    built = toy.like(fedavg, kind, **own).build(task, task.model.initial_weights(0))
    with eager.running() if backend == "sequential" else contextlib.nullcontext():
        run = toy.run(opened(backend).training(task, built), plan(task))
    w, states, of_server = expected_of(name)
    close(built.global_model(run.weights)[0][:, 0], w, rtol=0)
    assert states.keys() == run.client_states.keys()
    for client_id, (state,) in run.client_states.items():
        close(state[:, 0], states[client_id], rtol=0)
    if kind is not FedNova:
        close(run.weights[1][0][:, 0], of_server, rtol=0)


# One has the mean 1, one 4.
NUMBERS = {"a": [1.0], "b": [4.0, 3.0, 5.0]}


@pytest.fixture
def train(eagerly):
    """Returns `(kind, rounds, task or numbers, FedAvg's hyperparameters, ...) -> toy.Run`."""

    def run(kind, rounds=1, task=NUMBERS, of=None, slow=0.0, **own):
        if isinstance(task, dict):
            task = toy.scalar_task(task, setting="cross_silo")
        algorithm = toy.like(of or params(_config(rate=0.5), epochs=1, batch_size=100), kind, **own)
        built = algorithm.build(task, task.model.initial_weights(0))
        return toy.train(task, stragglers.slowed(built, slow), rounds)

    return run


def numbers(nest):
    return [leaf.item() for leaf in tf.nest.flatten(nest)]


def test_scaffold_by_hand(train):
    run = train(Scaffold, [("a", "b"), ("b",)])
    # Steps of rate 0.5 from 0 lead to 0.5 and 2; of 1 and 3 examples.
    first = run.process.weights(run.states[0])[:2]
    assert numbers(first) == pytest.approx([0.25 * 0.5 + 0.75 * 2, -(1 + 3 * 4) / 4])
    # b's gradient at 1.625 is -2.375, its correction -3.25 + 4; y = 1.625 + 0.5 * 1.625.
    assert numbers(run.client_states["b"]) == pytest.approx([-2.375])
    assert numbers(run.client_states["a"]) == pytest.approx([-1.0])
    # Of its variate's change, 1.625, the server takes 3 of 4 examples' part.
    assert numbers(run.weights[:2]) == pytest.approx([2.4375, -3.25 + 0.75 * 1.625])


def test_feddyn_by_hand(train):
    run = train(FedDyn, [("a", "b"), ("b",)], dynamic_regularization=2.0)
    # Again to 0.5 and 2, whose mean counts twice: as h = -2 / 2 * (0.5 + 2).
    assert numbers(run.process.weights(run.states[0])[0]) == pytest.approx([1.25 + 2.5 / 2])
    # g_b is -2 * 2 then, b's gradient at 2.5 is -1.5: to 2.5 - 0.5 * (-1.5 + 4).
    # States are g_i / 2.
    assert numbers(run.client_states["a"]) == pytest.approx([-0.5])
    assert numbers(run.client_states["b"]) == pytest.approx([-2 + 1.25])
    # h / 2 is -1.25 + 1.25 / 2.
    assert numbers(run.weights[:2]) == pytest.approx([1.25 + 0.625, -0.625])


def test_fednova_by_hand(train):
    of = params(_config(rate=0.5), epochs=1, batch_size=1)
    same = {"a": [1.0], "b": [4.0] * 3}
    # One step to 0.5, and three to 3.5; 2.5 steps in the mean.
    run = train(FedNova, task=same, of=of)
    assert numbers(run.weights[0]) == pytest.approx([2.5 * (0.25 * 0.5 + 0.75 * 3.5 / 3)])
    assert numbers(train(FedAvg, task=same, of=of).weights) == pytest.approx([2.75])


@pytest.mark.parametrize("name", ["sgd", "momentum", "fedavgm"])
def test_the_length_of_steps(name):
    """Of SGD it is their number, of momentum the paper's closed form, of Nesterov's one longer."""
    b, steps = 0.75, 5
    momentum = {} if name == "sgd" else {"momentum": b}
    closed = (steps - b * (1 - b**steps) / (1 - b)) / (1 - b)
    expected = {"sgd": steps, "momentum": closed, "fedavgm": (1 - b) * closed}
    measured = optimizers.MeasuredOptimizer(
        optimizers.build_optimizer(_config(name, 0.5, **momentum))
    )
    weights = (tf.zeros([2]),)
    state = measured.initialize((tf.TensorSpec([2]),))
    state = tf.nest.map_structure(tf.convert_to_tensor, state)
    for _ in range(steps):
        state, weights = measured.next(state, weights, (-tf.ones([2]),))
    assert float(state["length"]) == pytest.approx(0.5 * expected[name])
    np.testing.assert_allclose(weights[0], [0.5 * expected[name]] * 2, rtol=1e-6)


def test_where_they_are_fedavg(train):
    """SCAFFOLD in its first round, or of one step of all silos; FedNova of as many steps for all;
    FedDyn at alpha -> 0 of silos of one size, whose server has momentum 1.
    """

    def models(run):
        return numbers([run.process.weights(state)[0] for state in run.states])

    def weights(run):
        return numbers([run.process.weights(state) for state in run.states])

    several = params(_config("sgd", 0.5), epochs=3, batch_size=2)
    assert models(train(Scaffold, 3)) == pytest.approx(weights(train(FedAvg, 3)))
    scaffold, fedavg = (train(kind, 2, of=several) for kind in (Scaffold, FedAvg))
    first, second = models(scaffold)
    assert first == pytest.approx(weights(fedavg)[0])
    assert second != pytest.approx(weights(fedavg)[1], rel=1e-3)

    equal = {"a": [1.0, 2.0, 3.0], "b": [-2.0, 0.0, 5.0]}
    heavy = dataclasses.replace(several, client_optimizer=_config("momentum", 0.1, momentum=0.5))
    assert models(train(FedNova, 3, equal, heavy)) == pytest.approx(
        weights(train(FedAvg, 3, equal, heavy)), rel=1e-6
    )

    gentle = dataclasses.replace(several, client_optimizer=_config(rate=0.1))
    nesterov = _config(rate=1.0, momentum=1.0, nesterov=True)
    summed = dataclasses.replace(gentle, server_optimizer=nesterov)
    assert models(train(FedDyn, 3, equal, gentle, dynamic_regularization=1e-7)) == pytest.approx(
        weights(train(FedAvg, 3, equal, summed)), rel=1e-5
    )


def test_the_steps_that_a_straggler_takes_count(train):
    """Its variate is its mean gradient, whose steps' number its model tells."""
    of = params(_config(rate=0.25), epochs=12, batch_size=1)
    run = train(Scaffold, task={"a": [2.0]}, of=of, slow=1.0)
    (y, *_), (variate,) = numbers(run.weights), numbers(run.client_states["a"])
    steps = np.log(1 - y / 2) / np.log(0.75)  # Each leaves 3/4 of the way to 2.
    assert steps == pytest.approx(round(steps), abs=1e-4) and 0 < steps < 11.5
    assert variate == pytest.approx(-y / (0.25 * steps), rel=1e-4)


def test_what_crosses_the_wire():
    task = toy.with_pair(toy.scalar_task({"a": [1.0]}, setting="cross_silo"), width=5)
    sizes = {
        kind: kind().build(task, task.model.initial_weights(0)).bytes_per_client
        for kind in (FedAvg, Scaffold, FedDyn, FedNova)
    }
    assert sizes == {FedAvg: (40, 40), Scaffold: (80, 80), FedDyn: (40, 40), FedNova: (40, 40)}


def test_refusals():
    devices = toy.scalar_task({"a": [1.0]})
    for kind in (Scaffold, FedDyn):
        with refused("algorithm", kind.card.name, "silos", "cross_silo"):
            kind().check_clients(devices)
    FedNova().check_clients(devices)
    momentum = _config("sgd", 0.1, momentum=0.5)
    with refused("client_optimizer", "sgd with momentum 0.5", "sgd without momentum"):
        Scaffold(momentum).check()
    FedNova(momentum).check()
    with refused("client_optimizer", "adam", "sgd, momentum or fedavgm"):
        FedNova(_config("adam")).check()
    for kind in (Scaffold, FedDyn, FedNova):
        for aggregator in ("median", *registry.AGGREGATORS):
            with refused("aggregator", aggregator, "mean"):
                kind().check_beside(aggregator, False)
