"""A few kills, so that each CI run has some; `kill_matrix` has many."""

import random
import signal

import pytest

from tests.reliability import kills, trainer_runs

_BY_TIME = kills.Kind(signal.SIGKILL, False)
_IN_A_WRITE = kills.Kind(signal.SIGKILL, True)


@pytest.mark.parametrize(
    ("trainer", "backend", "kinds"),
    [
        ("mtl_trainer", "sequential", [_IN_A_WRITE, _IN_A_WRITE]),
        ("finetuning_trainer", "tff", [_BY_TIME]),
    ],
)
def test_killed_runs_leave_what_undisturbed_ones_do(tmp_path, trainer, backend, kinds):
    setting = trainer_runs.Setting(trainer, backend)
    matrix = kills.Matrix(setting, tmp_path, random.Random(str(setting)))
    for _ in matrix.spend(kinds):
        pass
    assert not matrix.failures
    assert sum(matrix.hits.values()) == len(kinds) and matrix.compared
