"""How many cores a process may use."""

import os
import subprocess
import sys

import pytest

from motley_tff.core import cores
from tests.trainers import programs


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    for name in ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def test_the_environment_limits(monkeypatch):
    free = cores.num_available()
    assert 1 <= free <= len(os.sched_getaffinity(0))
    monkeypatch.setenv("OMP_NUM_THREADS", "100000")
    assert cores.num_available() == free
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    assert cores.num_available() == 1
    for nonsense in ("0", "", "many"):
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", nonsense)
        assert cores.num_available() == free


def test_affinity_limits():
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{core}}}); "
    code += "from motley_tff.core import cores; print(cores.num_available())"
    result = subprocess.run(
        [sys.executable, "-c", code], env=programs.environment(), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert result.stdout == "1\n"
