"""A few damaged files of each kind and odd flags, the same each time; `fuzz` tries more, others."""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reliability import fuzz, subjects
from tests.trainers import programs

# Those that take a second each: they build a graph, or draw figures.
_SLOW = (
    "a report's tables", "a report's other files", "a report's run.json", "stackoverflow .sqlite",
    "stackoverflow word counts", "prepared dump .sqlite", "TED .sqlite", "TED vocabulary",
    "landmark TFRecords", "emnist .sqlite",
)  # fmt: skip


@pytest.mark.parametrize("name", subjects.SUBJECTS)
def test_damaged_files_are_taken_or_refused_in_one_line(name, tmp_path_factory):
    subject, valid = subjects.SUBJECTS[name], tmp_path_factory.mktemp("valid")
    subject.make(valid)

    @given(seed=st.integers(0, 2**32 - 1))
    @settings(
        max_examples=2 if name in _SLOW else 15, derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def try_one(seed):
        assert fuzz.example(subject, seed, valid) in (fuzz.TAKEN, fuzz.REFUSED)

    try_one()


@pytest.mark.parametrize("name", [name for name in subjects.SUBJECTS if name not in _SLOW])
def test_whole_files_are_taken(name, tmp_path):
    """Else damaged ones would be refused for another reason."""
    subjects.SUBJECTS[name].make(tmp_path)
    subjects.SUBJECTS[name].read(tmp_path)


def test_a_finding_is_found_and_named(tmp_path):
    def broken(folder):
        raise KeyError("x")

    subject = subjects.Subject(lambda folder: None, lambda rng, folder: None, broken)
    assert fuzz.example(subject, 0, tmp_path) == "KeyError at the test: 'x'"


def test_odd_flags_are_taken_or_refused_in_one_line():
    names = [f"flags of {name}" for name in ("motley_metrics", "motley_generative")]
    command = [sys.executable, "-m", "tests.reliability.fuzz", "--seconds=4", "--seed=0", *names]
    done = subprocess.run(
        command, env=programs.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
