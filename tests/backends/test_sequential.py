"""The sequential backend's order of clients."""

import dataclasses
import threading
import time

import numpy as np
import pytest

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
