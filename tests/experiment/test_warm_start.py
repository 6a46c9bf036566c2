"""Where clusters start from."""

import numpy as np
import pytest

from motley_tff.algorithms import FedAvg, OptimizerConfig
from motley_tff.backends import sequential
from motley_tff.experiment import progress, warm_start
from motley_tff.experiment.config import LoopConfig
from motley_tff.files import csv_files
from tests import toy

_FEDAVG = FedAvg(OptimizerConfig("sgd", 0.5), OptimizerConfig("sgd", 1.0))


def _start(task, folder, backend=None, **loop):
    """Returns a warm start under seed 1, of FedAvg on the sequential backend or another."""
    return warm_start.WarmStart(
        task,
        backend or sequential.SequentialBackend(),
        lambda weights: _FEDAVG.build(task, weights),
        LoopConfig(base_random_seed=1, **loop),
        folder,
        progress.Silent(),
    )


def test_sketches_keep_what_updates_have_in_common():
    """Two groups whose updates have a cosine of 0.2 inside and 0 across, in 300,000 numbers."""
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(2, 300_000))
    noise = rng.normal(size=(12, 300_000))
    updates = 0.5 * np.repeat(directions, 6, axis=0) + noise
    updates /= np.linalg.norm(updates, axis=1, keepdims=True)
    sketches = np.stack(
        [warm_start._sketch((u[:1000].reshape(10, 100), u[1000:])) for u in updates]
    )
    exact, products = updates @ updates.T, sketches @ sketches.T
    # The standard error of an inner product is 1 / sqrt(2^14), 0.008.
    np.testing.assert_allclose(products, exact, atol=0.04)
    inside, across = products[:6, :6][~np.eye(6, dtype=bool)], products[:6, 6:]
    assert inside.min() > across.max()


class _Noting:
    """A backend that trains nothing, and its process: notes who answers."""

    def __init__(self):
        self.cohorts = []

    def training(self, task, algorithm):
        return self

    def initialize(self):
        return (np.zeros([1, 1], np.float32),)

    rounds_per_call = 1

    def next(self, state, rounds):
        self.cohorts += [round_.client_ids for round_ in rounds]
        return state, []

    def weights(self, state):
        return state


def test_clients_drop_out_of_a_warm_start_too(tmp_path):
    task = toy.scalar_task({name: [1.0] for name in "abcdef"})
    # Of 40; one of four always answers, so half and 0.6 more are expected, give or take 3.
    for rate, answered in ((0.0, 40), (0.5, 26)):
        (folder := tmp_path / str(rate)).mkdir()
        backend = _Noting()
        start = _start(task, folder, backend, clients_per_train_round=4, dropout_rate=rate)
        start.fedavg([(np.zeros([1, 1], np.float32),)], 10)
        # One float32 to each of four clients, ten times.
        assert start.communicated == (160, 4 * answered)
        assert sum(map(len, backend.cohorts)) == answered and len(backend.cohorts) == 10


@pytest.mark.usefixtures("eagerly")
def test_a_split_moves_a_model_towards_its_groups(tmp_path):
    """From 0, clients at 2 and 4 pull one way, those at -3 the other; full batches at rate 1/2."""
    task = toy.scalar_task({"a": [2.0], "b": [4.0], "c": [-3.0], "d": [-3.0]})
    start = _start(task, tmp_path, clients_per_train_round=2)
    models = start.split((np.zeros([1, 1], np.float32),), 2)
    np.testing.assert_allclose(sorted(float(w[0][0, 0]) for w in models), [-1.5, 1.5], rtol=1e-6)
    # Every client got one model of one float32 and sent one back.
    assert start.communicated == (16, 16)
    # A run that is cut afterwards goes on from the same models, whatever machine computes.
    again = start.split((np.ones([1, 1], np.float32),), 2)
    np.testing.assert_array_equal([w[0] for w in again], [w[0] for w in models])
    # One that was cut before it had written them makes them again, and is in the table once.
    (tmp_path / "warm_start_cluster_2.npz").unlink()
    start.split((np.zeros([1, 1], np.float32),), 2)
    (row,) = csv_files.read(tmp_path / "warm_start.csv")
    assert [row[name] for name in ("model", "round", "bytes_up")] == ["0", "1", "16"]


@pytest.mark.usefixtures("eagerly")
def test_a_split_moves_what_is_shared_by_everybody(tmp_path):
    """Outputs b + h from 0: a and b pull both numbers by 1 and 2, c by -1.5; b is shared."""
    task = toy.with_pair(toy.scalar_task({"a": [2.0], "b": [4.0], "c": [-3.0]}))
    start = _start(task, tmp_path, clients_per_train_round=2)
    first = (np.zeros([1, 1], np.float32), np.zeros([1, 1], np.float32))
    models = start.split(first, 2, is_shared=(True, False))
    ends = sorted((float(h[0, 0]), float(b[0, 0])) for b, h in models)
    np.testing.assert_allclose(ends, [(-1.5, 0.5), (1.5, 0.5)], rtol=1e-6)
