"""What judges runs sees what is wrong with them."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.reliability import trainer_runs
from tests.trainers import programs

_PROGRAM = """
import os, sys
for i in range(4):
    with open(os.path.join(sys.argv[1], f"{i}.tmp"), "w") as file:
        file.write("whole")
    os.replace(os.path.join(sys.argv[1], f"{i}.tmp"), os.path.join(sys.argv[1], str(i)))
"""


@pytest.fixture
def run(tmp_path):
    """Writes what a run may leave; returns its directory."""

    def write(name, seconds=1.0, loss=0.5):
        directory = tmp_path / name
        (directory / "checkpoints").mkdir(parents=True)
        (directory / "rounds.csv").write_text(f"round,seconds,loss\n1,{seconds},{loss}\n")
        (directory / "run.json").write_text(json.dumps({"seconds": seconds}) + "\n")
        np.savez(directory / "checkpoints" / "round_00000001.npz", np.ones(3))
        (directory / ".lock").touch()
        return directory

    return write


def test_times_make_no_difference(run):
    assert trainer_runs.differences(run("one"), run("two", seconds=2.0)) == []
    assert trainer_runs.damages(run("three")) == []


def test_all_else_does(run):
    first, two = run("one"), run("two", loss=0.6)
    np.savez(two / "checkpoints" / "round_00000001.npz", np.ones(3, np.float32))
    (two / "run.json").unlink()
    (two / ".rounds.csv.x.tmp").touch()
    assert trainer_runs.differences(first, two) == [
        "run.json is missing",
        ".rounds.csv.x.tmp is left",
        "checkpoints/round_00000001.npz differs",
        "rounds.csv differs",
    ]


@pytest.mark.parametrize("name", ["rounds.csv", "run.json", "checkpoints/round_00000001.npz"])
def test_half_a_file_is_damage(run, name):
    path = run("one") / name
    path.write_bytes(path.read_bytes()[:-2])
    assert trainer_runs.damages(path.parents[name.count("/")]) == [f"{name} is damaged"]


@pytest.mark.parametrize("at", [0, 1, 6])
def test_the_signal_comes_at_the_change_that_was_asked_for(tmp_path, at):
    """Every file of the program takes two: it is opened, and renamed."""
    (tmp_path / "program.py").write_text(_PROGRAM)
    (tmp_path / "out").mkdir()
    wrapper = [sys.executable, "-m", "tests.reliability.killed_in_a_write"]
    options = [f"--directory={tmp_path / 'out'}", f"--at={at}", f"--count_to={tmp_path / 'count'}"]
    environment = programs.environment()
    environment["PYTHONPATH"] += f":{tmp_path}"
    result = subprocess.run(
        [*wrapper, *options, "program", str(tmp_path / "out")],
        env=environment, cwd=programs.ROOT, check=False,
    )  # fmt: skip
    assert result.returncode == (-signal.SIGKILL if at else 0)
    left = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert left == {0: ["0", "1", "2", "3"], 1: [], 6: ["0", "1", "2.tmp"]}[at]
    assert at or (tmp_path / "count").read_text() == "8"


def test_what_outlives_a_program_is_seen(monkeypatch):
    monkeypatch.setattr(trainer_runs, "_ORPHAN_SECONDS", 0.2)
    ending = trainer_runs.run(["sh", "-c", "sleep 60 & exit 3"])
    assert (ending.status, ending.survivors) == (3, ["sleep"])


def test_progress_is_no_message():
    stderr = "train: 12/12, loss 0.0081\nevaluate round 12: 60/60\nfinetuning_trainer: no room\n"
    ending = trainer_runs.Ending(2, "warm start of model 1: 3/3, loss 1e-05\n" + stderr)
    assert ending.messages == ["finetuning_trainer: no room"] and ending.is_quiet
