"""Who wins by which metric: Divi et al.'s Table 3 as typed, ranks, and runs of several splits."""

import shutil

import numpy as np
import pytest

from motley_tff.report import comparisons, improvement, runs, winners
from tests.report import written

# Accuracy in percent of users 0 to 9, from Table 3 of arXiv:2107.13173.
_FEDAVG = {
    "DS-1": [43.6, 50.9, 44.5, 51.3, 45.3, 44.2, 35.8, 37.9, 47.7, 48.6],
    "DS-3": [48.2, 40.8, 31.2, 31.5, 49.4, 47.8, 56.8, 58.1, 49, 53.5],
}
_PERSONAL = {
    "DS-1": {
        "PersFL": [85.5, 78.2, 82.2, 82.1, 79.4, 77.1, 75.6, 79.7, 87.7, 91],
        "FedPer": [83.2, 74.5, 78.4, 77.9, 76.1, 72.1, 70.9, 75.6, 84.4, 88.5],
        "pFedMe": [74.3, 64.1, 69.6, 69.4, 67.2, 62.1, 59.9, 65.8, 75.5, 81.7],
        "Per-FedAvg": [69.2, 65, 67.9, 67.2, 65.8, 62.7, 58.2, 64.3, 72.5, 76.6],
    },
    "DS-3": {
        "PersFL": [94.5, 79.9, 68.9, 82.5, 82.5, 79.9, 90.3, 87.6, 76.7, 80.3],
        "FedPer": [93.1, 77, 64.7, 77.5, 78.6, 76.9, 88.5, 84.6, 73.5, 77.9],
        "pFedMe": [94.2, 79.2, 64.4, 72.5, 80, 77.5, 88.3, 84, 66.9, 73.8],
        "Per-FedAvg": [92.5, 73.7, 64.6, 77, 82.5, 77.9, 89.1, 83.7, 64.1, 72.7],
    },
}


@pytest.fixture(scope="module")
def table_3():
    return {
        name: {
            method: winners.scores(np.subtract(values, _FEDAVG[name]))
            for method, values in methods.items()
        }
        for name, methods in _PERSONAL.items()
    }


@pytest.mark.parametrize(
    ("name", "lowest", "value"), [("DS-1", "Per-FedAvg", 19.24), ("DS-3", "FedPer", 53.93)]
)
def test_the_papers_winners_from_its_own_table(table_3, name, lowest, value):
    variance, *rest = winners.FAIRNESS
    assert winners.winners(table_3[name], variance) == [lowest]
    assert table_3[name][lowest][variance.name] == pytest.approx(value, abs=0.005)
    kinds = [*rest, *winners.PERFORMANCE[1:3]]
    assert [winners.winners(table_3[name], kind) for kind in kinds] == [["PersFL"]] * 5


def test_equal_methods_share_a_rank_and_nobodys_loss_is_the_best():
    kinds = {kind.name: kind for kind in winners.KINDS}
    hurts, one, other = [1.0, -1.0], [1.0, 2.0], [2.0, 1.0]
    scores = {n: winners.scores(np.array(f)) for n, f in (("a", hurts), ("b", one), ("c", other))}
    assert winners.ranks(scores, kinds["mpd"]) == {"a": 3, "b": 1, "c": 1}
    assert winners.ranks(scores, kinds["api"]) == {"a": 3, "b": 1, "c": 1}
    assert winners.winners(scores, kinds["pui"]) == ["b", "c"]
    nobody = {**scores, "d": winners.scores(np.array([-1.0, -1.0]))}
    assert winners.ranks(nobody, kinds["jain_index_improved"])["d"] == 4


def test_sentences_say_who_disagrees_and_what_local_training_changes(table_3):
    low = {m: winners.scores(np.subtract(v, 80.0)) for m, v in _PERSONAL["DS-3"].items()}
    one = winners.Split("cifar10 (DS-3)", {winners.G: table_3["DS-3"], winners.BETTER: low}, [])
    text = winners.sentence(one)
    assert text.startswith(
        "cifar10 (DS-3): over max(G, L) PersFL is best, or as good as the best, by"
    )
    assert "Counting local training, the share of clients that" in text
    only_global = winners.Split("DS-1", {winners.G: table_3["DS-1"]}, [])
    assert "Per-FedAvg by average variance, where 100% gain" in winners.sentence(only_global)


def test_who_wins_fairness_says_among_how_many(table_3):
    """Six clients of ten that gain the same are fair, one alone is not, though as equal."""
    six, alone = (winners.scores(np.array([1.0] * n + [-1.0] * (10 - n))) for n in (6, 1))
    for method in (six, alone):
        assert method["average_variance_improved"] == 0 and method["jain_index_improved"] == 1
    methods = {**table_3["DS-1"], "six": six, "alone": alone}
    split = winners.Split("x", {winners.G: methods}, [])
    assert "six by average variance, where 60% gain" in winners.sentence(split)
    assert "x six, where 60% gain." in winners.caption([split], winners.G)
    assert winners.ranks(methods, winners.FAIRNESS[0])["alone"] == len(methods)
    assert winners.winners({"alone": alone}, winners.FAIRNESS[0]) == []


def test_nobody_hurt_under_one_seed_is_no_loss_there():
    """Losses 0 and 20 under two seeds: 10 on average, more than another method's 3."""
    numbers = [winners.scores(np.array(gains))["apd"] for gains in ([1.0, 2.0], [1.0, -20.0])]
    assert comparisons.Value.of(numbers, [1, 2]).mean == 10
    none = dict.fromkeys((kind.name for kind in winners.KINDS), float("nan"))
    assert winners.winners({"a": none, "b": none}, winners.KINDS[0]) == []


def _runs(root, **flags):
    """Writes FedAvg with fine-tuning, Ditto and local training of two seeds, of two clients."""
    for seed in (1, 2):
        of = {"seed": seed, "flags": {"partition": "natural", **flags}}
        written.run(
            root, f"ft{seed}", "fedavg+finetuning", {"a": (0.5, 0.6), "b": (0.5, 0.5)}, **of
        )
        # Its own FedAvg, of other rates, is no reference.
        written.run(root, f"ditto{seed}", "ditto", {"a": (0.1, 0.7), "b": (0.1, 0.4)}, **of)
        written.run(root, f"alone{seed}", "local", {"a": (0.0, 0.65), "b": (0.0, 0.2)}, **of)


def _split(root):
    (comparison,) = comparisons.compare(runs.find([str(root)]))
    return winners.split(comparison)


def test_gains_are_over_one_global_model_and_the_better_of_it_and_the_local_one(tmp_path):
    _runs(tmp_path)
    split = _split(tmp_path)
    over_global, over_better = split.scores[winners.G], split.scores[winners.BETTER]
    assert {m: round(s["api"], 3) for m, s in over_global.items()} == {
        "FedAvg + FT": 10.0, "Ditto": 20.0, "Local training": 15.0,
    }  # fmt: skip
    # Local training has .65 for a: fine-tuning's .6 is a loss of 5 points, Ditto's .7 a gain of 5.
    assert set(over_better) == {"FedAvg + FT", "Ditto"}
    assert over_better["FedAvg + FT"]["apd"] == pytest.approx(5)
    assert over_better["Ditto"]["api"] == pytest.approx(5)
    assert over_better["Ditto"]["apd"] == pytest.approx(10)
    header, first, *_ = split.clients
    assert header[:2] == ["client", "FedAvg"] and first[:2] == ["a", "50"]


def test_accuracies_in_percent_are_not_made_percent_again(tmp_path):
    for name, algorithm, value in (("a", "fedavg+finetuning", 60), ("b", "ditto", 70)):
        written.run(tmp_path, name, algorithm, {"a": (50, value), "b": (50, value)}, flags={},
                    valid={"v": (50, 50)}, metric="accuracy_pct")  # fmt: skip
    (comparison,) = comparisons.compare(runs.find([str(tmp_path)]))
    over_global = winners.split(comparison).scores[winners.G]
    assert [scores["api"] for scores in over_global.values()] == [10, 20]
    assert comparison.metric_label == "accuracy pct"


def test_a_run_of_fedavg_is_the_global_model_and_no_method(tmp_path):
    _runs(tmp_path)
    for seed in (1, 2):
        own = {"a": (0.4, 0.4), "b": (0.4, 0.4)}
        flags = {"partition": "natural"}
        written.run(tmp_path, f"z{seed}", "fedavg", own, seed=seed, flags=flags)
    split = _split(tmp_path)
    assert set(split.scores[winners.G]) == {"FedAvg + FT", "Ditto", "Local training"}
    assert split.scores[winners.G]["Ditto"]["api"] == pytest.approx(30.0)
    assert split.clients[1][:2] == ["a", "40"]
    # The densities beside it are of gains over the same model: Ditto's own has .1.
    (comparison,) = comparisons.compare(runs.find([str(tmp_path)]))
    known = improvement.references(comparison)
    (ditto,) = (s.runs[0] for s in comparison.series if s.algorithm == "ditto")
    np.testing.assert_allclose(known.gains(ditto, with_local=False), [0.3, 0.0], atol=1e-9)


def test_partitions_by_labels_are_data_of_their_own(tmp_path):
    _runs(tmp_path / "one", partition="classes:4")
    _runs(tmp_path / "two", partition="dirichlet:0.9")
    found = comparisons.compare(runs.find([str(tmp_path)]))
    assert [c.dataset for c in found] == ["toy (classes:4)", "toy (dirichlet:0.9)"]
    figure = winners.draw([winners.split(c) for c in found], winners.G)
    assert len(figure.axes) == 4


def test_without_local_training_or_common_clients_less_is_said(tmp_path):
    _runs(tmp_path / "all")
    for path in (tmp_path / "all").glob("alone*"):
        shutil.rmtree(path)
    assert set(_split(tmp_path / "all").scores) == {winners.G}
    other = {"x": (0.1, 0.7)}
    for seed in (1, 2):
        shutil.rmtree(tmp_path / "all" / f"ditto{seed}")
        flags = {"partition": "natural"}
        written.run(tmp_path / "all", f"ditto{seed}", "pfedme", other, seed=seed, flags=flags)
    assert _split(tmp_path / "all") is None
