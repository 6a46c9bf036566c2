"""A few kills, so that each CI run has some; `kill_matrix` has many."""

import random
import signal
import sys

import pytest

from tests.reliability import kills, trainer_runs

_BY_TIME = kills.Kind(signal.SIGKILL, False)
_IN_A_WRITE = kills.Kind(signal.SIGKILL, True)


@pytest.mark.slow
def test_killed_runs_leave_what_undisturbed_ones_do(tmp_path):
    """Of the trainer that leaves most files."""
    setting = trainer_runs.Setting("mtl_trainer", "sequential")
    matrix = kills.Matrix(setting, tmp_path, random.Random(1))
    for _ in matrix.spend([_BY_TIME, _IN_A_WRITE]):
        pass
    assert not matrix.failures
    assert matrix.hits == {_BY_TIME: 1, _IN_A_WRITE: 1} and matrix.compared


def test_what_is_not_as_in_an_undisturbed_run_is_seen(tmp_path, monkeypatch):
    """A run that forgets a file, in place of a trainer."""
    program = "import os, sys; os.makedirs(sys.argv[1] + '/run', exist_ok=True)"
    command = [sys.executable, "-c", f"{program}; open(sys.argv[1] + '/run/' + sys.argv[2], 'w')"]
    monkeypatch.setattr(
        trainer_runs.Setting, "command", lambda self, root: [*command, str(root), "other"]
    )
    monkeypatch.setattr(
        trainer_runs.Setting, "watched", lambda self, root, option: [*command, str(root), "one"]
    )
    monkeypatch.setattr(kills, "_MOST_MISSES", 1)
    (tmp_path / "changes").write_text("1")
    matrix = kills.Matrix(trainer_runs.Setting("x", "y"), tmp_path, random.Random(1))
    list(matrix.spend([kills.Kind(signal.SIGKILL, False)]))
    failures = {failure.partition(" (")[0] for failure in matrix.failures}
    assert {"x y: one is missing", "x y: other is left"} <= failures
