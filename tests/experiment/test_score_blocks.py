"""Clients are scored in blocks: the same numbers, kept for a run that is cut in an evaluation."""

import dataclasses

import numpy as np
import pytest

from motley_tff.algorithms import FineTuning, optimizers
from motley_tff.backends import sequential
from motley_tff.experiment import client_scores, held_out, score_blocks, scoring
from tests import toy

pytestmark = pytest.mark.usefixtures("eagerly")

_KEY = np.array([1, 2], np.int32)


@pytest.fixture()
def evaluator(monkeypatch):
    monkeypatch.setattr(scoring, "BLOCK", 2)
    task = held_out.with_ood(toy.without_keras(toy.classifier_task()), 10, seed=1)
    rate = optimizers.OptimizerConfig("sgd", 0.1)
    tuned = FineTuning(rate, (0.1,), 1, 16).build(task)
    return scoring.Evaluator(sequential.SequentialBackend(), task, tuned)


def _score(evaluator, on_client=lambda: None, blocks=None):
    task = evaluator._task
    ids = {split: task.splits[split].ids for split in client_scores.SPLITS}
    return evaluator.score(task.model.initial_weights(0), None, ids, _KEY, on_client, blocks)


def _bytes(scores):
    return {
        (split, name): array.tobytes()
        for split, one in scores.items()
        for name, array in client_scores.to_arrays(one).items()
    }


class _Counting(sequential.SequentialBackend):
    def __init__(self):
        super().__init__()
        self.scored = []

    def map_clients(self, call):
        self.scored.extend(call.client_ids)
        return super().map_clients(call)


def test_blocks_of_any_size_give_the_same_scores(evaluator, monkeypatch):
    in_twos = _score(evaluator)
    monkeypatch.setattr(scoring, "BLOCK", 256)
    assert _bytes(_score(evaluator)) == _bytes(in_twos)
    assert in_twos["test"].client_ids == evaluator._task.test.ids


def test_an_evaluation_that_was_cut_goes_on_after_its_last_whole_block(evaluator, tmp_path):
    whole = _bytes(_score(evaluator))
    done = []

    def cut():
        done.append(1)
        if len(done) == 8:  # The third test client of five; the validation clients are done.
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _score(evaluator, cut, score_blocks.ScoreBlocks(tmp_path, 3))
    backend = evaluator._backend = _Counting()
    seen = []
    again = _score(evaluator, lambda: seen.append(1), score_blocks.ScoreBlocks(tmp_path, 3))
    # Of each split the short last block is not kept.
    assert backend.scored == ["v4", "e2", "e3", "e4"]
    assert len(seen) == 10 and _bytes(again) == whole


@pytest.mark.parametrize("one_by_one", [False, True])
def test_clients_that_take_long_are_kept(evaluator, monkeypatch, tmp_path, one_by_one):
    whole = _bytes(_score(evaluator))
    monkeypatch.setattr(scoring, "BLOCK", 256)
    monkeypatch.setattr(scoring, "SECONDS", -1.0)
    monkeypatch.setattr(_Counting, "one_by_one", one_by_one)
    done = []

    def cut():
        done.append(1)
        if len(done) == 8:  # The third test client.
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluator._backend = _Counting()
        _score(evaluator, cut, score_blocks.ScoreBlocks(tmp_path, 3))
    backend = evaluator._backend = _Counting()
    again = _score(evaluator, cut, score_blocks.ScoreBlocks(tmp_path, 3))
    # The validation clients all the same, though their block is short.
    kept = 2 if one_by_one else 0
    assert backend.scored == ["e0", "e1", "e2", "e3", "e4"][kept:]
    assert len(done) == 8 + 10 and _bytes(again) == whole


def test_blocks_of_others_or_damaged_ones_are_scored_again(evaluator, tmp_path):
    blocks = score_blocks.ScoreBlocks(tmp_path, 3)
    whole = _bytes(_score(evaluator, blocks=blocks))
    files = sorted((tmp_path / "evaluation").iterdir())
    assert len(files) == 4
    files[0].write_bytes(files[0].read_bytes()[:-100])
    files[1].rename(files[2])  # e2, e3 where v0, v1 were; v2, v3 are left.
    evaluator._backend = _Counting()
    assert _bytes(_score(evaluator, blocks=blocks)) == whole
    assert evaluator._backend.scored == ["v0", "v1", "v4", "e0", "e1", "e2", "e3", "e4"]


def test_what_is_whole_is_forgotten(evaluator, tmp_path):
    for number in (3, 12):
        _score(evaluator, blocks=score_blocks.ScoreBlocks(tmp_path, number))
    folder = tmp_path / "evaluation"
    (folder / ".round_00000012.main.npz.x.tmp").touch()
    score_blocks.forget(tmp_path, {3})
    assert {path.name[:14] for path in folder.iterdir()} == {"round_00000012"}
    score_blocks.forget(tmp_path, {3, 12})
    assert not folder.exists()


def test_scores_come_back_from_arrays(evaluator):
    scores = _score(evaluator)["test"]
    examples = [(np.arange(n), np.ones((n, 3))) for n in scores.num_evaluation_examples]
    full = dataclasses.replace(scores, clusters=np.arange(5), examples=examples)
    again = client_scores.from_arrays(client_scores.to_arrays(full))
    assert again.client_ids == full.client_ids and held_out.OOD in again.beside
    assert [len(labels) for labels, _ in again.examples] == [len(e[0]) for e in examples]
    assert _bytes({"": again}) == _bytes({"": full})
    assert _bytes({"": client_scores.join([full, full])}).keys() == _bytes({"": full}).keys()
    assert list(client_scores.join([full, again]).clusters) == [0, 1, 2, 3, 4] * 2
