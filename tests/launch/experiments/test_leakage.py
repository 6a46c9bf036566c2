"""launch/experiments/fedeval/leakage.py as you run it."""

import csv
import subprocess
import sys

import pytest

from tests.trainers import programs

_SCRIPT = programs.ROOT / "launch" / "experiments" / "fedeval" / "leakage.py"
_FLAGS = ("--use_synthetic_data", "--dataset_name=mnist")


def _run(*flags, status=0):
    result = subprocess.run(
        [sys.executable, str(_SCRIPT), *flags],
        capture_output=True, text=True, env=programs.environment(), timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == status, (result.stdout, result.stderr)
    return result


def test_a_table_and_a_picture_of_each_attack(tmp_path):
    folder = tmp_path / "a" / "out"
    result = _run(*_FLAGS, "--pictures=2", "--iterations=60", f"--output_dir={folder}")
    with open(folder / "leakage.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # Normal draws, which the search starts from, are some 28 from any digit.
    farthest = {"linear 1": 1e-5, "lenet 1": 14, "lenet 10": 28}
    assert [f"{row['model']} {row['steps']}" for row in rows] == [*farthest] * 2
    assert len({row["client_id"] for row in rows}) == 2
    for row in rows:
        assert (row["is_found"] == "1") == (row["found_label"] == row["label"])
        assert row["is_found"] == "1" or row["steps"] == "10"
        assert float(row["l2_distance"]) < farthest[f"{row['model']} {row['steps']}"]
    (linear,) = (line for line in result.stdout.splitlines() if line.startswith("linear"))
    assert linear.split()[:5] == ["linear", "1", "2", "of", "2"]
    assert (folder / "leakage.png").is_file()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--dataset_name=school",), "--dataset_name=school: expected pictures: emnist, mnist"),
        (("--pictures=0",), "--pictures=0: expected"),
        (("--output_dir=",), "--output_dir=: expected a directory"),
        (("--output_dir=/proc/x",), "--output_dir=/proc/x: "),
    ],
)
def test_bad_flags(tmp_path, flags, expected):
    error = _run(*_FLAGS, f"--output_dir={tmp_path}", *flags, status=2).stderr
    assert error.count("\n") == 1 and expected in error
