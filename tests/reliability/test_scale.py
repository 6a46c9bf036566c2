"""The short form of `python -m tests.reliability.scale`."""

import subprocess
import sys

import pytest

from tests.trainers import programs


@pytest.mark.slow
def test_an_evaluation_that_is_killed_twice_goes_on(tmp_path):
    sizes = ("--train_clients=700", "--valid_clients=300", "--test_clients=1600", "--compare")
    result = subprocess.run(
        [sys.executable, "-m", "tests.reliability.scale", *sizes],
        cwd=programs.ROOT,
        env=programs.environment() | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\nkilled") + result.stdout.startswith("killed") == 2
    assert "those of a run that was not killed" in result.stdout
