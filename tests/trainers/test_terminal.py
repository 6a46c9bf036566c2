"""What a person sees of a run."""

import io
import sys

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
