"""motley_worker serves trainers, ends when it is told to, and says why it cannot start."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from motley_tff.core.errors import UserError
from tests.contracts import in_process
from tests.trainers import programs

_START_SECONDS = 120  # Importing TensorFlow, on a machine that does other things, too.


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Flags of a run on four clients of ten examples."""
    data = tmp_path_factory.mktemp("data") / "rows.csv"
    rows = (f"u{i % 4},{i / 7:.3f},{i % 3}\n" for i in range(40))
    data.write_text("user,x,y\n" + "".join(rows))
    return (
        "--dataset_name=table", f"--data_file={data}", "--client_column=user", "--label_column=y",
        "--setting=cross_silo", "--total_rounds=2", "--rounds_per_evaluation=2",
        "--rounds_per_checkpoint=2",
    )  # fmt: skip


_TUNED = "--finetune_max_epochs=2"


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def _start(*flags):
    return subprocess.Popen(
        [sys.executable, "-m", "launch.worker", *flags],
        env=programs.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_until_ready(process):
    assert process.stdout.readline().startswith("ready on port "), process.stderr.read()


@contextlib.contextmanager
def _workers(number):
    """Yields the processes and where they listen, once they do."""
    ports = [_free_port() for _ in range(number)]
    threads = {1: ["--threads=3"]}  # Of the second.
    processes = [_start(f"--port={p}", *threads.get(i, ())) for i, p in enumerate(ports)]
    try:
        for process in processes:
            _wait_until_ready(process)
        yield processes, [f"127.0.0.1:{port}" for port in ports]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def two():
    with _workers(2) as workers:
        yield workers


@pytest.fixture(scope="module")
def alone(tmp_path_factory, small):
    """A run without TFF."""
    root = tmp_path_factory.mktemp("alone")
    flags = ("--experiment_name=fedavg", "--backend=sequential", _TUNED)
    programs.run("finetuning_trainer", root, *flags, *small)
    return root / "fedavg"


def _train_on(targets, trainer, root, *flags):
    """Returns a run's directory, and checks that the workers did it."""
    spread = f"--tff_workers={','.join(targets)}"
    out, err = programs.run(trainer, root, "--experiment_name=spread", *flags, spread)
    assert "backend: tff (on --tff_workers)" in out
    assert "warning" not in err
    return root / "spread"


def _assert_same_tables(actual, expected):
    for which in ("clients", "candidates"):
        table, other = (programs.table(d.parent, d.name, which) for d in (actual, expected))
        numbers = other.select_dtypes("number").columns
        np.testing.assert_allclose(table[numbers], other[numbers], rtol=1e-5, atol=1e-8)


@pytest.mark.slow
def test_threads_reach_tffs_program(two):
    default, single = (_binary_of(process).environ() for process in two[0])
    assert single["TF_NUM_INTEROP_THREADS"] == "3"
    assert default.get("TF_NUM_INTEROP_THREADS") == os.environ.get("TF_NUM_INTEROP_THREADS")
    assert default["TF_NUM_INTRAOP_THREADS"] == single["TF_NUM_INTRAOP_THREADS"] == "1"


def test_fine_tuning_on_a_worker(alone, small, tmp_path):
    with _workers(1) as (_, targets):
        run = _train_on(targets, "finetuning_trainer", tmp_path, *small, _TUNED)
        _assert_same_tables(run, alone)


@pytest.mark.slow
def test_a_run_goes_on_elsewhere(two, small, tmp_path):
    """Its workers are no part of an experiment, the backend is."""
    long = ("--total_rounds=20", "--rounds_per_evaluation=20", "--rounds_per_checkpoint=1")
    flags = ["--experiment_name=moved", *small, _TUNED, *long]
    record, there = tmp_path / "moved" / "run.json", f"--tff_workers={','.join(two[1])}"
    process = programs.start("finetuning_trainer", tmp_path, *flags, there)
    while programs.last_checkpoint(tmp_path / "moved") < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143 and json.loads(record.read_text())["status"] == "stopped"
    cut = programs.last_checkpoint(tmp_path / "moved")
    assert cut < 20
    _, stderr = programs.run("finetuning_trainer", tmp_path, *flags, "--backend=tff")
    assert f"train: goes on after {cut}/20" in stderr
    rounds = programs.table(tmp_path, "moved", "rounds")
    assert list(rounds["round"]) == list(range(1, 21))


@pytest.mark.slow
def test_signals_and_the_end_of_the_binary():
    with _workers(3) as (processes, _):
        binaries = [_binary_of(process) for process in processes]
        processes[0].send_signal(signal.SIGTERM)
        processes[1].send_signal(signal.SIGINT)
        binaries[2].kill()
        endings = [(*p.communicate(timeout=30), p.returncode) for p in processes]
        psutil.wait_procs(binaries, timeout=10)
        assert not any(binary.is_running() for binary in binaries)
    assert [status for _, _, status in endings] == [143, 130, 1]
    lines = [err for _, err, _ in endings]
    assert lines[:2] == ["worker: ended by SIGTERM\n", "worker: interrupted\n"]
    assert re.fullmatch(r"worker: TFF's worker .* ended with signal 9 \(SIGKILL\).*\n", lines[2])


def _binary_of(process):
    (child,) = psutil.Process(process.pid).children()
    return child


def _refused(process):
    out, err = process.communicate(timeout=_START_SECONDS)
    assert (process.returncode, out) == (2, "")
    assert err.count("\n") == 1
    return err


@pytest.mark.slow
def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}: expected a free port" in _refused(_start(f"--port={port}"))


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([], "--port is required"),
        (["--port=0"], "--port=0"),
        (["--port=9000", "--listen_address=203.0.113.9"], "expected an address of this machine"),
    ],
)
def test_wrong_flags(flags, reason):
    assert reason in _refused(_start(*flags))


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        ("gpu7", "--tff_workers=gpu7: expected host:port"),
        ("a:1,b:2,a:1", "--tff_workers=a:1,b:2,a:1: "),
        ("a:1", "--backend=sequential: expected tff or auto with --tff_workers"),
    ],
)
def test_trainers_refuse(workers, words, tmp_path):
    with in_process.opened("finetuning_trainer") as run, pytest.raises(UserError) as caught:
        run(tmp_path, "no", "--backend=sequential", f"--tff_workers={workers}")
    assert words in caught.value.line(with_flags=True)
    assert not list(tmp_path.iterdir())
