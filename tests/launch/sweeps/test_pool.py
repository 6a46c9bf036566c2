"""Workers that fork a process for each task."""

import os
import signal
import time

import pytest

from launch.sweeps import pool
from tests.trainers import programs

_TASK = """
import os, signal, sys, time
def run():
    print(os.getppid(), os.getpid(), sys.argv[1], flush=True)
    if sys.argv[1] == "wait":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        print("waits", flush=True)
        time.sleep(60)
    sys.exit(int(sys.argv[1]))
"""
# In place of TensorFlow, which takes seconds.
_SITE = """
import sys, types
sys.modules["motley_tff.experiment.runner"] = types.ModuleType("runner")
"""


@pytest.fixture
def worker(tmp_path):
    (tmp_path / "some_task.py").write_text(_TASK)
    (tmp_path / "sitecustomize.py").write_text(_SITE)
    environment = {**programs.environment(), "PYTHONPATH": f"{tmp_path}:{programs.ROOT}"}
    opened = pool.Worker("some_task", tmp_path, environment, (), tmp_path / "worker.log")
    yield opened
    opened.close()


def _until(is_so):
    deadline = time.monotonic() + 60
    while not (value := is_so()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def _words(log):
    return log.read_text().split()


def test_each_task_has_a_process_and_a_log_and_the_worker_imports_once(worker, tmp_path):
    parents, numbers = set(), set()
    for status in (0, 3, 0):
        log = tmp_path / f"{len(numbers)}.log"
        worker.start([str(status)], log)
        end = _until(worker.poll)
        assert end.status == status and end.cpu_seconds >= 0 and end.peak_kilobytes > 1000
        parent, number, argument = _words(log)
        assert argument == str(status)
        parents.add(parent)
        numbers.add(number)
    assert len(parents) == 1 and len(numbers) == 3 and worker.is_running


def test_a_task_is_asked_to_end_and_the_worker_takes_another(worker, tmp_path):
    worker.start(["wait"], tmp_path / "a.log")
    _until(lambda: (tmp_path / "a.log").exists() and "waits" in _words(tmp_path / "a.log"))
    assert worker.poll() is None
    worker.signal(signal.SIGINT)  # As a terminal does to all; the task gets its own.
    worker.signal(signal.SIGTERM)
    assert _until(worker.poll).status == 143
    worker.start(["0"], tmp_path / "b.log")
    assert _until(worker.poll).status == 0


def test_a_task_dies_with_its_worker(worker, tmp_path):
    worker.start(["wait"], tmp_path / "a.log")
    _until(lambda: (tmp_path / "a.log").exists() and "waits" in _words(tmp_path / "a.log"))
    worker.signal(signal.SIGKILL)
    assert _until(worker.poll) == pool.End(-signal.SIGKILL)
    assert not worker.is_running
    number = int(_words(tmp_path / "a.log")[1])
    _until(lambda: not os.path.exists(f"/proc/{number}"))
    worker.start(["0"], tmp_path / "b.log")  # Nobody reads it.
    assert worker.poll() == pool.End(-signal.SIGKILL)


def test_ctrl_c_is_the_tasks(worker, tmp_path):
    worker.start(["wait"], tmp_path / "a.log")
    _until(lambda: (tmp_path / "a.log").exists() and "waits" in _words(tmp_path / "a.log"))
    os.kill(int(_words(tmp_path / "a.log")[1]), signal.SIGINT)
    assert _until(worker.poll).status in (1, 130, -signal.SIGINT)
    assert "KeyboardInterrupt" in (tmp_path / "a.log").read_text()
