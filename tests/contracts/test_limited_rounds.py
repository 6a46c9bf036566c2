"""A limit on a client's examples a round: drawn anew for every epoch, alike on every backend.

Each example of these clients moves a weight of its own, so that an update says what was drawn.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import FedAvg, optimizers, stragglers
from motley_tff.backends import base
from motley_tff.core import clients, partition, random_streams
from tests import toy
from tests.contracts import registry

_SIZES, _LIMIT = {"many": 23, "few": 3}, 8
_RATE = 0.5


class _Sum(toy.Bare):
    """Outputs a weight of its own for each one-hot example."""

    def __call__(self, x, training, key):
        return (x @ self._next())[:, 0]


def _error(y, outputs):
    """Its gradient is -1 for every example seen, whatever the weights."""
    return y - outputs, tf.ones_like(y)


@pytest.fixture(scope="module")
def task():
    size = sum(_SIZES.values())
    rows = np.split(np.eye(size, dtype=np.float32), [_SIZES["many"]])
    own = zip(_SIZES, rows, strict=True)
    train = clients.InMemoryClients({c: {"train": {"x": r}} for c, r in own})
    halves = {part: {"x": rows[1]} for part in ("personalization", "evaluation")}
    held = clients.InMemoryClients({"v": halves})
    whole = toy.scalar_task({"a": [1.0]})
    return dataclasses.replace(
        whole,
        model=toy.model(_Sum, (size, 1)),
        loss=_error,
        metrics=(whole.metric._replace(function=_error),),
        preprocess=lambda raw, training, key: (raw["x"], tf.reduce_sum(raw["x"], axis=1)),
        train=train,
        valid=held,
        test=held,
        max_train_examples=_LIMIT,
    )


@pytest.fixture(scope="module", params=["sequential", "vectorized", "tff"])
def backend(request):
    with registry.BACKENDS[request.param]() as opened:
        yield opened


def _rounds(backend, task, ids, num_epochs=1, num_rounds=2, change=lambda a: a, batch_size=4):
    """Returns the weights' change in each round, [rounds, weights]."""
    sgd = optimizers.OptimizerConfig("sgd", _RATE, {})
    server = optimizers.OptimizerConfig("sgd", 1.0, {})
    params = FedAvg(sgd, server, num_epochs, batch_size)
    algorithm = change(params.build(task, task.model.initial_weights(0)))
    process = backend.training(task, algorithm)
    state = process.initialize()
    weights = [np.ravel(process.weights(state)[0])]
    for number in range(1, num_rounds + 1):
        key = random_streams.key(5, "local_training", number)
        state, _ = process.next(state, [base.Round(number, ids, key)])
        weights.append(np.ravel(process.weights(state)[0]))
    return np.diff(weights, axis=0)


@pytest.fixture(scope="module")
def changes(backend, task):
    """In two rounds, of one epoch in batches of four."""
    return _rounds(backend, task, ("many", "few"))


@pytest.fixture(scope="module")
def reference():
    with registry.BACKENDS[registry.REFERENCE]() as opened:
        yield opened


def test_each_round_draws_its_own(changes):
    many = changes[:, : _SIZES["many"]]
    assert np.count_nonzero(many, axis=1).tolist() == [_LIMIT, _LIMIT]
    assert not np.array_equal(many[0], many[1])


def test_a_client_counts_as_many_as_it_used(changes):
    """Weights 8 and 3: the mean of two models, of which each moved its own weights."""
    total = _LIMIT + _SIZES["few"]
    many, few = np.split(changes[0], [_SIZES["many"]])
    # Batches of four: a step moves each of its examples by a quarter of the rate.
    np.testing.assert_allclose(many[many != 0], _LIMIT / total * _RATE / 4, rtol=1e-5)
    # The small client has one batch of three.
    np.testing.assert_allclose(few, _SIZES["few"] / total * _RATE / 3, rtol=1e-5)


def test_backends_draw_the_same(changes, reference, task):
    expected = _rounds(reference, task, ("many", "few"))
    np.testing.assert_allclose(changes, expected, rtol=1e-5, atol=1e-7)


def test_each_epoch_draws_its_own(reference, task):
    """Three epochs of eight of 23: more than eight are seen, some of them again."""
    (three,) = _rounds(reference, task, ("many",), num_epochs=3, num_rounds=1) / (_RATE / 4)
    assert np.rint(three).sum() == 3 * _LIMIT
    assert _LIMIT < np.count_nonzero(three) < 3 * _LIMIT


def test_every_example_comes_in_time(reference, task):
    seen = _rounds(reference, task, ("many",), num_rounds=20).sum(axis=0)
    assert (seen[: _SIZES["many"]] > 0).all()


def test_stragglers_have_a_share_of_the_limited_steps(reference, task):
    """Every client is one; a step is two of eight examples, so that none does five."""
    changes = _rounds(
        reference, task, ("many",), num_rounds=12, batch_size=2,
        change=lambda algorithm: stragglers.slowed(algorithm, 1.0),
    )  # fmt: skip
    steps = np.rint(np.count_nonzero(changes, axis=1) / 2)
    assert steps.min() >= 1
    assert steps.max() <= 4
    # Were the share one of 23 examples' steps, most would do all four.
    assert np.mean(steps == 4) < 0.5


def test_central_training_is_not_limited(task):
    assert partition.centralize(task, 1e9).max_train_examples is None


def test_a_number_of_steps_in_place_of_epochs(backend, task):
    """Seven batches each: of 23 examples an epoch of six and one more, of three seven epochs."""
    unlimited = dataclasses.replace(task, max_train_examples=None)

    def with_steps(algorithm):
        walks = tuple(dataclasses.replace(w, num_steps=7) for w in algorithm.work.passes)
        work = dataclasses.replace(algorithm.work, passes=walks)
        return dataclasses.replace(algorithm, work=work)

    (change,) = _rounds(backend, unlimited, ("many", "few"), num_rounds=1, change=with_steps)
    total = sum(_SIZES.values())
    many, few = np.split(change, [_SIZES["many"]])
    # A step moves a batch's weights by the rate in all.
    assert many.sum() == pytest.approx(7 * _RATE * _SIZES["many"] / total, rel=1e-5)
    np.testing.assert_allclose(few, 7 * _RATE / 3 * _SIZES["few"] / total, rtol=1e-5)
    moves = np.rint(many / (_RATE / 4 * _SIZES["many"] / total) * 3) / 3
    # An epoch's short last batch has three; four examples are seen a second time.
    assert (moves > 1.9).sum() + (moves < 1.9).sum() == 23 and 3 <= (moves >= 2).sum() <= 4
    slow = _rounds(
        backend, unlimited, ("few",), num_rounds=8,
        change=lambda algorithm: stragglers.slowed(with_steps(algorithm), 1.0),
    )  # fmt: skip
    steps = slow[:, -1] / (_RATE / 3)
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-4)
    assert set(np.rint(steps)) <= set(range(1, 8)) and len(set(np.rint(steps))) > 2
