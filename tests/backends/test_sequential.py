"""The sequential backend's order of clients."""

import collections
import dataclasses
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms.fedavg import FedAvg
from motley_tff.backends import sequential
from motley_tff.core import clients
from tests import toy


class _Noted(clients.InMemoryClients):
    """Notes whose examples are asked for."""

    def __init__(self, data):
        super().__init__(data)
        self.asked, self._lock = [], threading.Lock()

    def fetch(self, client_id):
        with self._lock:
            self.asked.append(client_id)
        return super().fetch(client_id)


def _noted(sizes):
    """Returns a task whose clients t0, t1, ... have so many numbers each."""
    task = toy.scalar_task({f"t{i}": np.arange(n) for i, n in enumerate(sizes)})
    source = _Noted({i: task.train.fetch(i) for i in task.train.ids})
    return dataclasses.replace(task, train=source)


def _train(task, rounds=1, backend=None):
    return toy.train(task, FedAvg().build(task, task.model.initial_weights(0)), rounds, backend)


@pytest.mark.usefixtures("eagerly")
def test_the_largest_clients_of_a_cohort_run_first_and_equal_ones_in_order():
    task = _noted((7, 12, 3, 20, 9, 7))
    _train(task, [["t5", "t0", "t2", "t3", "t1", "t4"]])
    assert task.train.asked == ["t3", "t1", "t4", "t5", "t0", "t2"]


@pytest.mark.usefixtures("eagerly")
def test_without_sizes_clients_run_in_the_order_of_the_cohort(monkeypatch):
    task = _noted((3, 4, 5, 6))
    monkeypatch.setattr(task.train, "sizes", {})
    _train(task, [["t2", "t0", "t3"]])
    assert task.train.asked == ["t2", "t0", "t3"]


def test_tracing_is_not_what_a_client_takes():
    task = toy.scalar_task({"a": [1.0]})
    algorithm = FedAvg().build(task, task.model.initial_weights(0))

    def init(*arguments):
        time.sleep(1)  # Runs as it is traced alone.
        return algorithm.work.init(*arguments)

    slow = dataclasses.replace(algorithm, work=dataclasses.replace(algorithm.work, init=init))
    (result,) = toy.train(task, slow).results
    assert result.slowest_client_seconds < 1 < result.seconds


def _slow_at_first(tensors, places, place):
    """Returns the same tensors, of a graph whose first call takes half a second; notes each."""

    def note(value):
        if place not in places:
            time.sleep(0.5)
        places.append(place)
        return value

    first, *others = tf.nest.flatten(tensors)
    noted = tf.numpy_function(note, [first], first.dtype)
    noted.set_shape(first.shape)
    return tf.nest.pack_sequence_as(tensors, [noted, *others])


@pytest.mark.parametrize(("parallel_clients", "robust"), [(1, None), (2, None), (1, "median")])
def test_first_calls_are_not_what_clients_and_server_take(monkeypatch, parallel_clients, robust):
    """A client's function, weighing an update, adding one and the server's step: each is called
    once for nothing and not timed, and the numbers are those of calls that are not slow.
    """
    task = toy.scalar_task({"a": [1.0], "b": [3.0, 4.0]})
    algorithm = FedAvg().build(task, task.model.initial_weights(0))
    calls = []

    def init(broadcast, *others):
        return algorithm.work.init(_slow_at_first(broadcast, calls, "client"), *others)

    def weigh(output):
        return sums(output._replace(weight=_slow_at_first(output.weight, calls, "weigh")))

    def add(total, output):
        return total_with(_slow_at_first(total, calls, "add"), output)

    def step(self, weights, *others):
        return server_step(self, _slow_at_first(weights, calls, "step"), *others)

    backend = sequential.SequentialBackend(parallel_clients, robust)
    training_class = sequential.SequentialTraining
    sums, total_with, server_step = sequential._weigh, sequential._add, training_class._server_step
    monkeypatch.setattr(sequential, "_weigh", weigh)
    monkeypatch.setattr(sequential, "_add", add)
    monkeypatch.setattr(training_class, "_server_step", step)
    slow = dataclasses.replace(algorithm, work=dataclasses.replace(algorithm.work, init=init))
    run = toy.train(task, slow, 2, backend)
    first = run.results[0]
    assert 4 * 0.5 < first.seconds < 60
    assert max(first.slowest_client_seconds, first.server_seconds) < 0.5
    n = len(task.train.ids)
    expected = {"client": 1 + 2 * n, "weigh": 2 + 2 * n, "add": 1 + 2 * (n - 1), "step": 1 + 2}
    assert collections.Counter(calls) == expected
    # Of 1 and 3.5 the mean by examples is 8/3; a tenth of the way to it is gone each round.
    goal = 2.25 if robust else 8 / 3
    assert run.weights[0].item() == pytest.approx(goal * (1 - 0.9**2))


@pytest.mark.usefixtures("eagerly")
def test_a_round_has_the_same_bytes_however_many_run_at_once():
    task = toy.without_keras(toy.classifier_task(4))
    alone, parallel = (_train(task, backend=sequential.SequentialBackend(n)) for n in (1, 3))
    assert alone.results[0].means == parallel.results[0].means
    for a, b in zip(alone.weights, parallel.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_clients_come_in_order_however_they_are_begun(threads):
    sizes = [3, 9, 1, 1, 2, 8, 5, 9]
    order = sequential._begun_in_order(sizes, threads)
    assert order[: -2 * threads] == [*range(len(sizes) - 2 * threads)]
    assert [sizes[i] for i in order[-2 * threads :]] == sorted(sizes[-2 * threads :])[::-1]
    arguments = [(i, size) for i, size in enumerate(sizes)]
    yielded = sequential._ordered_map(lambda *both: both, arguments, order, threads)
    assert list(yielded) == arguments


def test_a_large_client_keeps_no_thread_waiting():
    """The other thread goes on with the next two clients; a third would be one result too many."""
    ended = [threading.Event() for _ in range(5)]

    def function(i):
        if i == 0:
            assert ended[2].wait(20) and ended[3].wait(20) and not ended[4].wait(0.2)
        ended[i].set()
        return i

    yielded = sequential._ordered_map(function, [(i,) for i in range(5)], range(5), 2)
    assert list(yielded) == [0, 1, 2, 3, 4]
