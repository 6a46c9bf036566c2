"""What a person sees while a program runs."""

import io
import sys
import types

from motley_tff.commandline import progress


class _Full(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_ends_no_run(monkeypatch):
    monkeypatch.setattr(sys, "stderr", _Full())
    shown = progress.TerminalProgress()
    shown.start("train", 2)
    shown.advance(2, loss=0.5)
    shown.finish()
    progress.warn("lost a worker")


def test_a_log_has_plain_lines(monkeypatch):
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    shown = progress.TerminalProgress("a trainer, its data")
    assert log.getvalue() == ""  # An error that comes now is one line.
    shown.start("train", 2, 1)
    shown.advance(loss=0.5)
    shown.finish()
    lines = ["a trainer, its data", "train: goes on after 1/2", "train: 2/2, loss 0.5"]
    assert log.getvalue().splitlines() == lines


def test_a_log_says_how_long_a_stage_takes_after_its_first_clients(monkeypatch):
    clock = iter([0.0, 10.0, 11.9, 12.5, 14.0, 42.6, 43.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    shown = progress.TerminalProgress()
    shown.start("evaluate", 300)
    for _ in range(6):
        shown.advance()
    shown.finish()
    # The first client, after 10 s, also compiled: one more took 1.9 s, then two took 2.5.
    assert log.getvalue().splitlines() == [
        "evaluate: 2/300, about 09:26 left",
        "evaluate: 5/300, about 40:04 left",
        "evaluate: 6/300",
    ]


def test_a_notebook_has_bars_and_others_have_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert progress.of_notebook() is None
    terminal = types.SimpleNamespace(config={})
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: terminal))
    assert progress.of_notebook() is None
    terminal.config["IPKernelApp"] = {}
    shown = progress.of_notebook()
    monkeypatch.setattr(sys, "stderr", cell := io.StringIO())
    shown.start("train", 4, 1)
    shown.advance(loss=0.5)
    shown.start("evaluate", 2)
    shown.advance(2)
    shown.finish()
    shown.advance(2, loss=0.25)
    shown.finish()
    text = cell.getvalue()
    assert "train:" in text and "4/4" in text and "loss=0.25" in text and "evaluate:" in text
