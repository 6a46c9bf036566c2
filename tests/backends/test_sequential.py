"""The sequential backend's order of clients."""

import collections
import dataclasses
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms.fedavg import FedAvg
from motley_tff.backends import base, sequential
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


def _train(task, ids, parallel_clients=1):
    algorithm = FedAvg().build(task, task.model.initial_weights(0))
    training = sequential.SequentialBackend(parallel_clients).training(task, algorithm)
    means = []
    round_ = base.Round(1, tuple(ids), np.array([1, 2], np.int32))
    state = training.run(training.initialize(), [round_], lambda r, _: means.append(r.means))
    return training.weights(state), means


def _noted(task):
    source = _Noted({i: task.train.fetch(i) for i in task.train.ids})
    return dataclasses.replace(task, train=source)


def test_the_largest_clients_of_a_cohort_run_first_and_equal_ones_in_order():
    task = _noted(toy.classifier_task(num_clients=6))  # Of 7, 12, 3, 20, 9 and 7 examples.
    _train(task, ["t5", "t0", "t2", "t3", "t1", "t4"])
    assert task.train.asked == ["t3", "t1", "t4", "t5", "t0", "t2"]


def test_without_sizes_clients_run_in_the_order_of_the_cohort(monkeypatch):
    task = _noted(toy.classifier_task())
    monkeypatch.setattr(_Noted, "sizes", {})
    ids = ["t2", "t0", "t3"]
    _train(task, ids)
    assert task.train.asked == ids


def test_tracing_is_not_what_a_client_takes():
    task = toy.classifier_task()
    algorithm = FedAvg().build(task, task.model.initial_weights(0))

    def init(*arguments):
        time.sleep(3)  # Runs as it is traced alone.
        return algorithm.work.init(*arguments)

    slow = dataclasses.replace(algorithm, work=dataclasses.replace(algorithm.work, init=init))
    training = sequential.SequentialBackend().training(task, slow)
    round_ = base.Round(1, tuple(task.train.ids), np.array([1, 2], np.int32))
    results = []
    training.run(training.initialize(), [round_], lambda r, _: results.append(r))
    assert results[0].slowest_client_seconds < 3 < results[0].seconds


def _slow_at_first(tensors, places, place):
    """Returns the same tensors, of a graph whose first call takes a second; notes each call."""

    def note(value):
        if place not in places:
            time.sleep(1)
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
    task = toy.classifier_task()
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

    def train(algorithm):
        backend = sequential.SequentialBackend(parallel_clients, robust)
        training, results = backend.training(task, algorithm), []
        rounds = [base.Round(n, tuple(task.train.ids), np.array([1, n], np.int32)) for n in (1, 2)]
        state = training.run(training.initialize(), rounds, lambda r, _: results.append(r))
        return results, training.weights(state)

    _, expected = train(algorithm)
    training_class = sequential.SequentialTraining
    sums, total_with, server_step = sequential._weigh, sequential._add, training_class._server_step
    monkeypatch.setattr(sequential, "_weigh", weigh)
    monkeypatch.setattr(sequential, "_add", add)
    monkeypatch.setattr(training_class, "_server_step", step)
    slow = dataclasses.replace(algorithm, work=dataclasses.replace(algorithm.work, init=init))
    results, weights = train(slow)
    assert results[0].seconds > 4
    assert max(results[0].slowest_client_seconds, results[0].server_seconds) < 1
    n = len(task.train.ids)
    made = collections.Counter(calls)
    assert made == {"client": 1 + 2 * n, "weigh": 2 + 2 * n, "add": 1 + 2 * (n - 1), "step": 1 + 2}
    for a, b in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("parallel_clients", [2, 3])
def test_a_round_has_the_same_bytes_however_many_run_at_once(
    parallel_clients,
):
    task = toy.classifier_task(num_clients=6)
    weights, means = _train(task, task.train.ids)
    others, other_means = _train(task, task.train.ids, parallel_clients)
    assert means == other_means
    for a, b in zip(weights, others, strict=True):
        np.testing.assert_array_equal(a, b)
