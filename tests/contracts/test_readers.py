"""motley_report and FedEval's radar read what trainers write: real runs, small ones.

What they make of numbers is tested on tables of chosen numbers (`tests/launch/report`,
`tests/launch/experiments/test_radar`); here each number has to be the one that the run itself says.
"""

import contextlib
import csv
import math

import numpy as np
import pytest

from launch.report import building, comparisons, figures, paper_tables, runs
from tests.contracts import in_process
from tests.launch import commands
from tests.launch.experiments import test_radar
from tests.launch.report import test_page

_FINETUNING, _HYPCLUSTER, _KNN_PER, _MTL = in_process.TRAINERS
_SILOS = ("--total_rounds=2", "--rounds_per_evaluation=1", "--backend=sequential")
_DEVICE = ("--dataset_name=emnist", "--clients_per_train_round=2", *_SILOS)
_TUNED = (*_DEVICE, "--finetune_max_epochs=2", "--finetune_learning_rate=0.3")
_RARELY = "--rounds_per_evaluation=2"
# All that a run can look at beside its tables.
_LOOKS = (
    "--evaluate_ood", "--personalization_fraction=1,0.5", "--acceptance=always,min_examples:8",
)  # fmt: skip
# {run: (trainer, flags)}
_REPORTED = {
    "tuned0": (_FINETUNING, _TUNED),
    "tuned1": (_FINETUNING, (*_TUNED, "--base_random_seed=1", _RARELY)),
    "alone": (_FINETUNING, (*_TUNED, "--total_rounds=0")),
    "clusters": (_HYPCLUSTER, (*_DEVICE, "--num_clusters=2")),
    "neighbors": (_KNN_PER, (*_SILOS, _RARELY, "--knn_tuning=per_client",
                             "--coefficients=0.2,0.6,1", *_LOOKS)),
    "ditto": (_MTL, (*_SILOS, _RARELY, "--algorithm=ditto")),
}  # fmt: skip
# All but those of several fine-tuning rates and of a sweep.
_FIGURES = {
    "acceptance", "box_plots", "coefficient_curves", "collapse", "communication", "composition",
    "delta_by_examples", "delta_by_rank", "distribution_shift", "epoch_curves", "improvement",
    "size_curves", "tuning",
}  # fmt: skip
# {run: what sets it apart from tuned0}
_SCORED = {
    "one_step": "--algorithm=fedsgd",
    "alike": "--partition=iid",
    "dropout": "--dropout_rate=0.6",
    "stragglers": "--straggler_rate=0.9",
    "central": "--algorithm=centralized",
}


def _run_all(root, wanted):
    for trainer in in_process.TRAINERS:
        with contextlib.ExitStack() as stack:
            mine = {name: given for name, (which, given) in wanted.items() if which == trainer}
            run = stack.enter_context(in_process.opened(trainer)) if mine else None
            for name, given in mine.items():
                run(root, name, *given)


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Runs of each trainer, below one directory."""
    root = tmp_path_factory.mktemp("runs")
    _run_all(root, _REPORTED)
    return root


def _summary(directory, split="test"):
    """Returns the last row of a split in a run's own summary.csv."""
    table = in_process.table(directory, "summary")
    return table[table.split == split].iloc[-1]


def test_a_report_says_what_the_runs_say(reported):
    (compared,) = comparisons.compare(runs.find([str(reported)]))
    rows = {(row["algorithm"], row["statistic"]): row for row in paper_tables.rows(compared)}
    # {algorithm: (runs, {statistic: column of summary.csv})}
    expected = {
        "FedAvg + FT": (("tuned0", "tuned1"), {
            "Per-client metric before FT": "baseline_mean",
            "Per-client metric after FT": "personalized_mean",
            '% clients "hurt" after FT': "pct_clients_hurt"}),
        "Local training": (("alone",), {"Per-client metric": "personalized_mean"}),
        "HypCluster": (("clusters",), {"Per-client metric": "personalized_mean",
                                       "% clients largest cluster": "largest_cluster_pct"}),
        "kNN-Per": (("neighbors",), {"Per-client metric": "personalized_mean",
                                     '% clients "hurt"': "pct_clients_hurt"}),
        "Ditto": (("ditto",), {"Per-client metric": "personalized_mean",
                               '% clients "hurt"': "pct_clients_hurt"}),
    }  # fmt: skip
    assert set(rows) == {(name, s) for name, (_, columns) in expected.items() for s in columns}
    for algorithm, (names, columns) in expected.items():
        for statistic, column in columns.items():
            values = [float(_summary(reported / name)[column]) for name in names]
            row = rows[algorithm, statistic]
            assert int(row["num_seeds"]) == len(names)
            assert float(row["mean"]) == pytest.approx(np.mean(values), rel=1e-6), row
    data = {kind.name: kind.function("data")(compared) for kind in figures.KINDS}
    drawn = {name for name, table in data.items() if table is not None and len(table)}
    assert drawn == _FIGURES


@pytest.mark.slow
def test_a_report_shows_what_the_runs_left(reported, tmp_path):
    built = building.build([str(reported)], tmp_path, "svg")
    with open(tmp_path / "tables.csv", newline="", encoding="utf-8") as file:
        means = {(row["algorithm"], row["statistic"]): row["mean"] for row in csv.DictReader(file)}
    ditto = float(means["Ditto", "Per-client metric"])
    assert ditto == pytest.approx(float(_summary(reported / "ditto").personalized_mean), rel=1e-6)
    stems = {path.stem for path in built.files} - {"tables"}
    assert {stem.removeprefix("toy_synthetic_accuracy_") for stem in stems} == _FIGURES
    missing = [kind.heading for kind in figures.KINDS if kind.name not in _FIGURES]
    of_runs = {kind.heading for kind in figures.KINDS}
    assert [title for title, _ in built.absent if title in of_runs] == missing
    found = test_page.check(built.page.read_text(encoding="utf-8"))
    assert len(found.sources) == len(stems)


@pytest.mark.slow
def test_a_scorecard_says_what_the_runs_say(reported, tmp_path):
    others = {name: (_FINETUNING, (*_TUNED, _RARELY, flag)) for name, flag in _SCORED.items()}
    _run_all(tmp_path, others)
    paths = [reported / "tuned0", reported / "alone", *(tmp_path / name for name in others)]
    for model, column in (("personalized", "personalized"), ("global", "baseline")):
        with commands.opened("launch.experiments.fedeval.radar", "RUN...") as radar:
            scores = test_radar.score(radar, tmp_path, *paths, model=model)
        rows = {row["run_id"]: row for row in scores}
        assert list(rows) == ["tuned0", "one_step"]
        row, (mine, alone, *rest) = rows["tuned0"], (_summary(path) for path in paths)
        rest = dict(zip(others, rest, strict=True))
        which = f"{column}_mean"
        assert row["value"] == pytest.approx(float(mine[which]), rel=1e-6)
        assert row["local_value"] == pytest.approx(float(alone.personalized_mean), rel=1e-6)
        assert row["central_value"] == pytest.approx(float(rest["central"].baseline_mean), rel=1e-6)
        # Faults are the harder problem, alike clients the easier one.
        for kind, name in (("dropout", "dropout"), ("straggler", "stragglers")):
            lost = 1 - float(rest[name][which]) / float(mine[which])
            assert row[f"{kind}_disparity"] == pytest.approx(lost, abs=1e-6)
        alike = 1 - float(mine[which]) / float(rest["alike"][which])
        assert row["iid_disparity"] == pytest.approx(alike, abs=1e-6)
        assert rows["one_step"]["iid_disparity"] == ""
        rounds = in_process.table(reported / "tuned0", "rounds")
        spent = [rounds[name].astype(float).sum() for name in ("bytes_down", "bytes_up", "seconds")]
        assert (row["rounds"], row["bytes"]) == (2, spent[0] + spent[1])
        assert row["seconds"] == pytest.approx(spent[2], rel=1e-6)
        assert not any(math.isnan(row[a]) for a in ("efficiency", "robustness", "effectiveness"))
        assert rows["one_step"]["efficiency"] == 1 and rows["one_step"]["privacy"] < row["privacy"]
