"""What a person sees of a run."""

import io
import sys

import pytest

from trainers import terminal


class _Full(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_ends_no_run(monkeypatch):
    monkeypatch.setattr(sys, "stderr", _Full())
    progress = terminal.TerminalProgress()
    progress.start("train", 2)
    progress.advance(2, loss=0.5)
    progress.finish()
    terminal.warn("lost a worker")


def test_a_log_has_plain_lines(monkeypatch):
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    progress = terminal.TerminalProgress()
    progress.start("train", 2, 1)
    progress.advance(loss=0.5)
    progress.finish()
    assert log.getvalue() == "train: goes on after 1/2\ntrain: 2/2, loss 0.5\n"


def _row(split, baseline, personalized, **others):
    return {"split": split, "baseline_mean": baseline, "personalized_mean": personalized, **others}


@pytest.mark.parametrize(
    ("row", "higher_is_better", "found"),
    [
        (_row("test", "4.48", "0.0124"), False, ["the global model (error 4.48) is worse than "
         "predicting nothing (0.0213: one constant for every example)"]),
        (_row("test", "0.0213", "0.0214"), False, ["the personalized model (error 0.0214) is worse "
         "than predicting nothing (0.0213: one constant for every example)"]),
        (_row("test", "0.02", "0.03"), True, ["the global model (error 0.02) is worse than "
         "predicting nothing (0.0213: one constant for every example)"]),
        (_row("test", "", "0.01"), False, ["the global model (error nan) is worse than predicting "
         "nothing (0.0213: one constant for every example)"]),
        (_row("test", "0.1", "0.3", reference_mean="0.2"), True, ["the global model (error 0.1) is "
         "worse than predicting nothing (0.2: a client's own most frequent word)"]),
        (_row("test", "0.01", "0.01"), False, []),
    ],
)  # fmt: skip
def test_a_model_that_is_worse_than_nothing_is_named(row, higher_is_better, found):
    rows = [_row("valid", "9", "9"), row]
    assert terminal.worse_than_nothing(rows, "error", higher_is_better, {"test": 0.0213}) == found


def test_without_a_constant_nothing_is_compared():
    assert terminal.worse_than_nothing([_row("test", "9", "9")], "error", False, {}) == []
