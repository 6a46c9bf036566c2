"""Where clusters start from."""

import numpy as np

from motley_tff.backends import sequential
from motley_tff.experiment import progress, warm_start
from tests import toy
from tests.algorithms import test_hypcluster


def _start(task, folder, **settings):
    """Returns a warm start under seed 1, of FedAvg on the sequential backend."""
    return warm_start.WarmStart(
        task,
        sequential.SequentialBackend(),
        lambda weights: test_hypcluster._params().build(task, weights),
        seed=1,
        directory=folder,
        progress=progress.Silent(),
        **settings,
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
    exact, found = updates @ updates.T, sketches @ sketches.T
    # The standard error of an inner product is 1 / sqrt(2^14), 0.008.
    np.testing.assert_allclose(found, exact, atol=0.04)
    inside, across = found[:6, :6][~np.eye(6, dtype=bool)], found[:6, 6:]
    assert inside.min() > across.max()


def test_clients_drop_out_of_a_warm_start_too(tmp_path):
    task = toy.scalar_task({name: [1.0] for name in "abcdef"})
    found = {}
    for rate in (0.0, 0.5):
        folder = tmp_path / str(rate)
        folder.mkdir()
        start = _start(task, folder, cohort_size=4, dropout_rate=rate)
        start.fedavg([(np.zeros([1, 1], np.float32),)], 10)
        found[rate] = start.communicated
    # One float32 to each of four clients, ten times.
    assert found[0.0] == (160, 160)
    # 26 of 40 answered; one of four always does, so 20.6 are expected, give or take 3.
    assert found[0.5] == (160, 4 * 26)


def test_a_split_moves_a_model_towards_its_groups(tmp_path):
    """From 0, clients at 2 and 4 pull one way, those at -3 the other; full batches at rate 1/2."""
    task = toy.scalar_task({"a": [2.0], "b": [4.0], "c": [-3.0], "d": [-3.0]})
    start = _start(task, tmp_path, cohort_size=2)
    models = start.split((np.zeros([1, 1], np.float32),), 2)
    np.testing.assert_allclose(sorted(float(w[0][0, 0]) for w in models), [-1.5, 1.5], rtol=1e-6)
    # Every client got one model of one float32 and sent one back.
    assert start.communicated == (16, 16)
    # A run that is cut afterwards goes on from the same models, whatever machine computes.
    again = start.split((np.ones([1, 1], np.float32),), 2)
    np.testing.assert_array_equal([w[0] for w in again], [w[0] for w in models])


def test_a_split_moves_what_is_shared_by_everybody(tmp_path):
    """Outputs b + h from 0: a and b pull both numbers by 1 and 2, c by -1.5; b is shared."""
    task = toy.with_pair(toy.scalar_task({"a": [2.0], "b": [4.0], "c": [-3.0]}))
    start = _start(task, tmp_path, cohort_size=2)
    first = (np.zeros([1, 1], np.float32), np.zeros([1, 1], np.float32))
    models = start.split(first, 2, is_shared=(True, False))
    found = sorted((float(h[0, 0]), float(b[0, 0])) for b, h in models)
    np.testing.assert_allclose(found, [(-1.5, 0.5), (1.5, 0.5)], rtol=1e-6)
