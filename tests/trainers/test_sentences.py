"""Sentences of the closing table: true where they are said, and silent where they are not."""

import json

import pytest

from tests.contracts import in_process
from trainers import sentences


def _row(baseline, personalized, **others):
    return {"split": "test", "baseline_mean": baseline, "personalized_mean": personalized, **others}


def test_rates_that_a_run_chose_are_named_with_all_that_it_tried():
    probe = {"chosen": 0.1, "best": 0.3, "rounds": 20, "clients": 40}
    tried = [[0.01, 1.25], [0.1, 0.5], [0.3, 0.4999999], [1.0, None]]
    (line,) = sentences.chosen_rates({"client_optimizer": {**probe, "tried": tried}})
    assert line == (
        "client learning rate 0.1, chosen on 40 training clients by the loss on held-out examples "
        "after 20 rounds (0.01: 1.25, 0.1: 0.5, 0.3: 0.5, 1: diverged)"
    )
    for part, edge in ((tried[:3], "0.3"), (tried[1:2] + tried[3:], "0.1")):
        at_edge = {**probe, "best": float(edge), "tried": part}
        _, said = sentences.chosen_rates({"server_optimizer": at_edge})
        assert said.startswith(f"the best server learning rate, {edge}, is the last one tried")
        assert said.endswith("(--server_learning_rate)")


@pytest.mark.parametrize(
    ("before", "last", "said"),
    [
        ([1.0] * 4, [0.9] * 4, "fell by 10% over"),
        ([1.0] * 4, [0.96] * 4, None),
        ([1.0] * 4, [1.1] * 4, None),
        # 1 and 0.9, of which either is 0.5 more or less: the error is 0.35.
        ([0.5, 1.5, 0.5, 1.5], [0.4, 1.4, 0.4, 1.4], None),
        ([1.0] * 3, [0.5] * 3, None),  # Too few.
        ([1.0] * 4, [0.9, 0.9, 0.9, float("nan")], None),
    ],
)
def test_a_loss_that_still_falls_asks_for_more_rounds(before, last, said):
    lines = sentences.still_falling([9.0] * 3 * len(last) + before + last)
    assert [said in line for line in lines] == [True] * (said is not None)


@pytest.mark.parametrize(
    ("row", "higher_is_better", "word", "expected"),
    [
        (_row("4.48", "0.0124"), False, None, ("global", "4.48")),
        (_row("0.02", "0.02131"), False, None, ("personalized", "0.02131")),
        (_row("0.02", "0.03"), True, None, ("global", "0.02")),
        (_row("0.0213", "0.03"), True, None, ("global", "0.0213")),
        # A constant up to rounding, which would be better.
        (_row("0.0212999998", "0.01"), False, None, ("global", "0.0213")),
        (_row("0.0213000002", "0.03"), True, None, ("global", "0.0213")),
        (_row("", "0.01"), False, None, ("global", "nan")),
        (_row("0.1", "0.3"), True, 0.2, ("global", "0.1")),
        (_row("0.01", "0.01"), False, None, None),
        # Nobody expects anything of an untrained model.
        (_row("9", "0.01", round="0", algorithm="local"), False, None, None),
        # Without an error, where there is none to make: nothing could be better.
        (_row("1", "1"), True, 1, None),
        (_row("0", "1e-08"), False, 0, None),
        (_row("1", "0.99"), True, 1, ("personalized", "0.99")),
    ],
)  # fmt: skip
def test_a_model_that_is_worse_than_nothing_is_named(row, higher_is_better, word, expected):
    constants, words = {sentences.ONE_CONSTANT: {"test": 0.0213}}, "0.0213: one constant for every"
    if word is not None:
        constants, words = {sentences.FREQUENT_WORD: {"test": word}}, f"{word}: a client's own most"
    lines = sentences.worse_than_nothing(row, "error", higher_is_better, constants)
    for (model, value), line in zip(filter(None, [expected]), lines, strict=True):
        assert line.startswith(f"warning: the {model} model (error {value}) is no better")
        assert f"predicting nothing ({words}" in line
    assert sentences.worse_than_nothing(row, "error", higher_is_better, {}) == []


def test_clients_own_models_are_compared_with_their_own_constants():
    for constant, expected in ((0.304, "0.14: each client's own mean"), (0.1, "0.1: one constant")):
        constants = {sentences.ONE_CONSTANT: {"test": constant}, "own mean": {"test": 0.14}}
        (line,) = sentences.worse_than_nothing(_row("0.05", "0.279"), "error", False, constants)
        assert f"0.279) is no better than predicting nothing ({expected}" in line


def test_values_that_do_not_exist_are_counted():
    row = {"split": "valid", "num_clients": "9", "num_unscored": "2", "num_diverged": "1",
           "baseline_num_diverged": "0", "diverged_candidates": "3 4"}  # fmt: skip
    unscored, diverged, candidates = sentences.values_that_do_not_exist([row])
    assert unscored.startswith("warning: 2 of 9 valid clients have nothing to be scored on")
    assert diverged.startswith("warning: the own model diverged for 1 of 9 valid clients; the mean")
    assert candidates.startswith("warning: candidates that diverged") and "3, 4;" in candidates
    assert sentences.values_that_do_not_exist([{"split": "test", "num_diverged": ""}]) == []


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
    assert sentences.hurt_clients(rows) == [
        "75.0% of the test clients (3 of 4) are worse off with their own model, those that lose "
        "most first: b:1, c, a; is_hurt in clients.csv has all"
    ]
    many = [_client(f"c{i}", "1", "0", f"-{9 - i}", "1") for i in range(7)]
    (line,) = sentences.hurt_clients(many)
    assert "first: c0, c1, c2, c3, c4 and 2 more;" in line


def test_nobody_worse_off_and_nothing_changed_are_two_sentences():
    better, same = _client("d", "0.5", "0.6", "0.1", "0"), _client("e", "0.5", "0.5", "0", "0")
    assert sentences.hurt_clients([better, same]) == [
        "0.0% of the test clients (0 of 2) are worse off with their own model"
    ]
    unscored = _client("f", "", "", "", "")
    (line,) = sentences.hurt_clients([same, unscored, same], "why")
    assert line.startswith("no test client's value changed (of 2)") and line.endswith("one; why")
    assert sentences.hurt_clients([]) == sentences.hurt_clients([unscored]) == []


def test_who_is_truly_worse_off():
    test = {"pct_hurt_by_chance": "31.2", "pct_truly_hurt": "2", "pct_truly_hurt_low": "0.4",
            "pct_truly_hurt_high": "4.1", "hurt_margin": "0.01"}  # fmt: skip
    rows = [
        {"client_id": f"table:{i}", "probability_hurt": p} for i, p in enumerate(("", "0.2", "0"))
    ]
    (line,) = sentences.truly_hurt(test, rows)
    assert "chance alone would show 31%" in line and "0 to 4% truly are, by more than 0.01" in line
    assert line.endswith("none surely")
    rows += [{"client_id": f"table:x{p}", "probability_hurt": p} for p in ("0.95", "0.99")]
    (line,) = sentences.truly_hurt(test | {"pct_truly_hurt_high": "80"}, rows)
    assert line.endswith("2 surely: x0.99, x0.95; so few examples cannot tell")
    assert (
        sentences.truly_hurt({"pct_truly_hurt": ""}, rows) == sentences.truly_hurt({}, rows) == []
    )


def _clients(*cells, **same):
    """Returns rows of test clients; a cell is the candidate."""
    cells_of_all = {"is_hurt": "0", "personalized": "1", "cluster_id": "1", "group": ""}
    return [{**cells_of_all, **same, "candidate": cell} for cell in cells]


def _clustered(*clusters, **same):
    return [row for c in clusters for row in _clients("chosen", cluster_id=str(c), **same)]


@pytest.mark.parametrize(
    ("clients", "num_clusters", "is_collapsed"),
    [
        (_clustered(*[1] * 30), 1, False),  # FedAvg.
        # Of two clusters of equal size eight clients share one with 1/128, seven with 1/64.
        (_clustered(*[2] * 8), 2, True),
        (_clustered(*[2] * 7), 2, False),
        (_clustered(*[2] * 5), 5, True),
        (_clustered(*[2] * 3), 3, False),
        (_clustered(*[1] * 19, 2), 2, True),
        (_clustered(*[1] * 18, 2, 2), 2, False),
        (_clustered(*[1] * 30, group="x"), 2, False),
        (_clustered(*[1] * 8, group="x") + _clustered(1, group="y"), 2, True),
        (_clustered(*[1] * 30, personalized=""), 2, False),  # Diverged: they chose nothing.
        ([], 2, False),
    ],
)
def test_mode_collapse_is_of_several_clusters_and_enough_clients(
    clients, num_clusters, is_collapsed
):
    lines = sentences.mode_collapse(clients, num_clusters)
    assert [line.partition(";")[0] for line in lines] == is_collapsed * [
        f"warning: {95 if len(clients) == 20 else 100}% of the test clients are in one cluster "
        "(mode collapse)"
    ]


_EPOCHS = ("0", "1", "2", "3")
_RATES = ("0", *(f"lr{rate}_epoch{epoch}" for rate in (0.01, 0.1, 1.0) for epoch in (1, 2)))
_NEIGHBOURS = ("0", *(f"k{k}_c{c}" for k in (5, 10) for c in (0.5, 1)))


@pytest.mark.parametrize(
    ("chosen", "labels", "expected"),
    [
        (["3"] * 4, _EPOCHS, ["epoch, 3,"]),
        (["2"] * 4, _EPOCHS, []),
        (["0"] * 4, _EPOCHS, []),
        (["3", "3", "3", "1"], _EPOCHS, ["epoch for 3 of 4 test clients, 3,"]),
        (["3", "3", "1", "1"], _EPOCHS, []),
        (["3", "0", "0"], _EPOCHS, ["epoch for 1 of 3 test clients, 3,"]),
        (["lr0.1_epoch2"] * 2, _RATES, ["epoch, 2,"]),
        (["lr0.01_epoch1"] * 2, _RATES, ["learning rate, 0.01,"]),
        (["lr1.0_epoch2"] * 2, _RATES, ["epoch, 2,", "learning rate, 1,"]),
        (["k10_c0.5"], _NEIGHBOURS, ["number of neighbours, 10,"]),
        (["k5_c1"], _NEIGHBOURS, []),  # Neighbours alone: there is no more.
        (["c0.5"], ("0", "c0.2", "c0.5"), ["coefficient, 0.5,"]),
        (["personal"], ("0", "personal"), []),
        (["chosen"], ("0", "chosen"), []),
    ],
)
def test_what_is_best_and_the_last_one_tried(chosen, labels, expected):
    lines = sentences.last_tried(_clients(*chosen), labels)
    assert [line.partition(" is the last")[0] for line in lines] == [
        f"the best {words}" for words in expected
    ]
    assert sentences.last_tried(_clients(*chosen, is_hurt=""), labels) == []  # All unscored.


def test_training_that_ended_early():
    (line,) = sentences.ended_early("30", 100, 2)
    assert line.startswith(
        "training ended after round 30 of 100, as 2 evaluations in a row brought"
    )
    assert "as one evaluation brought" in sentences.ended_early("30", 100, 1)[0]
    assert sentences.ended_early("100", 100, 1) == []


def test_the_best_round_is_the_last():
    assert sentences.last_round(["10", "20"], "20") == [
        "the best round, 20, is the last one: more may be better (--total_rounds)"
    ]
    assert sentences.last_round(["10", "20"], "10") == sentences.last_round(["20"], "20") == []


@pytest.mark.parametrize(
    ("chosen", "labels", "expected"),
    [
        ("0", ("0",), "no other candidate than the global model"),
        ("0", _EPOCHS, "none of the 3 other candidates"),
        ("0", _EPOCHS, "(--acceptance=min_examples:9)"),
        ("2", _EPOCHS, "candidate 2 was chosen"),
    ],
)
def test_why_nothing_changed(chosen, labels, expected):
    assert expected in sentences.unchanged(_clients(chosen, chosen), labels, "min_examples:9")


def test_a_run_says_them(tmp_path, capsys):
    """Steps far too short to change anything; one epoch, where the global model is no choice."""
    flags = ("--total_rounds=1", "--backend=sequential", "--finetune_max_epochs=2")
    with in_process.opened("finetuning_trainer") as run:
        path = run(tmp_path, "none", *flags, "--finetune_learning_rate=1e-12")
        printed = capsys.readouterr().out
        assert "with the global one; none of the 2 other candidates was better" in printed
        record = json.loads((path / "run.json").read_text())
        assert record["candidates"] == ["0", "1", "2"]
        (majority,) = {
            f"{v:.5g}" for v in record["own_constant_prediction"]["own majority"].values()
        }
        (constant,) = {f"{v:.5g}" for v in record["constant_prediction"].values()}
        lines = [line.split() for line in printed.splitlines() if line.startswith("  ")]
        # Of three clients: 1 - 0.025^(1/3) is the upper end of none.
        assert [line[-4:] for line in lines[1:3]] == [["0.0", "(0.0", "to", "70.8)"]] * 2
        assert lines[4:] == [
            ["one", "constant", constant, constant], ["own", "majority", majority, majority]
        ]  # fmt: skip
        flags = ("--total_rounds=0", "--backend=sequential", "--finetune_max_epochs=1")
        run(tmp_path, "all", *flags, "--noinclude_baseline_candidate")
        assert "the best epoch, 1, is the last one tried: more epochs" in capsys.readouterr().out


def test_a_rare_class_is_told_of():
    constants = {sentences.ONE_CONSTANT: {"valid": 0.5, "test": 0.87}}
    (line,) = sentences.rare_classes(constants)
    assert "87%" in line and "--metrics=balanced_accuracy" in line
    assert sentences.rare_classes({sentences.ONE_CONSTANT: {"test": 0.7}}) == []
    assert sentences.rare_classes({}) == []


def test_a_metric_that_chose_nothing_is_told_of():
    rows = [
        {"split": "valid", "candidate": "0", "personalized_roc_auc_mean": ""},
        {"split": "test", "candidate": "0", "personalized_roc_auc_mean": "0.5"},
    ]
    (line,) = sentences.nothing_to_choose_by(rows, "roc_auc")
    assert "roc_auc" in line and "0 is the first" in line and "--tuning_metric" in line
    rows[0]["personalized_roc_auc_mean"] = "0.25"
    assert sentences.nothing_to_choose_by(rows, "roc_auc") == []
    assert sentences.nothing_to_choose_by(rows, None) == []
