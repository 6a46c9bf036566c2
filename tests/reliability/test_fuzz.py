"""A few damaged files of each kind, the same each time; others for as long as one likes.

    MOTLEY_FUZZ_SECONDS=60 ./launch/run pytest tests/reliability/test_fuzz.py -m slow

tries new ones, for so many seconds a kind. MOTLEY_FUZZ_SEED tries the one that a failure names.
"""

import itertools
import os
import random
import time

import pytest

from tests.reliability import fuzz, subjects

# Those that take a second each: they build a graph, or draw figures.
_SLOW = (
    "a report's tables", "a report's other files", "a report's run.json", "stackoverflow .sqlite",
    "stackoverflow word counts", "prepared dump .sqlite", "TED .sqlite", "TED vocabulary",
    "landmark TFRecords", "emnist .sqlite",
)  # fmt: skip


def _seeds(name):
    if seed := os.environ.get("MOTLEY_FUZZ_SEED"):
        return [int(seed)]
    if seconds := os.environ.get("MOTLEY_FUZZ_SECONDS"):
        end, seeds = time.monotonic() + float(seconds), random.SystemRandom()
        others = (seeds.randrange(2**32) for _ in itertools.count())
        return itertools.takewhile(lambda _: time.monotonic() < end, others)
    return range(1 if name in _SLOW else 15)


@pytest.mark.slow
@pytest.mark.parametrize("name", subjects.SUBJECTS)
def test_damaged_files_are_taken_or_refused_in_one_line(name, tmp_path):
    subject = subjects.SUBJECTS[name]
    subject.make(tmp_path)
    for seed in _seeds(name):
        assert fuzz.example(subject, seed, tmp_path) in (fuzz.TAKEN, fuzz.REFUSED), seed


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
