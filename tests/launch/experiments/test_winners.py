"""Who wins by which metric: Divi et al.'s Table 3 as typed, ranks, and runs of several splits."""

import numpy as np
import pandas as pd
import pytest

from launch.report import comparisons, improvement, runs
from tests.launch import commands
from tests.launch.report import written


@pytest.fixture(scope="module", autouse=True)
def command():
    global winners
    with commands.opened("launch.experiments.divi.winners", "PATH...") as run:
        from launch.experiments.divi import winners  # Its flags are declared by now.

        yield run


_OVER = ("G", "max(G, L)")
# Accuracy in percent of DS-1's users 0 to 9, from Table 3 of arXiv:2107.13173.
_FEDAVG = [43.6, 50.9, 44.5, 51.3, 45.3, 44.2, 35.8, 37.9, 47.7, 48.6]
_PERSONAL = {
    "PersFL": [85.5, 78.2, 82.2, 82.1, 79.4, 77.1, 75.6, 79.7, 87.7, 91],
    "FedPer": [83.2, 74.5, 78.4, 77.9, 76.1, 72.1, 70.9, 75.6, 84.4, 88.5],
    "pFedMe": [74.3, 64.1, 69.6, 69.4, 67.2, 62.1, 59.9, 65.8, 75.5, 81.7],
    "Per-FedAvg": [69.2, 65, 67.9, 67.2, 65.8, 62.7, 58.2, 64.3, 72.5, 76.6],
}


def _table(gains):
    """Returns what `winners.table` does of `{method: gains}`."""
    return pd.DataFrame([{"method": m, **winners.scores(np.array(g))} for m, g in gains.items()])


def _first(methods, kind):
    """Returns who is first by a metric."""
    return methods["method"][winners.ranks(methods)[kind] == 1].tolist()


def test_the_papers_winners_from_its_own_table():
    methods = _table({m: np.subtract(v, _FEDAVG) for m, v in _PERSONAL.items()})
    variance, *rest = winners.FAIRNESS
    assert _first(methods, variance) == ["Per-FedAvg"]
    assert methods[variance].min() == pytest.approx(19.24, abs=0.005)
    assert [_first(methods, kind) for kind in (*rest, "mpi", "api")] == [["PersFL"]] * 5


def test_equal_methods_share_a_rank_and_nobodys_loss_is_the_best():
    methods = _table({"a": [1.0, -1.0], "b": [1.0, 2.0], "c": [2.0, 1.0], "d": [-1.0, -1.0]})
    ranks = winners.ranks(methods)
    assert ranks["mpd"].tolist() == [3, 1, 1, 3] and ranks["api"].tolist() == [3, 1, 1, 4]
    assert _first(methods, "pui") == ["b", "c"]
    assert ranks["jain_index_improved"].tolist()[3] == 4


def _runs(root, **flags):
    """Writes FedAvg with fine-tuning, Ditto and local training of two seeds, of two clients."""
    for seed in (1, 2):
        options = {"seed": seed, "flags": {"partition": "natural", **flags}}
        written.run(
            root, f"ft{seed}", "fedavg+finetuning", {"a": (0.5, 0.6), "b": (0.5, 0.5)}, **options
        )
        # Its own FedAvg, of other rates, is no reference.
        written.run(root, f"ditto{seed}", "ditto", {"a": (0.1, 0.7), "b": (0.1, 0.4)}, **options)
        written.run(root, f"alone{seed}", "local", {"a": (0.0, 0.65), "b": (0.0, 0.2)}, **options)


def _scores(root):
    """Returns the metrics by method, over G and over max(G, L)."""
    (comparison,) = comparisons.compare(runs.find([str(root)]))
    table = winners.table(comparison).set_index(["over", "method"])
    return comparison, *(table[table.index.get_level_values(0) == o].droplevel(0) for o in _OVER)


def test_gains_are_over_one_global_model_and_the_better_of_it_and_the_local_one(tmp_path):
    _runs(tmp_path)
    _, over_global, over_better = _scores(tmp_path)
    assert over_global["api"].round(3).to_dict() == {
        "FedAvg + FT": 10.0, "Ditto": 20.0, "Local training": 15.0,
    }  # fmt: skip
    # Local training has .65 for a: fine-tuning's .6 is a loss of 5 points, Ditto's .7 a gain of 5.
    assert set(over_better.index) == {"FedAvg + FT", "Ditto"}
    assert over_better["apd"].to_dict() == pytest.approx({"FedAvg + FT": 5, "Ditto": 10})
    assert over_better["api"]["Ditto"] == pytest.approx(5)


def test_a_run_of_fedavg_is_the_global_model_and_no_method(tmp_path):
    _runs(tmp_path)
    for seed in (1, 2):
        own = {"a": (0.4, 0.4), "b": (0.4, 0.4)}
        flags = {"partition": "natural"}
        written.run(tmp_path, f"z{seed}", "fedavg", own, seed=seed, flags=flags)
    comparison, over_global, _ = _scores(tmp_path)
    assert set(over_global.index) == {"FedAvg + FT", "Ditto", "Local training"}
    assert over_global["api"]["Ditto"] == pytest.approx(30.0)
    # The densities beside it are of gains over the same model: Ditto's own has .1.
    known = improvement.references(comparison)
    (ditto,) = (s.runs[0] for s in comparison.series if s.algorithm == "ditto")
    gains = improvement.quantum(ditto, known.fedavg[ditto.seed], None)
    np.testing.assert_allclose(gains, [0.3, 0.0], atol=1e-9)


def test_partitions_by_labels_are_data_of_their_own(command, tmp_path):
    _runs(tmp_path / "one", partition="classes:4")
    _runs(tmp_path / "two", partition="dirichlet:0.9")
    compared = comparisons.compare(runs.find([str(tmp_path)]))
    assert [c.dataset for c in compared] == ["toy (classes:4)", "toy (dirichlet:0.9)"]
    _, printed = command(tmp_path, f"--output_dir={tmp_path / 'out'}")
    assert [line for line in printed.splitlines() if "ranks" in line] == [
        f"Gains over {over}, with their ranks" for over in _OVER
    ]
    # Ditto gains 20 for a and loses 10 for b: its median gain has rank 1.
    rows = [line.split() for line in printed.splitlines()]
    assert ["toy", "(classes:4)", "Ditto", "50", "(1)", "20", "(1)"] in [row[:7] for row in rows]
    assert rows.count(["a", "50", "65", "60", "70"]) == 2
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        f"fairness_over_{model}.{kind}" for model in ("global", "better") for kind in ("png", "svg")
    }
