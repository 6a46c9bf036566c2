"""Sentences of the closing table: true where they are said, and silent where they are not."""

import json

import pytest

from tests.contracts import in_process
from trainers import sentences


def _clients(*cells, **same):
    """Returns rows of test clients; a cell is the candidate."""
    cells_of_all = {"is_hurt": "0", "baseline": "1", "personalized": "1", "cluster_id": "1",
                    "group": "", "baseline_loss": "1", "personalized_loss": "1"}  # fmt: skip
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
    found = sentences.mode_collapse(clients, num_clusters)
    assert [line.partition(";")[0] for line in found] == is_collapsed * [
        f"{95 if len(clients) == 20 else 100}% of the test clients are in one cluster "
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


def test_the_best_round_is_the_last():
    assert sentences.last_round(["10", "20"], "20") == [
        "the best round, 20, is the last one: more may be better (--total_rounds)"
    ]
    assert sentences.last_round(["10", "20"], "10") == sentences.last_round(["20"], "20") == []


@pytest.mark.parametrize(
    ("clients", "labels", "diverged", "rule", "expected"),
    [
        (_clients("0"), ("0",), [""], "always", "no other candidate than the global model"),
        (_clients("0", "0"), _EPOCHS, ["2"], "always",
         "none of the 3 other candidates was better on validation data"),
        (_clients("0", "0"), _EPOCHS, ["2"], "min_examples:9",
         "or nobody accepts it (min_examples:9)"),
        (_clients("0", "0"), _EPOCHS, ["1", "2", "3"], "always",
         "all other candidates diverged for a validation client"),
        (_clients("chosen"), ("0", "chosen"), [""], "always", "they all take the first cluster's"),
        (_clients("chosen", cluster_id="2"), ("0", "chosen"), [""], "always",
         "their clusters' models score alike"),
        (_clients("2"), _EPOCHS, [""], "always", "candidate 2 was chosen, which does not change "
         "even the loss"),
        (_clients("2", personalized_loss="0.5"), _EPOCHS, [""], "always",
         "does not change accuracy, though it changes the loss"),
    ],
)  # fmt: skip
def test_why_nothing_changed(clients, labels, diverged, rule, expected):
    assert expected in sentences.unchanged(clients, labels, "accuracy", diverged, rule)


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
