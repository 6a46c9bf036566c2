"""The experiment loop, cut at moments of its own."""

import contextlib
import dataclasses
import signal
import time

import pytest

from motley_tff.algorithms import FedAvg, FineTuning, optimizers
from motley_tff.backends import sequential
from motley_tff.core.errors import UserError
from motley_tff.experiment import checkpoints, loop, progress, run_directory
from motley_tff.experiment.config import LoopConfig
from motley_tff.files import csv_files
from tests import toy

pytestmark = pytest.mark.usefixtures("eagerly")

_SGD = optimizers.OptimizerConfig("sgd", 0.5)
_CONFIG = LoopConfig(
    total_rounds=4, rounds_per_evaluation=2, rounds_per_checkpoint=4, clients_per_train_round=None
)


class Interrupted(progress.Silent):
    """Presses Ctrl-C in the first round."""

    def advance(self, steps=1, **facts):
        raise KeyboardInterrupt


_TASK = toy.scalar_task({"a": [1.0]})
_TUNED = FineTuning(_SGD, (0.5,), max_epochs=0).build(_TASK)
_TRAINED = FedAvg(_SGD, _SGD).build(_TASK, _TASK.model.initial_weights(0))


def run(root, training=_TRAINED, reporter=None, **config):
    """Runs, or goes on with, four rounds of a scalar model."""
    with contextlib.closing(run_directory.RunDirectory(str(root), "run", {})) as directory:
        directory.write_record(status="running")
        backend = sequential.SequentialBackend()
        changed = dataclasses.replace(_CONFIG, **config)
        loop.run(changed, _TASK, training, _TUNED, backend, directory, "toy", reporter)


@pytest.mark.parametrize("written", [False, True])
def test_a_signal_while_rounds_are_written_loses_none(tmp_path, monkeypatch, written):
    """A checkpoint follows, after which a resumed run would not do these rounds again."""
    append = csv_files.append

    def cut(path, columns, rows, *optional):
        if rows and not written:
            signal.raise_signal(signal.SIGINT)
        append(path, columns, rows, *optional)
        if rows and written:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(csv_files, "append", cut)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    monkeypatch.undo()
    assert checkpoints.rounds(tmp_path / "run" / "checkpoints") == [2]
    run(tmp_path)
    rows = csv_files.read(tmp_path / "run" / "rounds.csv")
    assert [row["round"] for row in rows] == ["1", "2", "3", "4"]


def test_a_checkpoint_that_was_not_yet_removed_does_not_stay(tmp_path):
    """As after a kill between the last checkpoint and the removal of an old one."""
    run(tmp_path)
    folder = tmp_path / "run" / "checkpoints"
    (newest,) = folder.iterdir()
    for name in ("round_00000001.npz", "round_00000002.npz"):
        (folder / name).write_bytes(newest.read_bytes())
    run(tmp_path)
    assert checkpoints.rounds(folder) == [2, 4]


@pytest.mark.parametrize(("rate", "saved"), [(0.5, [1]), (float("inf"), [])])
def test_an_interruption_saves_no_model_that_blew_up(tmp_path, rate, saved):
    """A run that resumed from it would stop at once, whatever it is given."""
    server = optimizers.build_optimizer(optimizers.OptimizerConfig("sgd", rate))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, dataclasses.replace(_TRAINED, server_optimizer=server), Interrupted())
    assert checkpoints.rounds(tmp_path / "run" / "checkpoints") == saved
    assert [row["round"] for row in csv_files.read(tmp_path / "run" / "rounds.csv")] == ["1"]
    run(tmp_path)
    assert len(list(csv_files.read(tmp_path / "run" / "rounds.csv"))) == 4


class _TwoInACall(sequential.SequentialTraining):
    """Runs two rounds in a call."""

    rounds_per_call = 2

    def next(self, state, rounds):
        first, second = rounds
        state, results = super().next(state, [first])
        state, more = super().next(state, [second])
        return state, results + more


def test_an_interruption_keeps_all_rounds_of_a_call(tmp_path, monkeypatch):
    monkeypatch.setattr(sequential, "SequentialTraining", _TwoInACall)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, reporter=Interrupted())
    assert checkpoints.rounds(tmp_path / "run" / "checkpoints") == [2]
    run(tmp_path)
    rows = csv_files.read(tmp_path / "run" / "rounds.csv")
    assert [row["round"] for row in rows] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(("total", "every", "expected"), [(0, 2, "0"), (3, 2, "23"), (3, 1, "123")])
def test_an_untrained_model_is_looked_at_only_where_none_is_trained(
    tmp_path, total, every, expected
):
    run(tmp_path, total_rounds=total, rounds_per_evaluation=every)
    rows = csv_files.read(tmp_path / "run" / "summary.csv")
    assert [row["round"] for row in rows if row["split"] == "test"] == list(expected)


def _when_clients_are_written(monkeypatch, function):
    append = csv_files.append

    def patched(path, columns, rows, *optional):
        if path.name == "clients.csv":
            function()
        append(path, columns, rows, *optional)

    monkeypatch.setattr(csv_files, "append", patched)


def test_no_checkpoint_is_written_before_an_earlier_evaluation(tmp_path, monkeypatch):
    """A run that resumes from it would not do that evaluation again."""
    save, evaluated = checkpoints.save, {}

    def checked(folder, number, state):
        evaluated[number] = csv_files.rounds(folder.parent / "summary.csv")
        save(folder, number, state)

    monkeypatch.setattr(checkpoints, "save", checked)
    _when_clients_are_written(monkeypatch, lambda: time.sleep(0.3))
    run(tmp_path, rounds_per_evaluation=1, rounds_per_checkpoint=2)
    assert evaluated == {2: {1}, 4: {1, 2, 3}}


@pytest.mark.parametrize("every", [2, 4])
def test_an_evaluation_that_could_not_be_written_is_done_again(tmp_path, monkeypatch, every):
    def fail():
        raise UserError("no space")

    _when_clients_are_written(monkeypatch, fail)
    with pytest.raises(UserError, match="no space"):
        run(tmp_path, rounds_per_evaluation=every)
    monkeypatch.undo()
    run(tmp_path, rounds_per_evaluation=every)
    tables = [csv_files.read(tmp_path / "run" / f"{name}.csv") for name in ("clients", "summary")]
    for rows in tables:
        assert sorted({row["round"] for row in rows}) == ["2", "4"][every // 4 :]
