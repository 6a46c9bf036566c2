"""Tests that TFF's worker starts, computes, dies with us, and is missed when it dies alone."""

import collections
import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import types
import uuid

import grpc
import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.data.experimental.ops import testing

from motley_tff.backends import base
from motley_tff.backends.tff import (
    backend as tff_backend,
    process as process_lib,
    runtime as runtime_lib,
)
from motley_tff.backends.tff.process import WorkerProcess
from motley_tff.backends.tff.runtime import running_worker, tff_runtime
from motley_tff.core import random_streams
from motley_tff.core.errors import WorkerError
from tests import toy
from tests.contracts import registry
from tests.errors import refused

ROOT = pathlib.Path(__file__).resolve().parents[3]
MARK = "MOTLEY_TEST_MARK"


@tff.tensorflow.computation(np.int32)
def _nap(seconds):
    """Takes so many seconds, which cost no processor, and returns them."""
    microseconds = 1_000_000 * tf.cast(seconds, tf.int64)
    data = tf.data.Dataset.from_tensors(seconds).apply(testing.sleep(microseconds))
    return data.take(1).get_single_element()


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def _total(values):
    return tff.federated_sum(values)


@tff.tensorflow.computation(np.int32)
def _fail_unless_positive(value):
    with tf.control_dependencies([tf.debugging.Assert(value > 0, ["negative!"])]):
        return tf.identity(value)


@pytest.fixture(autouse=True)
def deadline():
    """Makes a failure of a test that would hang: what is tested here is that nothing does."""

    def fail(number, frame):
        raise TimeoutError("the test hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


# --- programs of their own that end in every possible way -----------------------------------------

PROGRAM = """
import os, signal, sys, threading, time
import psutil
from motley_tff import commandline

def forever():
    import tensorflow as tf, tensorflow_federated as tff

    @tff.tensorflow.computation
    def spin():
        return tf.while_loop(lambda i: i >= 0, lambda i: i * 1, [tf.constant(0)])

    print("computing", flush=True)
    spin()

def main(mode):
    from motley_tff.backends.tff.runtime import tff_runtime
    from motley_tff.backends.tff.process import WorkerProcess
    assert not psutil.Process().children()  # Importing starts nothing.
    if mode == "unmanaged":
        worker = WorkerProcess()
        assert worker.is_alive
        return None
    with tff_runtime() as worker:
        if mode == "raise":
            raise ValueError("a bug")
        if mode == "raise_while_computing":
            def kill():
                for _ in range(3):
                    time.sleep(1)
                    killed = worker.pid
                    os.kill(killed, 9)
                    while worker.pid == killed:
                        time.sleep(0.1)

            threading.Thread(target=kill, daemon=True).start()
            forever()
        if mode == "os_exit":
            os._exit(6)
        if mode.startswith("SIG"):
            try:
                forever()
            except BaseException:
                time.sleep(0.2)
                print("alive" if psutil.pid_exists(worker.pid) else "dead", flush=True)
                raise

if __name__ == "__main__":
    commandline.run_main(main, ("MODE",))
"""

# What each way to end gives: exit status, last line of stdout, pattern of stderr.
ENDINGS = {
    "return": (0, "", "(?s).*"),
    "unmanaged": (0, "", "(?s).*"),
    "raise": (1, "", "(?s).*ValueError: a bug\n"),
    "raise_while_computing": (1, "computing", r"some_command: TFF's worker \(pid .*SIGKILL.*\n"),
    "os_exit": (6, "", "(?s).*"),
    "SIGINT": (130, "alive", "some_command: interrupted\n"),
    "SIGKILL": (-9, "computing", ""),
}
_Ending = collections.namedtuple("_Ending", "status stdout stderr survivors")


def _processes(is_one):
    """Returns the living processes of which something holds."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and is_one(process):
                processes.append(process)
    return processes


def _marked(mark):
    """Returns the processes that carry a mark in their environment."""
    return _processes(lambda process: process.environ().get(MARK) == mark)


def _end_in(mode, path):
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, str(path), mode],
        env={**os.environ, MARK: mark, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    head = ""
    if mode.startswith("SIG"):
        assert process.stdout is not None
        head = process.stdout.readline()
        time.sleep(0.3)
        # The whole process group, as a terminal does.
        os.killpg(process.pid, getattr(signal, mode))
    # Returns when nobody holds the pipe any more, as `| tail` does; a computation has no end.
    try:
        stdout, stderr = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        for each in _marked(mark):
            each.kill()
        raise
    _wait_until(lambda: not _marked(mark))
    survivors = _marked(mark)
    for survivor in survivors:
        survivor.kill()
    return _Ending(process.returncode, head + stdout, stderr, survivors)


@pytest.fixture(scope="module")
def endings(tmp_path_factory):
    """Runs all the programs, two at a time: they spend most of it importing TensorFlow."""
    path = tmp_path_factory.mktemp("program") / "some_command.py"
    path.write_text(PROGRAM)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(zip(ENDINGS, pool.map(lambda mode: _end_in(mode, path), ENDINGS), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ENDINGS)
def test_no_worker_outlives_its_program(endings, mode):
    """Signals get through during a computation, and an error that is no bug is one line."""
    ending, (status, last_line, stderr) = endings[mode], ENDINGS[mode]
    assert not ending.survivors
    assert ending.status == status and re.fullmatch(stderr, ending.stderr), ending.stderr
    assert ending.stdout.strip().rpartition("\n")[2] == last_line


# --- a runtime in this process --------------------------------------------------------------------


def test_runtimes_leave_what_was_before_and_can_be_nested():
    before = tff.framework.get_context_stack().current
    with tff_runtime() as outer, tff_runtime() as inner:
        assert outer.port != inner.port and outer.pid != inner.pid
        assert _total([1, 1]) == 2
        assert all(thread.daemon for thread in threading.enumerate() if "tff" in thread.name)
    with pytest.raises(ZeroDivisionError), tff_runtime() as third:
        raise ZeroDivisionError
    assert tff.framework.get_context_stack().current is before
    assert not any(psutil.pid_exists(worker.pid) for worker in (outer, inner, third))


@pytest.fixture(scope="module")
def runtime():
    with tff_runtime(threads=2, intra_op_threads=1) as worker:
        yield worker


def test_the_number_of_clients_may_change(runtime):
    for cohort in range(1, 15):
        assert _total([1] * cohort) == cohort


def test_a_computation_that_fails_keeps_its_own_error(runtime):
    with pytest.raises(grpc.RpcError, match="negative!"):
        _fail_unless_positive(-1)
    assert _fail_unless_positive(1) == 1


def test_the_worker_ignores_signals_meant_for_us(runtime):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        os.kill(runtime.pid, number)
    assert _total([1, 1]) == 2
    assert os.getsid(runtime.pid) != os.getsid(0)


def _kill_every(worker, signal_number, times):
    """Kills a runtime's worker, and those that take its place; returns the thread that does."""

    def kill():
        killed = None
        for _ in range(times):
            assert _wait_until(lambda before=killed: worker.pid != before)
            killed = worker.pid
            time.sleep(0.3)
            os.kill(killed, signal_number)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_a_worker_that_dies_is_started_again():
    restarts = []
    with tff_runtime(restarts.append) as worker:
        pid, port = worker.pid, worker.port
        killer = _kill_every(worker, signal.SIGSEGV, 2)
        assert _nap(2) == 2
        killer.join()
        assert _total([1, 1]) == 2 and worker.pid != pid
    first, second = restarts
    assert first == (
        f"TFF's worker (pid {pid}, port {port}) ended during a computation with signal 11 "
        "(SIGSEGV); it is started again and repeats the round (1 of at most 2 times)"
    )
    assert second.endswith("(2 of at most 2 times)")


@pytest.mark.parametrize("name", ["fedavg_adam", "ditto"])
def test_a_training_whose_workers_die_gives_the_same_bytes(name):
    """The worker is dead when the second round begins, and the next one when the third does."""
    task = toy.scalar_task({"a": [1.0, 2.0], "b": [3.0]}, setting="cross_silo")
    build = {**registry.TRAINING, **registry.STATEFUL}[name]
    process = tff_backend.TffBackend().training(task, build(task, [np.ones([1, 1], np.float32)]))
    keys = [random_streams.key(7, "local_training", number) for number in (1, 2, 3)]

    def trained(on_round):
        state = process.initialize()
        for number, key in enumerate(keys, 1):
            state, _ = process.next(state, [base.Round(number, task.train.ids, key)])
            on_round()
        return tf.nest.flatten((process.weights(state), process.client_states(state)))

    restarts = []
    with tff_runtime(restarts.append) as worker:
        expected = trained(lambda: None)
        repeated = trained(lambda: os.kill(worker.pid, signal.SIGKILL))
    assert len(restarts) == 2
    for leaf, expected_leaf in zip(repeated, expected, strict=True):
        assert np.asarray(leaf).tobytes() == np.asarray(expected_leaf).tobytes()


def test_a_worker_that_dies_three_times_in_a_row_is_an_error():
    restarts = []
    with tff_runtime(restarts.append) as worker:
        killer = _kill_every(worker, signal.SIGKILL, 3)
        with pytest.raises(WorkerError) as caught:
            _nap(2)
        killer.join()
        message = str(caught.value)
        assert f"pid {worker.pid}, port {worker.port}" in message
        assert "signal 9 (SIGKILL)" in message
        assert caught.value.exit_status == 1
        assert len(restarts) == 2
        assert _total([1, 1]) == 2, "the next computation has a worker again"


def test_a_worker_that_cannot_be_started_again(fake_binary):
    restarts = []
    with tff_runtime(restarts.append) as worker:
        os.kill(worker.pid, signal.SIGKILL)
        fake_binary("echo no luck today; exit 3")
        with pytest.raises(WorkerError, match="exit status 3, its last log line 'no luck today'"):
            _total([1, 1])
    assert [f"{n} of at most 2" in line for n, line in enumerate(restarts, 1)] == [True, True]


@pytest.mark.slow
def test_leaving_does_not_wait_for_a_computation_in_flight():
    with pytest.raises(KeyboardInterrupt), tff_runtime():
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        _nap(600)


def test_the_connection_ignores_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with tff_runtime(start_timeout_seconds=20):
        assert _total([1, 1]) == 2


# --- the process ----------------------------------------------------------------------------------


def test_the_worker_outlives_the_thread_that_started_it():
    workers = []
    thread = threading.Thread(target=lambda: workers.append(WorkerProcess()))
    thread.start()
    thread.join()
    with contextlib.closing(workers[0]) as worker:
        time.sleep(0.3)
        assert worker.is_alive
        assert worker.exit_reason() is None


def test_close_is_idempotent():
    with running_worker() as (worker, stub):
        worker.close()
        worker.close()
        assert not worker.is_alive
        assert not psutil.pid_exists(worker.pid)
        with pytest.raises(WorkerError):
            stub.get_executor(None)


def test_a_forked_child_leaves_its_parents_worker_alone(monkeypatch):
    with running_worker() as (worker, _):
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            worker.close()
        assert worker.is_alive


def test_two_workers_never_share_a_port():
    with (
        running_worker() as (worker, _),
        refused(f"port {worker.port}", expected="free"),
    ):
        WorkerProcess(port=worker.port)
    with running_worker(port=worker.port) as (successor, _):
        assert successor.port == worker.port


def test_its_threads_can_be_limited(monkeypatch):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    with running_worker(threads=3, intra_op_threads=1) as (worker, _):
        environment = psutil.Process(worker.pid).environ()
        assert environment["TF_NUM_INTEROP_THREADS"] == "3"
        assert environment["TF_NUM_INTRAOP_THREADS"] == "1"


# --- workers that do not start --------------------------------------------------------------------


@pytest.fixture
def fake_binary(tmp_path, monkeypatch):
    """Puts a shell script in the place of TFF's binary; none runs any more at the end."""
    path = tmp_path / "worker_binary"

    def write(script):
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(process_lib, "binary", lambda: path)

    yield write
    assert _wait_until(lambda: not _processes(lambda process: str(path) in process.cmdline()))


def _start(**options):
    with running_worker(**options):
        pytest.fail("it answered")


@pytest.mark.parametrize(
    ("script", "seconds", "finding", "expected"),
    [
        ("exec sleep 600", 0.5, None, "within 0.5 seconds"),
        ("echo no luck today; exit 3", 100, "exit status 3, its last log line 'no luck today'", ""),
    ],
)
def test_a_worker_that_does_not_answer(fake_binary, script, seconds, finding, expected):
    start = time.monotonic()
    fake_binary(script)
    with refused(finding=finding, expected=expected, kind=WorkerError):
        _start(start_timeout_seconds=seconds)
    assert time.monotonic() - start < 60  # It does not wait for an answer of a dead one.


def test_a_worker_that_is_no_program(tmp_path, monkeypatch):
    monkeypatch.setattr(process_lib, "binary", lambda: tmp_path / "missing")
    with pytest.raises(WorkerError, match="No such file"):
        _start()


def test_a_process_that_cannot_be_started(monkeypatch):
    """Too many of them, say; nothing is left open."""
    files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(process_lib.children, "bound_to_parent", lambda *_: ["/does/not/exist"])
    with refused("TFF's worker", "No such file", kind=WorkerError):
        WorkerProcess()
    assert len(os.listdir("/proc/self/fd")) == files


# --- executors ------------------------------------------------------------------------------------


def test_executors_that_are_no_longer_kept_are_closed():
    closed = []

    def build(cardinalities):
        return types.SimpleNamespace(close=lambda: closed.append(cardinalities[tff.CLIENTS]))

    executors = runtime_lib._Executors(build)
    first = executors.create_executor({tff.CLIENTS: 0})
    assert executors.create_executor({tff.CLIENTS: 0}) is first
    for size in range(1, runtime_lib._MAX_EXECUTORS):
        executors.create_executor({tff.CLIENTS: size})
    executors.create_executor({tff.CLIENTS: 0})
    assert not closed
    executors.create_executor({tff.CLIENTS: 99})
    assert closed == [1]
    executors.clean_up_executor({tff.CLIENTS: 99})
    executors.clean_up_executor({tff.CLIENTS: 99})
    assert closed == [1, 99]
