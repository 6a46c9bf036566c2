"""What a sweep leaves, from made-up runs worked out by hand."""

import dataclasses
import json

import pytest

from launch.sweeps import grids, plans, results
from motley_tff.files import csv_files
from motley_tff.tables import columns
from tests.errors import refused

GRID = grids.Grid(
    "ditto", "school", "mtl_trainer", {"algorithm": "ditto"}, {},
    {"client_learning_rate": ("0.1", "0.2", "0.3")},
    paper={"source": "Table 7", "personalized_mean": [0.5, 0.25]},
)  # fmt: skip
PLAN = plans.Plan(GRID, 2)


def summary(valid, test, baseline=9.0, std=1.0):
    """Rows of `summary.csv` as text."""
    return [
        {
            "split": split, "round": "7", "candidate": "personal", "num_clients": "4",
            "baseline_mean": str(baseline), "baseline_std": "1", "personalized_mean": str(mean),
            "personalized_std": str(std), "pct_clients_hurt": "25", "largest_cluster_pct": "",
        }
        for split, mean in (("valid", valid), ("test", test))
    ]  # fmt: skip


def kept(*values, higher=False):
    """What `tasks/0000.json` says of (validation, test) means in the order of points, seeds."""
    runs = [plans.SweepRun(point, seed) for point in range(3) for seed in PLAN.seeds]
    return [
        results.of_run(run, summary(*value), "mse", higher)
        if value
        else results.failed_run(run, "no reason")
        for run, value in zip(runs, values, strict=True)
    ]


@pytest.fixture()
def directory(tmp_path):
    def write(rows, plan=PLAN):
        (tmp_path / "tasks").mkdir(exist_ok=True)
        task = plan.tasks[0]
        content = {"runs": rows, "status": "finished", "seconds": 12.0, "host": "here"}
        results.save(results.path_of(tmp_path, task), content)
        clients = [
            {"run_id": row["run_id"], "round": number, "split": split, "client_id": "a"}
            for row in rows
            for number in (6, 7)
            for split in ("train", "valid", "test")
        ]
        columns = ("run_id", "round", "split", "client_id")
        csv_files.write(tmp_path / "tasks" / "0000.clients.csv", columns, clients)
        return tmp_path

    return write


def table(path):
    return list(csv_files.read(path))


# Means over seeds on validation: 3, 2, 2.5. Test values would choose another point.
VALUES = ((1, 0.1), (5, 0.1), (2, 7), (2, 8), (2, 1), (3, 1))


def test_the_best_on_validation_is_reported_on_test(directory):
    folder = directory(kept(*VALUES))
    results.write(folder, PLAN)
    rows = table(folder / "sweep.csv")
    assert [row["run_id"] for row in rows[:3]] == ["p0000_s100", "p0000_s1100", "p0001_s100"]
    assert list(rows[0])[:5] == [
        "run_id", "algorithm", "dataset", "client_learning_rate", "base_random_seed",
    ]  # fmt: skip
    assert "seconds" not in rows[0]  # They differ from one machine to the next.
    best = {row["statistic"]: row for row in table(folder / "best.csv")}
    assert set(best) == set(columns.STATISTICS) - {"largest_cluster_pct"}
    mean = best["personalized_mean"]
    assert (mean["mean"], mean["std_over_seeds"]) == ("7.5", "0.5")
    assert (mean["paper_mean"], mean["paper_std_over_seeds"]) == ("0.5", "0.25")
    assert mean["client_learning_rate"] == "0.2" and mean["paper_source"] == "Table 7"
    assert best["pct_clients_hurt"]["mean"] == "25" and best["baseline_std"]["paper_mean"] == ""
    (task,) = table(folder / "tasks.csv")
    assert (task["task"], task["runs"], task["status"]) == ("0000", "6", "finished")
    assert (task["seconds"], task["host"], task["cpu_seconds"]) == ("12", "here", "")
    for name in ("sweep", "best", "tasks"):
        header = set(table(folder / f"{name}.csv")[0])
        assert header - set(GRID.grid) == set(columns.names(name)), name
    # Clients are those of the chosen setting's rounds.
    assert [tuple(row.values()) for row in table(folder / "clients.csv")] == [
        (run, "7", split, "a") for run in ("p0001_s100", "p0001_s1100")
        for split in ("valid", "test")
    ]  # fmt: skip
    # What the paper says is of no synthetic data.
    synthetic = dataclasses.replace(PLAN, use_synthetic_data=True)
    rows = results.best_rows(synthetic, kept(*VALUES), 0)
    assert all(row["paper_mean"] is None for row in rows)


def test_a_setting_with_a_failed_run_is_not_chosen(directory):
    folder = directory(kept(VALUES[0], VALUES[1], VALUES[2], None, VALUES[4], VALUES[5]))
    results.write(folder, PLAN)
    (failed,) = (row for row in table(folder / "sweep.csv") if row["status"] == "failed")
    assert (failed["run_id"], failed["reason"]) == ("p0001_s1100", "no reason")
    assert failed["test_personalized_mean"] == ""
    assert table(folder / "best.csv")[0]["client_learning_rate"] == "0.3"


def test_what_is_finished_and_what_is_not(directory):
    folder, (task,) = directory(kept(*VALUES)), PLAN.tasks
    path = results.path_of(folder, task)
    assert results.is_finished(folder, task)
    results.save(path, {"runs": [], "status": "failed"})
    assert not results.is_finished(folder, task)
    path.unlink()
    assert not results.is_finished(folder, task) and results.load(path) is None
    results.write(folder, PLAN)
    assert {row["reason"] for row in table(folder / "sweep.csv")} == {"did not run"}


def test_the_same_is_saved_as_the_same_bytes(tmp_path):
    results.save(tmp_path / "a", {"x": 1, "y": {"p": 1, "q": 2}})
    results.save(tmp_path / "b", {"y": {"q": 2, "p": 1}, "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        results.save(tmp_path / "c", {"x": float("nan")})
    assert not (tmp_path / "c").exists()


def test_nothing_to_choose_from(directory):
    folder = directory(kept(*VALUES))
    results.write(folder, PLAN)
    # One seed that always works is no setting that does.
    results.write(directory(kept(VALUES[0], None, VALUES[2], None, VALUES[4], None)), PLAN)
    assert table(folder / "best.csv") == [] and not (folder / "clients.csv").exists()


@pytest.mark.parametrize(("higher", "point"), [(True, 0), (False, 1)])
def test_direction_and_ties(higher, point):
    rows = [{**row, "test": 0} for row in kept(*VALUES, higher=higher)]
    assert results.best_point(PLAN, rows) == point
    equal = kept(*[(2, 1)] * 6)
    assert results.best_point(PLAN, equal) == 0


def test_chosen_by_the_baseline():
    grid = dataclasses.replace(GRID, choose_by="baseline")
    rows = kept(*VALUES)
    for row, value in zip(rows, (3, 3, 4, 4, 1, 1), strict=True):
        row["valid_baseline_mean"] = str(value)
    assert results.best_point(plans.Plan(grid, 2), rows) == 2
    of_nothing = dataclasses.replace(grid, choose_by="nothing")
    assert results.best_point(plans.Plan(of_nothing, 2), rows) is None


def test_chosen_by_another_metric(directory):
    """Its means, of which higher is better, choose the last point; the reported ones the second."""
    runs = [plans.SweepRun(point, seed) for point in range(3) for seed in PLAN.seeds]
    rows = []
    for run, value, f1 in zip(runs, VALUES, (1, 1, 2, 2, 3, 3), strict=True):
        table_rows = [
            {**row, "baseline_f1_mean": "0", "personalized_f1_mean": str(f1)}
            for row in summary(*value)
        ]
        rows.append(results.of_run(run, table_rows, "mse", False, (True, "f1")))
    assert results.best_point(PLAN, rows) == 2
    folder = directory(rows)
    results.write(folder, PLAN)
    (first, *_) = table(folder / "sweep.csv")
    assert (first["tuning_metric"], first["valid_personalized_tuning_mean"]) == ("f1", "1")
    assert set(first) - set(GRID.grid) == set(columns.names("sweep", tuning=[""]))


def test_a_mean_that_is_not_finite_is_a_failure():
    row = results.of_run(plans.SweepRun(0, 100), summary("", 3), "mse", False)
    assert row["status"] == "failed" and "not finite" in row["reason"]


def test_runs_of_different_data_are_refused(directory):
    batches = {"train_batch_size": ("1", "2")}
    plan = plans.Plan(dataclasses.replace(GRID, grid=batches), 1)
    folder = directory([])
    for task, data in zip(plan.tasks, "xy", strict=True):
        content = {"runs": [], "status": "finished", "data_files": {"school.mat": data}}
        results.save(results.path_of(folder, task), content)
    with refused(str(folder), "school.mat", "the same data files"):
        results.write(folder, plan)
    # The order of files is nothing.
    for task, files in zip(plan.tasks, ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}), strict=True):
        results.save(results.path_of(folder, task), {**content, "data_files": files})
    results.write(folder, plan)


def test_a_grids_words_are_no_formulas(directory):
    values = {"client_learning_rate": ("0.1", "-1")}
    grid = dataclasses.replace(GRID, algorithm="=1+1", grid=values, paper={"source": "@x"})
    plan = plans.Plan(grid, 1)
    first, second = sorted(plan.tasks[0].runs)
    rows = [
        results.of_run(first, summary(-1, -2), "score", True),
        results.failed_run(second, "--lambda: no"),
    ]
    folder = directory(rows, plan)
    results.write(folder, plan)
    first, second = table(folder / "sweep.csv")
    assert (first["algorithm"], second["reason"]) == ("'=1+1", "'--lambda: no")
    assert (first["test_personalized_mean"], second["client_learning_rate"]) == ("-2", "-1")
    assert {row["paper_source"] for row in table(folder / "best.csv")} == {"'@x"}


def test_clients_without_their_run(directory):
    folder = directory(kept(*VALUES))
    (folder / "tasks" / "0000.clients.csv").write_text("round,split\n7,test\n")
    with refused("0000.clients.csv", "no run_id, round or split"):
        results.write(folder, PLAN)


_RUN = {"run_id": "p0000_s100", "status": "failed"}


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"runs": [], "status": 1},
        {"runs": [], "status": "finished", "host": {}},
        {"runs": [], "status": "finished", "seconds": 10**400},
        {"runs": ["x"], "status": "finished"},
        {"runs": [{**_RUN, "reason": 1}], "status": "finished"},
        {"runs": [{**_RUN, "status": "finished"}], "status": "finished"},
        {"runs": [{**_RUN, "seen": "x"}], "status": "finished"},
        {"runs": [{**kept(*VALUES)[0], "test_baseline_mean": "0.u"}], "status": "finished"},
        {
            "runs": [{n: v for n, v in kept(*VALUES)[0].items() if n != "metric"}],
            "status": "finished",
        },
    ],
)
def test_a_file_that_was_changed_is_named(directory, content):
    folder = directory(kept(*VALUES))
    path = folder / "tasks" / "0000.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    for use in (lambda: results.write(folder, PLAN), lambda: results.load(path)):
        with refused("0000.json", advice="remove it"):
            use()
    path.write_text("[" * 100_000, encoding="utf-8")
    with refused("0000.json", advice="remove it"):
        results.load(path)
