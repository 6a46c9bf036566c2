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
    progress = terminal.TerminalProgress("a trainer, its data")
    assert log.getvalue() == ""  # An error that comes now is one line.
    progress.start("train", 2, 1)
    progress.advance(loss=0.5)
    progress.finish()
    lines = ["a trainer, its data", "train: goes on after 1/2", "train: 2/2, loss 0.5"]
    assert log.getvalue().splitlines() == lines


def test_a_log_says_how_long_a_stage_takes_after_its_first_clients(monkeypatch):
    clock = iter([0.0, 10.0, 11.9, 12.5, 14.0, 42.6, 43.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    progress = terminal.TerminalProgress()
    progress.start("evaluate", 300)
    for _ in range(6):
        progress.advance()
    progress.finish()
    # The first client, after 10 s, also compiled: one more took 1.9 s, then two took 2.5.
    assert log.getvalue().splitlines() == [
        "evaluate: 2/300, about 9 min left",
        "evaluate: 5/300, about 40 min left",
        "evaluate: 6/300",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (89.0, "89 s"), (91.0, "2 min"), (5399, "90 min"), (9000.0, "2.5 h")],
)
def test_durations(seconds, words):
    assert terminal._duration(seconds) == words


def _row(split, baseline, personalized, **others):
    return {"split": split, "baseline_mean": baseline, "personalized_mean": personalized, **others}


_CONSTANT, _WORD = "one constant for every example", "a client's own most frequent word"


@pytest.mark.parametrize(
    ("row", "higher_is_better", "expected"),
    [
        (_row("test", "4.48", "0.0124"), False, ("global model", "4.48", "worse", _CONSTANT)),
        (_row("test", "0.02", "0.02131"), False,
         ("personalized model", "0.02131", "worse", _CONSTANT)),
        (_row("test", "0.02", "0.03"), True, ("global model", "0.02", "worse", _CONSTANT)),
        (_row("test", "0.0213", "0.03"), True, ("global model", "0.0213", "no better", _CONSTANT)),
        (_row("test", "", "0.01"), False, ("global model", "nan", "worse", _CONSTANT)),
        (_row("test", "0.1", "0.3", reference_mean="0.2"), True,
         ("global model", "0.1", "worse", _WORD)),
        (_row("test", "0.01", "0.01"), False, None),
        # Without an error, where there is none to make: nothing could be better.
        (_row("test", "1", "1", reference_mean="1"), True, None),
        (_row("test", "0", "1e-08", reference_mean="0"), False, None),
        (_row("test", "1", "0.99", reference_mean="1"), True,
         ("personalized model", "0.99", "worse", _WORD)),
    ],
)  # fmt: skip
def test_a_model_that_is_worse_than_nothing_is_named(row, higher_is_better, expected):
    rows, lines = [_row("valid", "9", "9"), row], []
    if expected is not None:
        model, value, than, what = expected
        constant = row.get("reference_mean", "0.0213")
        lines = [f"the {model} (error {value}) is {than} than predicting nothing ({constant}: "
                 f"{what}); try other learning rates or more rounds"]  # fmt: skip
    found = terminal.worse_than_nothing(rows, "error", higher_is_better, {"test": 0.0213})
    assert found == lines


@pytest.mark.parametrize("value", ["0.800000012", "0.800000011"])
@pytest.mark.parametrize("higher_is_better", [True, False])
def test_a_constant_up_to_rounding_is_no_better_on_either_side(value, higher_is_better):
    row = _row("test", value, "0.9" if higher_is_better else "0.7")
    (line,) = terminal.worse_than_nothing([row], "x", higher_is_better, {"test": 0.80000001192})
    assert line.startswith("the global model (x 0.8) is no better than predicting nothing (0.8: ")


def test_clients_own_models_are_compared_with_their_own_constants():
    own = {"own mean": {"test": 0.14}}
    for constant, expected in ((0.304, "0.14: each client's own mean"), (0.1, "0.1: one constant")):
        found = terminal.worse_than_nothing(
            [_row("test", "0.05", "0.279")], "error", False, {"test": constant}, own
        )
        assert (
            len(found) == 1 and f"0.279) is worse than predicting nothing ({expected}" in found[0]
        )


def test_without_a_constant_nothing_is_compared():
    assert terminal.worse_than_nothing([_row("test", "9", "9")], "error", False, {}) == []


def _client(name, baseline, personalized, delta, is_hurt):
    cells = (f"table:{name}", baseline, personalized, delta, is_hurt)
    columns = ("client_id", "baseline", "personalized", "delta", "is_hurt")
    return dict(zip(columns, cells, strict=True))


def test_who_is_worse_off_is_named_those_that_lose_most_first():
    rows = [
        _client("a", "0.5", "0.4", "-0.1", "1"),
        _client("b:1", "0.5", "", "", "1"),
        _client("c", "0.5", "0.2", "-0.3", "1"),
        _client("d", "0.5", "0.6", "0.1", "0"),
    ]
    assert terminal.hurt_clients(rows) == (
        "75.0% of the test clients (3 of 4) are worse off with their own model, those that lose "
        "most first: b:1, c, a; is_hurt in clients.csv has all"
    )
    many = [_client(f"c{i}", "1", "0", f"-{9 - i}", "1") for i in range(7)]
    assert "first: c0, c1, c2, c3, c4 and 2 more;" in terminal.hurt_clients(many)


def test_nobody_worse_off_and_nothing_changed_are_two_sentences():
    better, same = _client("d", "0.5", "0.6", "0.1", "0"), _client("e", "0.5", "0.5", "0", "0")
    assert terminal.hurt_clients([better, same]) == (
        "0.0% of the test clients (0 of 2) are worse off with their own model"
    )
    unscored = _client("f", "", "", "", "")
    assert terminal.hurt_clients([same, unscored, same], "why").startswith(
        "no test client's value changed (of 2)"
    )
    assert terminal.hurt_clients([same], "why").endswith("with the global one; why")
    assert terminal.hurt_clients([]) == terminal.hurt_clients([unscored]) == ""
