"""Runs our programs as a user does, in processes of their own."""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import pandas as pd

ROOT = pathlib.Path(__file__).parents[2]
DATA = pathlib.Path(os.environ.get("MOTLEY_DATA_DIR") or ROOT.parent / "shared" / "data")


def command(trainer, root, *flags):
    """Returns the argument list of a trainer whose results go under `root`."""
    module = [sys.executable, "-m", f"trainers.{trainer}"]
    return [*module, f"--root_output_dir={root}", *flags]


def environment():
    """Returns an environment in which this checkout is what is imported."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def environment_without_tensorflow(folder):
    """Returns an environment in which importing TensorFlow ends a program."""
    (folder / "tensorflow.py").write_text("raise SystemExit('TensorFlow was imported')\n")
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def start(trainer, root, *flags, prefix=()):
    """Starts a trainer, behind a command such as `taskset` if one is given."""
    return subprocess.Popen(
        [*prefix, *command(trainer, root, *flags)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def cut(trainer, root, *flags, at, number):
    """Starts a trainer and signals it once `at()` holds; returns (exit status, stderr).

    Beside much other work the run may be finished before the signal comes: then it is begun anew.
    """
    for _ in range(5):
        process = start(trainer, root, *flags)
        while process.poll() is None and not at():
            time.sleep(0.01)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=120)
        assert process.returncode in (0, -number, 128 + number), stderr
        records = [json.loads(path.read_text()) for path in root.glob("*/run.json")]
        if not any(record["status"] == "finished" for record in records):
            return process.returncode, stderr
        shutil.rmtree(root)
        root.mkdir()
    raise AssertionError("the run ended before each of five signals")


def last_checkpoint(run):
    """Returns the number of a run's newest checkpoint, 0 without one."""
    return max((int(path.stem[6:]) for path in run.glob("checkpoints/round_*.npz")), default=0)


def run(trainer, root, *flags, status=0, eagerly=False):
    """Runs a trainer to its end in a fork of `fork_server`'s; returns (stdout, stderr).

    `eagerly` leaves out the tracing of TensorFlow's functions, most of a run on a few clients.
    """
    module = [f"trainers.{trainer}", f"--root_output_dir={root}", *flags]
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: pathlib.Path(folder, name) for name in ("stdout", "stderr")}
        for path in paths.values():
            path.touch()
        request = {"argv": module, "environment": environment(), "eagerly": eagerly}
        returncode = _ask(request | {name: str(path) for name, path in paths.items()})
        stdout, stderr = (path.read_text(encoding="utf-8") for path in paths.values())
    assert returncode == status, (returncode, stdout, stderr)
    return stdout, stderr


def _ask(request):
    """Returns the exit status of a program that the fork server runs."""
    server = _fork_server()
    try:
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        return int(server.stdout.readline())
    except (OSError, ValueError):
        _fork_server.cache_clear()  # The next test has a new one.
        raise AssertionError(f"the fork server ended with {server.wait(10)}") from None


@functools.cache
def _fork_server():
    """Returns the server of this test process; it ends with its stdin."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.trainers.fork_server"],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def all_flags(*modules):
    """Returns the names of all flags that modules declare, each asked in a process of its own."""
    code = "import importlib, sys; from absl import flags; importlib.import_module(sys.argv[1]); "
    names = set()
    for module in modules:
        result = subprocess.run(
            [sys.executable, "-c", code + "print(*flags.FLAGS)", module],
            capture_output=True, text=True, env=environment(), check=True,
        )  # fmt: skip
        names |= set(result.stdout.split())
    return names


def table(root, name, which):
    """Returns one of an experiment's tables."""
    return pd.read_csv(root / name / f"{which}.csv", dtype={"candidate": str})


def same_tables(first, second):
    """Asserts that two experiments' CSVs are equal byte for byte, times aside."""
    for which in ("clients", "candidates", "summary"):
        before, other = ((d / f"{which}.csv").read_bytes() for d in (first, second))
        assert before == other, which
    before, other = (_without_seconds(d / "rounds.csv") for d in (first, second))
    assert before == other


def _without_seconds(path):
    lines = [line.split(",") for line in path.read_text().splitlines()]
    kept = [i for i, column in enumerate(lines[0]) if not column.endswith("seconds")]
    return [[line[i] for i in kept] for line in lines]
