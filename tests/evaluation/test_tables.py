import dataclasses

import numpy as np
import pytest

from motley_tff.core import paired
from motley_tff.evaluation import client_scores, evaluate, tables
from tests import toy


def _rows(*arguments):
    """Returns `{table: rows}`, which can be read more than once."""
    return {table: list(rows) for table, rows in tables.rows(*arguments).items()}


# Three clients at the baseline and after one epoch: on validation data the epoch is better for the
# first two and on average; of the test clients one gains, one is hurt, one stays.
VALID = [[0.5, 0.75], [0.5, 0.625], [0.5, 0.25]]
TEST = [[0.25, 0.75], [0.875, 0.5], [0.5, 0.5]]
LOSS = [[2.0, 1.0], [1.0, 3.0], [4.0, 4.0]]
CLUSTERS = np.array([0, 1, 1])
GROUPS = ("x", "x", "y")


def _scores(ids, values, **more):
    by_name = {"accuracy": np.float32(values), "loss": np.float32(LOSS)}
    sizes = np.array([10, 20, 30]), np.array([1, 2, 3])
    return client_scores.ClientScores(tuple(ids), by_name, *sizes, **more)


def _task(task=None):
    task = task or toy.classifier_task(3)
    groups = dict(zip(task.test.ids, GROUPS, strict=False))
    return dataclasses.replace(task, facts={"client_groups": groups})


def _both(task, **more):
    """Returns scores of both splits, `more` on test clients."""
    return {
        "valid": _scores(task.valid.ids[:3], VALID),
        "test": _scores(task.test.ids[:3], TEST, **more),
    }


def _of_test(rows):
    mine = [dict(row) for row in rows if row["split"] == "test"]
    return [row for row in mine if row.pop("split")]


def test_rows_of_clients_by_hand():
    task = dataclasses.replace(_task(), reference={"e0": 0.25, "e1": 0.5})
    report = _rows(task, ("0", "1"), _both(task, clusters=CLUSTERS), "global", True)
    first, second, third = _of_test(report["clients"])
    assert first == {
        "client_id": "toy:e0", "cluster_id": 1, "candidate": "1",
        "num_personalization_examples": 10, "num_evaluation_examples": 1, "metric": "accuracy",
        "higher_is_better": True, "baseline": 0.25, "personalized": 0.75, "delta": 0.5,
        "is_hurt": False, "reference": 0.25, "group": "x", "baseline_loss": 2.0,
        "personalized_loss": 1.0, "probability_hurt": None,
        **dict.fromkeys(paired.STATISTICS),  # These scores have none.
    }  # fmt: skip
    names = ("delta", "is_hurt", "personalized_loss", "group", "cluster_id")
    assert [second[name] for name in names] == [-0.375, True, 3, "x", 2]
    assert [third[name] for name in names] == [0, False, 4, "y", 2]
    assert third["reference"] is None
    assert [row["split"] for row in report["clients"]] == ["valid"] * 3 + ["test"] * 3
    valid, test = report["summary"]
    assert (valid["split"], test["split"], test["candidate"]) == ("valid", "test", "1")
    means = ("num_clients", "baseline_mean", "personalized_mean", "reference_mean")
    assert [test[name] for name in means] == pytest.approx([3, 1.625 / 3, 1.75 / 3, 0.375])
    assert test["pct_clients_hurt"] == pytest.approx(100 / 3) and valid["reference_mean"] is None
    assert not [name for name in test if name.startswith("ood")]


def test_who_is_unscored_and_whose_model_diverged():
    task = _task()
    scores = _both(task)
    values = np.float32([[0.25, -np.inf], [np.nan, np.nan], [-np.inf, -np.inf]])
    scores["test"].values["accuracy"][:] = values
    report = _rows(task, ("0", "1"), scores, "global", True)
    assert [row["is_hurt"] for row in _of_test(report["clients"])] == [True, None, False]
    (row,) = _of_test(report["summary"])
    counts = ("num_clients", "num_unscored", "num_diverged", "baseline_num_diverged")
    assert [row[name] for name in counts] == [3, 1, 2, 1]
    assert row["diverged_candidates"] == "0 1" and row["pct_clients_hurt"] == 50
    assert row["baseline_mean"] == 0.25 and np.isnan(row["personalized_mean"])


def test_curves_and_clusters_by_hand():
    task = _task()
    report = _rows(task, ("0", "1"), _both(task, clusters=CLUSTERS), "global", True)
    curve = [
        (row["client_id"], row["candidate"], row["value"], row["loss"])
        for row in _of_test(report["candidates"])
    ]
    assert curve == [
        ("toy:e0", "0", 0.25, 2), ("toy:e0", "1", 0.75, 1), ("toy:e1", "0", 0.875, 1),
        ("toy:e1", "1", 0.5, 3), ("toy:e2", "0", 0.5, 4), ("toy:e2", "1", 0.5, 4),
    ]  # fmt: skip
    assert not any("ood_value" in row for row in report["candidates"])
    members = [tuple(row.values()) for row in report["clusters"]]
    assert members == [
        ("test", 1, "x", 1), ("test", 1, "y", 0), ("test", 2, "x", 1), ("test", 2, "y", 1),
    ]  # fmt: skip


def test_clusters_without_known_groups():
    task = toy.classifier_task(3)
    report = _rows(task, ("0", "1"), _both(task, clusters=CLUSTERS), "global", True)
    members = [tuple(row.values()) for row in report["clusters"]]
    assert members == [("test", 1, None, 1), ("test", 2, None, 2)]
    assert {row["group"] for row in report["clients"]} == {None}
    partly = dataclasses.replace(task, facts={"client_groups": {task.test.ids[0]: "x"}})
    rows = _rows(partly, ("0", "1"), _both(partly), "global", True)["clients"]
    assert {row["group"] for row in rows} == {None}


def test_the_choice_is_made_on_validation_clients():
    task = _task()
    scores = _both(task)
    candidates = evaluate.choose(task, scores, "global", True)
    assert {split: chosen.tolist() for split, chosen in candidates.items()} == {
        "valid": [1, 1, 1], "test": [1, 1, 1]
    }  # fmt: skip
    one_refuses = _rows(
        task, ("0", "1"), scores, "global", True, lambda split, mine: np.array([True, False, True])
    )
    assert [row["candidate"] for row in _of_test(one_refuses["clients"])] == ["1", "0", "1"]
    assert one_refuses["summary"][1]["candidate"] == "per_client"
    assert one_refuses["summary"][1]["pct_clients_hurt"] == 0


def test_silos_are_reported_under_both_choices():
    task = _task(toy.classifier_silos((7, 12, 3)))
    scores = {**_both(task), "train": _scores(task.test.ids, TEST)}
    report = _rows(task, ("0", "1"), scores, "per_client", True)
    rows = _of_test(report["clients"])
    assert [row["candidate"] for row in rows] == ["1", "1", "0"]
    assert [row["candidate_global"] for row in rows] == ["1", "1", "1"]
    assert [row["candidate_per_client"] for row in rows] == ["1", "1", "0"]
    assert [row["personalized_per_client"] for row in rows] == [0.75, 0.5, 0.5]
    assert [bool(row["is_hurt_global"]) for row in rows] == [False, True, False]
    summary = report["summary"][1]
    assert (summary["candidate_global"], summary["candidate_per_client"]) == ("1", "per_client")
    assert summary["personalized_mean_global"] == pytest.approx(1.75 / 3)
    deviation = np.sqrt(((0.75 - 1.75 / 3) ** 2 + 2 * (0.5 - 1.75 / 3) ** 2) / 3)
    assert summary["personalized_std_per_client"] == pytest.approx(deviation)
    assert summary["pct_clients_hurt_global"] == pytest.approx(100 / 3)
    # Of training parts the curves alone.
    assert {row["split"] for row in report["candidates"]} == {"valid", "test", "train"}
    assert len(report["clients"]) == 6 and len(report["summary"]) == 2


def test_scores_of_examples_and_of_others_data():
    task = _task()
    examples = [(np.array([-1.0, 0.0, 1.0]), np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]]))]
    examples += [(np.array([1.0]), np.array([[0.4, 0.6]]))] * 2
    further = {"ood": {"accuracy": np.float32([[0.5, 0.25], [0.25, 0.125], [0.75, 0.75]])}}
    scores = _both(task, examples=examples, further=further)
    report = _rows(task, ("0", "1"), scores, "global", True)
    cells = [(r["client_id"], r["label"], r["baseline_score"], r["personalized_score"])
             for r in report["scores"]]  # fmt: skip
    assert cells == [
        ("toy:e0", 0, 0.1, 0.9), ("toy:e0", 0, 0.2, 0.8), ("toy:e0", 1, 0.3, 0.7),
        ("toy:e1", 1, 0.4, 0.6), ("toy:e2", 1, 0.4, 0.6),
    ]  # fmt: skip
    rows = _of_test(report["clients"])
    assert [(row["ood_baseline"], row["ood_personalized"]) for row in rows] == [
        (0.5, 0.25), (0.25, 0.125), (0.75, 0.75)
    ]  # fmt: skip
    assert [row["ood_value"] for row in _of_test(report["candidates"])][:3] == [0.5, 0.25, 0.25]
    assert report["summary"][1]["ood_baseline_mean"] == pytest.approx(0.5)
    assert report["summary"][1]["ood_personalized_mean"] == pytest.approx(1.125 / 3)
