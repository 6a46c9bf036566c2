"""Clients are scored in batches: the same numbers, kept for a run that is cut in an evaluation."""

import dataclasses

import numpy as np
import pytest

from motley_tff.algorithms import FineTuning
from motley_tff.backends import sequential
from motley_tff.evaluation import batches, further_metrics, parts, saved_scores
from motley_tff.evaluation.config import EvaluationConfig
from tests import toy

_KEY = np.array([1, 2], np.int32)
_IDS = {"valid": ("v0", "v1", "v2", "v3", "v4"), "test": ("e0", "e1", "e2", "e3", "e4")}


class _Noting(sequential.SequentialBackend):
    """Notes whom it is asked to score."""

    def __init__(self):
        super().__init__()
        self.scored = []

    def map_clients(self, call):
        self.scored.extend(call.client_ids)
        return super().map_clients(call)


@pytest.fixture(scope="module")
def scene():
    """A backend, and an evaluator of five clients on it: its function is traced once."""
    valid, test = (
        toy.scalar_task({"t": [1.0]}, {name: ([i, 2.0], [y, i]) for i, name in enumerate(names)})
        for y, names in enumerate(_IDS.values())
    )
    numbers = {"prediction": lambda outputs: outputs, "label_unit": 1.0}
    task = dataclasses.replace(test, valid=valid.valid, **numbers)
    config = EvaluationConfig(metrics=("absolute_error", "r2"))
    task = parts.distribution_shift(further_metrics.with_metrics(task, config), 10, seed=1)
    tuned = FineTuning(max_epochs=0).build(task)
    backend = _Noting()
    return backend, batches.BatchScorer(backend, task, tuned)


@pytest.fixture()
def backend(scene, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_SIZE", 2)
    scene[0].scored.clear()
    return scene[0]


@pytest.fixture()
def score(scene, backend):
    def score(saved=None, on_client=lambda: None):
        """Returns the bytes of all scores."""
        weights = (np.zeros([1, 1], np.float32),)
        scores = scene[1].score(weights, None, _IDS, _KEY, on_client, saved)
        return {
            (split, part, name): array.tobytes()
            for split, split_scores in scores.items()
            for part, values in {"": split_scores.values, **split_scores.further}.items()
            for name, array in values.items()
        }

    return score


def _cutting_at(number, done):
    """Returns what presses Ctrl-C when so many clients are done."""

    def on_client():
        done.append(1)
        if len(done) == number:
            raise KeyboardInterrupt

    return on_client


def test_batches_of_any_size_give_the_same_scores(score, monkeypatch):
    in_twos = score()
    monkeypatch.setattr(batches, "BATCH_SIZE", 256)
    assert score() == in_twos
    assert {("test", part, name) for part in ("", "ood") for name in ("loss", "r2")} <= {*in_twos}


@pytest.mark.parametrize(
    ("size", "seconds", "yields_each_client", "left"),
    [
        # Of each split the short last batch is not kept.
        (2, 60.0, True, ["v4", "e2", "e3", "e4"]),
        # Clients that take long are, the validation clients all, though their batch is short.
        (256, -1.0, True, ["e2", "e3", "e4"]),
        (256, -1.0, False, ["e0", "e1", "e2", "e3", "e4"]),
    ],
)
def test_an_evaluation_that_was_cut_goes_on(
    score, backend, monkeypatch, tmp_path, size, seconds, yields_each_client, left
):
    """It is cut at the third test client; validation is done."""
    whole = score()
    monkeypatch.setattr(batches, "BATCH_SIZE", size)
    monkeypatch.setattr(batches, "SECONDS", seconds)
    monkeypatch.setattr(backend, "yields_each_client", yields_each_client, raising=False)
    with pytest.raises(KeyboardInterrupt):
        score(saved_scores.SavedScores(tmp_path, 3), _cutting_at(8, []))
    backend.scored.clear()
    seen = []
    assert score(saved_scores.SavedScores(tmp_path, 3), lambda: seen.append(1)) == whole
    assert backend.scored == left and len(seen) == 10


def test_batches_of_others_or_damaged_ones_are_scored_again(score, backend, tmp_path):
    saved = saved_scores.SavedScores(tmp_path, 3)
    whole = score(saved)
    files = sorted((tmp_path / "evaluation" / "round_00000003").iterdir())
    assert len(files) == 4
    files[0].write_bytes(files[0].read_bytes()[:-100])
    files[1].rename(files[2])  # e2, e3 where v0, v1 were; v2, v3 are left.
    backend.scored.clear()
    assert score(saved) == whole
    assert backend.scored == ["v0", "v1", "v4", "e0", "e1", "e2", "e3", "e4"]


def test_what_is_whole_is_forgotten(score, tmp_path):
    for number in (3, 12):
        score(saved_scores.SavedScores(tmp_path, number))
    folder = tmp_path / "evaluation"
    (folder / "round_00000012" / ".main.npz.x.tmp").touch()  # A process was killed there.
    saved_scores.forget(tmp_path, {3})
    assert [path.name for path in folder.iterdir()] == ["round_00000012"]
    saved_scores.forget(tmp_path, {3, 12})
    assert not folder.exists()
