"""Finding and reading: what stands under a path, at which round, and what is refused."""

import json

import pytest

from launch.report import building, comparisons, figures, runs
from tests.errors import refused
from tests.launch.report import written

CLIENTS = {"a": (0.5, 0.7), "b": (0.6, 0.6), "c": (0.9, 0.8)}
_CURVE = "round,split,client_id,candidate,value\n"


def test_runs_and_roots_are_found_once(tmp_path):
    first = written.run(tmp_path / "results", "one", "fedavg+finetuning", CLIENTS, seed=1)
    below = tmp_path / "results" / "below"
    written.run(below, "two", "local", CLIENTS, number=0, valid=CLIENTS)
    inputs = runs.find([str(tmp_path), str(first)])
    assert [run.run_id for run in inputs.runs] == ["two", "one"]
    run = inputs.runs[1]
    assert (run.dataset, run.seed, run.round, run.metric) == ("toy", 1, 10, "accuracy")
    assert list(run.values.client_ids) == ["a", "b", "c"]
    # Silos are those that are in both splits.
    assert inputs.runs[0].is_silo and not run.is_silo
    assert not inputs.runs[0].has_trained_baseline and run.has_trained_baseline


def test_a_model_before_its_first_round_is_no_trained_baseline(tmp_path):
    """Older runs with --finetune_every may report round 0; a given model is trained."""
    for algorithm in ("fedavg+finetuning", "finetuning", "knn_per", "hypcluster"):
        written.run(tmp_path, algorithm, algorithm, CLIENTS, number=0)
    trained = {run.algorithm: run.has_trained_baseline for run in runs.find([str(tmp_path)]).runs}
    assert trained == {
        "fedavg+finetuning": False, "finetuning": True, "knn_per": True, "ensemble": True,
    }  # fmt: skip


def test_links_lead_to_a_run_once_and_end(tmp_path):
    run = written.run(tmp_path / "results", "one", "fedavg+finetuning", CLIENTS)
    (run.parent / "latest").symlink_to(run)
    # Each of these would double what there is, for as many levels as the system follows links.
    for name in ("loop", "again"):
        (run.parent / name).symlink_to(tmp_path)
    paths = [str(tmp_path), str(run.parent / "latest")]
    assert len(runs.find(paths).runs) == 1


def _two_rounds(path, first, second):
    """Appends a second round to a run: clients' personalized values in both."""
    lines = (path / "clients.csv").read_text().splitlines()
    header = lines[0].split(",")
    changed = []
    for line in lines[1:]:
        cells = dict(zip(header, line.split(","), strict=True))
        changed.append(",".join((cells | {"personalized": str(first)}).values()))
        changed.append(",".join((cells | {"round": "20", "personalized": str(second)}).values()))
    (path / "clients.csv").write_text("\n".join([lines[0], *changed]) + "\n")


@pytest.mark.parametrize(
    ("flags", "second", "expected"),
    [
        ({}, 0.5, 20),
        ({"finetune_every": 10}, 0.5, 10),
        ({"reported_round": "best"}, 0.5, 10),
        ({"reported_round": "best"}, 0.9, 20),
        ({"reported_round": "best"}, "", 10),  # Somebody diverged.
    ],
)
def test_which_round_is_reported(tmp_path, flags, second, expected):
    path = written.run(tmp_path, "one", "fedavg+finetuning", CLIENTS, flags=flags)
    _two_rounds(path, first=0.75, second=second)
    assert runs.find([str(path)]).runs[0].round == expected


def test_the_round_that_another_metric_chooses(tmp_path):
    flags = {"reported_round": "best", "tuning_metric": "loss"}
    path = written.run(tmp_path, "one", "fedavg+finetuning", CLIENTS, flags=flags)
    _two_rounds(path, first=0.5, second=0.9)
    summary = (
        "round,split,personalized_loss_mean,num_diverged_loss\n10,valid,0.1,0\n20,valid,0.2,0\n"
    )
    (path / "summary.csv").write_text(summary)
    record = json.loads((path / "run.json").read_text())
    tuning = {"tuning_metric": "loss", "tuning_higher_is_better": False}
    (path / "run.json").write_text(json.dumps(record | tuning))
    assert runs.find([str(path)]).runs[0].round == 10


def test_a_sweep_and_its_best_runs(tmp_path):
    rows = [
        {"lambda": x, "name": "x", "base_random_seed": 1, "status": status, "reason": ""}
        for x, status in ((0.5, "finished"), (1.0, "failed"))
    ]
    path = written.sweep(tmp_path / "grid", rows, use_synthetic_data=True)
    # The best runs' table, and a whole run directory, which is no run of its own.
    written.run(path / "runs", "p0", "ditto", CLIENTS)
    (path / "clients.csv").write_bytes((path / "runs" / "p0" / "clients.csv").read_bytes())
    inputs = runs.find([str(tmp_path)])
    (sweep,), (run,) = inputs.sweeps, inputs.runs
    assert (sweep.dataset, len(sweep.rows), sweep.num_failed) == ("toy (synthetic)", 1, 1)
    assert sweep.hyperparameters == ["lambda", "name"]
    own = {"num_clusters": "2", "use_synthetic_data": True, "lambda": 0.5, "name": "x"}
    assert run.flags == own
    assert (run.run_id, run.dataset, run.path) == ("p0", "toy (synthetic)", path / "runs" / "p0")


@pytest.mark.parametrize(
    ("make", "place", "content", "expected"),
    [
        (lambda p: None, "", "nothing", "the directory of a run"),
        (lambda p: p.write_text("x"), "", "a file", "the directory of a run"),
        (lambda p: p.mkdir(), "", "no clients.csv or sweep.csv", ""),
        (lambda p: written.run(p, "one", "ditto", {}), "/one/clients.csv", "no test clients", ""),
        (lambda p: (p.mkdir(), (p / "sweep.csv").write_text("a,b\n1,2\n")), "/sweep.csv", "a, b",
         "run_id, algorithm, dataset, base_random_seed"),
        (lambda p: written.sweep(
            p, [{"base_random_seed": 0, "status": "failed", "reason": "x"}]
         ), "/sweep.csv", "no finished run in 1", ""),
    ],
)  # fmt: skip
def test_paths_that_hold_nothing_to_report(tmp_path, make, place, content, expected):
    path = tmp_path / "path"
    make(path)
    with refused(f"{path}{place}", content, expected):
        runs.find([str(path)])


@pytest.mark.parametrize("is_sweep", [False, True])
def test_generators_own_tables_are_left_out(tmp_path, monkeypatch, is_sweep):
    """They score nets by the nets, and one that was never trained can lead."""
    if is_sweep:
        row = {"base_random_seed": 0, "status": "finished"}
        path = written.sweep(tmp_path / "gan", [row], trainer="generative_trainer")
    else:
        path = written.run(tmp_path, "gan", "wgan_gp", CLIENTS, flags={"generator": "wgan_gp"})
    with refused(str(path), "generative_trainer", advice="motley_generative"):
        runs.find([str(path)])
    written.run(tmp_path, "one", "fedavg", CLIENTS, flags={})
    inputs = runs.find([str(tmp_path)])
    assert [run.run_id for run in inputs.runs] == ["one"] and not inputs.sweeps
    monkeypatch.setattr(figures, "KINDS", ())
    built = building.build([str(tmp_path)], tmp_path / "report", "svg")
    (title,) = (title for title, needs in built.absent if "nets' own" in needs)
    assert title == "Tables of generators' runs (1)"


@pytest.mark.parametrize("clients", [None, "run_id,client_id\n"])
def test_a_sweep_without_best_runs_stands_alone(tmp_path, clients):
    path = written.sweep(tmp_path / "grid", [{"base_random_seed": 0, "status": "finished"}])
    if clients is not None:
        (path / "clients.csv").write_text(clients)
    (comparison,) = comparisons.compare(runs.find([str(tmp_path)]))
    assert (comparison.dataset, comparison.metric, comparison.series) == ("toy", "accuracy", [])
    assert comparison.higher_is_better and len(comparison.sweeps) == 1


def test_words_of_a_silo_are_no_numbers(tmp_path):
    row = {"round": 10, "split": "test", "candidate_per_client": "per_client"}
    path = written.run(tmp_path, "one", "ditto", CLIENTS, tables={"summary": [row]})
    (run,) = runs.find([str(path)]).runs
    assert run.reported("summary")["candidate_per_client"].tolist() == ["per_client"]


# --- which runs stand together --------------------------------------------------------------------


def _labels(tmp_path):
    return {
        comparison.dataset: [
            (series.label, [run.run_id for run in series.runs]) for series in comparison.series
        ]
        for comparison in comparisons.compare(runs.find([str(tmp_path)]))
    }


def test_data_sets_and_metrics_are_kept_apart(tmp_path):
    written.run(tmp_path, "one", "ditto", CLIENTS)
    written.run(tmp_path, "two", "ditto", CLIENTS, dataset="other")
    written.run(tmp_path, "three", "ditto", CLIENTS, metric="error", higher_is_better=False)
    compared = comparisons.compare(runs.find([str(tmp_path)]))
    names = [(c.dataset, c.metric, c.higher_is_better) for c in compared]
    assert names == [
        ("other", "accuracy", True), ("toy", "accuracy", True), ("toy", "error", False)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        # Only the first rule is a setting; equal numbers are one.
        ([{"acceptance": ["always"]}, {"acceptance": ["always", "x"]}, {"acceptance": ["x"]}],
         [("Ditto, acceptance always", ["0", "1"]), ("Ditto, acceptance x", ["2"])]),
        ([{"finetune_learning_rate": ["0.1"], "server_learning_rate": 3},
          {"finetune_learning_rate": ["0.1", "1"], "server_learning_rate": 3.0},
          {"finetune_learning_rate": ["0.1"], "server_learning_rate": "3"}],
         [("Ditto, rate 0.1", ["0", "2"]), ("Ditto, rate 0.1/1", ["1"])]),
        ([{"something_long": "x" * 50}, {"something_long": "y" * 50}],
         [("Ditto A", ["0"]), ("Ditto B", ["1"])]),
    ],
)  # fmt: skip
def test_what_settings_are_called(tmp_path, flags, expected):
    for name, run_flags in enumerate(flags):
        written.run(tmp_path, str(name), "ditto", CLIENTS, flags=run_flags)
    assert _labels(tmp_path) == {"toy": expected}


def test_seeds_are_one_series_and_settings_several(tmp_path):
    for name, seed, warm in (("d", 1, 0), ("c", 0, 0), ("b", 1, 8), ("a", 0, 8)):
        flags = {"num_warmstart_fedavg_rounds": warm, "base_random_seed": seed, "backend": name}
        written.run(tmp_path, name, "hypcluster", CLIENTS, seed=seed, flags=flags)
    assert _labels(tmp_path) == {
        "toy": [("HypCluster", ["c", "d"]), ("HypCluster, warm start 8", ["a", "b"])]
    }
    (comparison,) = comparisons.compare(runs.find([str(tmp_path)]))
    section = building.section_of_comparison(comparison, "anchor", [], [])
    assert "HypCluster, warm start 8: num_warmstart_fedavg_rounds=8" in section.body


def test_runs_that_are_not_scored_on_the_same_are_not_ranked(tmp_path):
    """Of other seeds rows may differ, and label scales; other data flags may not."""
    more = {"num_evaluation_examples": {"a": 7}}
    first = written.run(tmp_path, "one", "ditto", {"a": (0.5, 0.6)})
    seed = written.run(tmp_path, "seed", "ditto", {"a": (0.5, 0.6)}, seed=1, more=more)
    for path, high in ((first, 5), (seed, 6)):
        record = {"flags": {"max_clients": 4}, "data": {"label_range": [0, high]}}
        (path / "run.json").write_text(json.dumps(record))
    assert [c.warnings for c in comparisons.compare(runs.find([str(tmp_path)]))] == [[]]
    written.run(tmp_path, "rows", "local", {"a": (0.5, 0.6)}, flags={}, more=more)
    written.run(tmp_path, "two", "mocha", {"a": (0.5, 0.6)}, seed=2, flags={"max_clients": 5})
    inputs = runs.find([str(tmp_path)])
    with refused(finding="max_clients of one and two (4 and 5)"):
        comparisons.compare(inputs)
    (compared,) = comparisons.compare(inputs, anyway=True)
    assert [line.partition("same: ")[2] for line in compared.warnings] == [
        "max_clients of one and two (4 and 5)",
        "num_evaluation_examples of one and rows, of 1 of 1 clients: a (5 and 7)",
    ]


def test_data_of_runs_from_python_are_known_as_of_trainers(tmp_path):
    """Options of their task name a data set, and tell others apart."""

    def of_python(name, seed=0, **options):
        flags = {"data": {"setting": "cross_silo", **options}}
        path = written.run(
            tmp_path / "py", name, "local", {"a": (0.5, 0.6)}, seed=seed, flags=flags
        )
        data = {"arguments": options, "options": {"feature_columns": None, **options}}
        record = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps({**record, "data": data}))

    trainers = {"setting": "cross_silo", "partition": "iid"}
    written.run(tmp_path / "py", "ours", "ditto", {"a": (0.5, 0.6)}, flags=trainers)
    of_python("same", partition="iid")
    of_python("dealt", partition="dirichlet:1")
    compared = comparisons.compare(runs.find([str(tmp_path)]))
    assert [(c.dataset, len(c.series)) for c in compared] == [
        ("toy (silos)", 2), ("toy (silos, dirichlet:1)", 1)
    ]  # fmt: skip
    of_python("fewer", partition="iid", feature_columns=["x"])
    with refused(finding="feature_columns of fewer and same (x and None)"):
        comparisons.compare(runs.find([str(tmp_path)]))


def test_runs_of_a_seed_that_start_from_other_models_are_several(tmp_path):
    def write(name, seed, start):
        flags = {"path_to_initial_model_weights": start, "base_random_seed": seed}
        written.run(tmp_path, name, "a", CLIENTS, seed=seed, flags=flags)

    write("one", 0, "fedavg_0")
    write("two", 1, "fedavg_1")
    assert [names for _, names in _labels(tmp_path)["toy"]] == [["one", "two"]]
    write("three", 1, "longer_1")
    assert [names for _, names in _labels(tmp_path)["toy"]] == [["one"], ["two"], ["three"]]


def test_algorithms_have_the_order_of_the_paper(tmp_path):
    for name in ("zebra", "mocha", "hypcluster", "local", "fedavg+finetuning"):
        written.run(tmp_path, name.replace("+", "_"), name, CLIENTS)
    labels = [label for label, _ in _labels(tmp_path)["toy"]]
    assert labels == ["Local training", "FedAvg + FT", "HypCluster", "Mocha", "zebra"]


@pytest.mark.parametrize(
    ("name", "rows", "content", "expected"),
    [
        ("candidates", "round,split,client_id,candidate\n10,test,a,0\n", "candidate", "value"),
        ("candidates", f"{_CURVE}10,test,a,0,inf\n10,test,b,0,1\n", "inf", "a finite number"),
        ("candidates", f"{_CURVE}1,test,a,0,1\n1,test,a,0,1\n", "two rows", "one"),
        ("rounds", "round,cluster_1_share\n1,x\n", "'x'", "a number"),
        ("clusters", "round,split,cluster_id,group,num_clients\n1,test,0.5,a,1\n", "0.5", "whole"),
    ],
)  # fmt: skip
def test_tables_that_no_run_wrote(tmp_path, name, rows, content, expected):
    path = written.run(tmp_path, "one", "ditto", CLIENTS, flags={})
    (path / f"{name}.csv").write_text(rows)
    (run,) = runs.find([str(tmp_path)]).runs
    with refused(f"{name}.csv", content, expected):
        run.table(name)


def test_a_users_data_are_told_apart_by_file_and_setting():
    flags = {"setting": "cross_silo", "data_files": {"shops.csv": "1:ab"}}
    assert runs.dataset_named("table", flags) == "table (shops.csv, silos)"
    devices = {**flags, "setting": "cross_device", "use_synthetic_data": True, "data_files": None}
    assert runs.dataset_named("table", devices) == "table (synthetic, devices)"
    assert runs.dataset_named("school", {**flags, "setting": None}) == "school"
