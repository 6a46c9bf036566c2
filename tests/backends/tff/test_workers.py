"""Several TFF workers give the numbers of one, and go on when one of them is lost."""

import collections
import contextlib
import dataclasses
import os
import signal
import socket
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

from motley_tff.algorithms import FedAvg, optimizers
from motley_tff.backends import base, sequential
from motley_tff.backends.tff import (
    backend as tff_backend,
    process,
    runtime,
    targets as worker_targets,
    workers as tff_workers,
)
from motley_tff.core import clients, random_streams
from motley_tff.core.errors import UserError, WorkerError
from motley_tff.core.lazy import tff
from tests import toy
from tests.contracts import registry
from tests.errors import refused

_NUMBERS = tff.FederatedType(np.int32, tff.CLIENTS)


def _after(seconds, value):
    """Returns a tensor that is there after a time, which costs no processor."""
    data = tf.data.Dataset.from_tensors(value)
    microseconds = tf.cast(seconds * 1e6, tf.int64)
    return data.apply(testing.sleep(microseconds)).take(1).get_single_element()


def _napping_total(seconds):
    @tff.tensorflow.computation(np.int32)
    def nap(value):
        return _after(seconds, value)

    @tff.federated_computation(_NUMBERS)
    def total(values):
        return tff.federated_sum(tff.federated_map(nap, values))

    return total


@contextlib.contextmanager
def _two_workers():
    with runtime.running_worker() as (first, _), runtime.running_worker() as (second, _):
        yield first, second


@pytest.fixture(scope="module")
def targets():
    with _two_workers() as workers:
        yield [worker.target for worker in workers]


@pytest.fixture(scope="module")
def spread(targets):
    """Two workers are this thread's runtime."""
    with tff_workers.tff_workers_runtime(targets):
        yield


# --- the same numbers -----------------------------------------------------------------------------


def _trained(task, rounds=2, on_round=lambda: None):
    """Returns (weights, each round's means)."""
    params = FedAvg(
        optimizers.OptimizerConfig("sgd", 0.2),
        optimizers.OptimizerConfig("momentum", 0.5, {"momentum": 0.9}),
        train_batch_size=4,
    )
    algorithm = params.build(task, task.model.initial_weights(3))
    training = tff_backend.TffBackend().training(task, algorithm)
    state, means = training.initialize(), []
    for number in range(1, rounds + 1):
        key = random_streams.key(7, "local_training", number)
        state, (result,) = training.next(state, [base.Round(number, task.train.ids, key)])
        means.append(result.means)
        on_round()
    return training.weights(state), means


def _assert_same(results, expected):
    for a, b in zip(results[0], expected[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(results[1], expected[1], strict=True):
        assert a == pytest.approx(b, rel=1e-5)


@pytest.mark.slow
def test_two_workers_train_as_one_does(spread):
    task = toy.classifier_task()
    with runtime.tff_runtime():
        expected = _trained(task)
    _assert_same(_trained(task), expected)


def test_secure_sums_split_as_well(spread):
    """TFF's simulated ones; what comes back is in the containers the computation names."""

    @tff.federated_computation(_NUMBERS)
    def both(values):
        return tff.federated_zip(
            collections.OrderedDict(
                secure=tff.federated_secure_sum(values, 100), plain=tff.federated_max(values)
            )
        )

    assert both([3, 1, 2]) == collections.OrderedDict(secure=6, plain=3)


@pytest.mark.slow
def test_clients_keep_their_own_state(spread):
    task = toy.classifier_silos()
    algorithm = registry.STATEFUL["ditto"](task, task.model.initial_weights(7))
    states, expected = (
        tf.nest.flatten(toy.train(task, algorithm, 2, backend).client_states)
        for backend in (tff_backend.TffBackend(), sequential.SequentialBackend())
    )
    for a, b in zip(states, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert not np.allclose(states[0], states[-len(states) // len(task.train)])


def test_results_come_in_the_order_of_the_clients(spread):
    """The first of them take longest."""

    @tff.tensorflow.computation(np.int32)
    def slow_where_small(value):
        return tf.fill([value], _after(tf.where(value < 3, 1.0, 0.0), value))

    @tff.federated_computation(_NUMBERS)
    def every(values):
        return tff.federated_map(slow_where_small, values)

    assert [list(a) for a in every([1, 2, 3, 4, 5])] == [[n] * n for n in range(1, 6)]


def test_cohorts_of_all_sizes(spread):
    total = _napping_total(0)
    for size in range(1, 6):
        assert total(list(range(size))) == sum(range(size))


@pytest.mark.parametrize(
    ("sizes", "parts", "expected"),
    [
        ([10, 10, 10, 10], 2, [2, 2]),
        ([30, 10, 10, 10], 2, [1, 3]),
        ([1, 1, 1, 97], 2, [3, 1]),
        ([97, 1], 3, [1, 1]),
        ([0, 0, 0], 2, [1, 2]),  # Not known.
        ([5], 2, [1]),
        ([], 2, [0]),
    ],
)
def test_each_worker_gets_about_as_many_examples(sizes, parts, expected):
    value_type = tff.to_type(collections.OrderedDict(num_examples=np.int32, index=np.int32))
    type_ = tff.to_type((np.int32, tff.FederatedType(value_type, tff.CLIENTS)))
    values = [collections.OrderedDict(num_examples=n, index=i) for i, n in enumerate(sizes)]
    dealt = tff_workers.split((7, values), type_, parts)
    assert [[v["index"] for v in part[1]] for part in dealt] == [
        list(range(sum(expected[:i]), sum(expected[: i + 1]))) for i in range(len(expected))
    ]
    assert all(part[0] == 7 for part in dealt)


# --- failures -------------------------------------------------------------------------------------


def test_the_workers_outlive_the_run_and_keep_nothing_of_it(targets):
    before = tff.framework.get_context_stack().current
    for _ in range(2):
        with tff_workers.tff_workers_runtime(targets):
            assert _napping_total(0)([1, 2]) == 3
        assert tff.framework.get_context_stack().current is before


@pytest.mark.slow
def test_long_work_is_not_taken_for_a_hang_and_workers_work_at_once(targets):
    @tff.tensorflow.computation(np.int32)
    def nap(value):
        start = tf.timestamp()
        with tf.control_dependencies([start]):
            rested = _after(6, value)
        with tf.control_dependencies([rested]):
            return tf.stack([start, tf.timestamp()])

    @tff.federated_computation(_NUMBERS)
    def times(values):
        return tff.federated_map(nap, values)

    with tff_workers.tff_workers_runtime(targets, pytest.fail, silence_seconds=4):
        (first, second) = times([1, 2])
    for start, end in (first, second):
        assert end - start >= 6
    # Each began before the other one ended.
    assert max(first[0], second[0]) < min(first[1], second[1])


def _napping_task(seconds):
    """Clients whose data take a time to load in TFF's worker."""
    task = toy.classifier_task()
    source = task.train

    def load(client_id):
        x = tf.random.stateless_normal([7, 4], [tf.strings.to_hash_bucket_fast(client_id, 97), 3])
        x = _after(seconds, x)
        return {"train": collections.OrderedDict(x=x, y=tf.argmax(x[:, :3], 1, tf.int32))}

    return dataclasses.replace(task, train=clients.InGraphClients(source.ids, load))


@pytest.mark.slow
def test_a_round_goes_on_without_the_worker_that_was_killed():
    losses = []
    with _two_workers() as (first, second):

        def kill_soon():
            if not losses:
                threading.Timer(1.0, lambda: os.kill(second.pid, signal.SIGKILL)).start()

        with tff_workers.tff_workers_runtime([first.target, second.target], losses.append):
            expected = _trained(_napping_task(0), rounds=3)
            results = _trained(_napping_task(2.5), on_round=kill_soon, rounds=3)
    _assert_same(results, expected)
    for a, b in zip(results[0], expected[0], strict=True):
        np.testing.assert_array_equal(a, b, "sums keep their order")
    (loss,) = losses
    assert f"lost TFF's worker at {second.target}" in loss
    assert f"{first.target} does its part again, 1 of 2 are left" in loss


@pytest.mark.slow
def test_a_worker_that_hangs_is_given_up():
    losses = []
    with _two_workers() as (first, second):
        spread_over = tff_workers.tff_workers_runtime(
            [first.target, second.target], losses.append, silence_seconds=4
        )
        with spread_over:
            total = _napping_total(0.5)
            assert total([1, 2, 3]) == 6
            os.kill(second.pid, signal.SIGSTOP)
            assert total([1, 2, 3]) == 6
            assert total([1, 2, 3]) == 6
    (loss,) = losses
    assert f"lost TFF's worker at {second.target} (no answer for 4 seconds)" in loss


def test_no_worker_left():
    with _two_workers() as workers:

        def kill():
            for worker in workers:
                os.kill(worker.pid, signal.SIGKILL)

        addresses = [worker.target for worker in workers]
        with tff_workers.tff_workers_runtime(addresses):
            total = _napping_total(60)
            threading.Timer(2, kill).start()
            for _ in range(2):
                with refused("no TFF worker is left", kind=WorkerError) as caught:
                    total([1, 2])
                assert all(address in caught.value.where for address in addresses)


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_the_workers(targets):
    with tff_workers.tff_workers_runtime(targets):
        assert _napping_total(0)([1, 2]) == 3
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), tff_workers.tff_workers_runtime(targets):
        threading.Timer(3, interrupt).start()
        _napping_total(45)([1, 2])
    assert time.monotonic() - sent[0] < 35  # They nap for 42 more.


def test_an_error_of_the_computation_names_the_worker(spread, targets):
    @tff.tensorflow.computation(np.int32)
    def fail_unless_positive(value):
        with tf.control_dependencies([tf.debugging.Assert(value > 0, ["negative!"])]):
            return tf.identity(value)

    @tff.federated_computation(_NUMBERS)
    def total(values):
        return tff.federated_sum(tff.federated_map(fail_unless_positive, values))

    with pytest.raises(tff_workers.RemoteComputationError, match="negative!") as caught:
        total([1, -1])
    assert targets[1] in str(caught.value) and "\n" not in str(caught.value)
    assert total([1, 1]) == 2


# --- what is given --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["host", "host:", ":1", "host:0", "host:65536", "a b:1", "::1:9", "[::1]:"]
)
def test_malformed_targets(target):
    with refused("tff_workers", target, "host:port"):
        worker_targets.check([target])


def test_targets():
    worker_targets.check(["a:1", "a:2", "b.c-d:1", "10.0.0.1:9000", "[fd00::7]:9000"])
    assert worker_targets.parse("[fd00::7%eth0]:9000") == ("fd00::7%eth0", 9000)
    with refused("tff_workers", "a:1", "not 2 times"):
        worker_targets.check(["a:1", "b:1", "a:01"])


def _unreachable(target):
    start = time.monotonic()
    with (
        pytest.raises(UserError) as caught,
        tff_workers.tff_workers_runtime([target], connect_seconds=1.0),
    ):
        pass
    assert time.monotonic() - start < 60
    assert target in str(caught.value)
    return caught.value


def test_nothing_listens_there():
    with process.reserve_port(None) as silent:
        error = _unreachable(f"127.0.0.1:{silent.getsockname()[1]}")
    assert "Connection refused" in str(error) and error.exit_status == 2


def test_no_such_host():
    assert "listens there (" in _unreachable("no-such-host.invalid:9000").expected


def test_something_else_listens_there():
    with socket.create_server(("127.0.0.1", 0)) as server:
        error = _unreachable(f"127.0.0.1:{server.getsockname()[1]}")
    assert "does not answer" in error.where and error.exit_status == 1
