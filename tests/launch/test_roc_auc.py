"""motley_roc_auc: the article's cases beside what they come to exactly, and their figures."""

import csv
import re
import subprocess
import sys

import numpy as np
import pytest
import sklearn.metrics

from motley_tff.files import csv_files
from motley_tff.metrics import roc_auc, roc_auc_cases
from motley_tff.report import building, score_figures, style
from motley_tff.tables import client_tables, columns
from tests.report import written as runs
from tests.trainers import programs


def _run(*flags, status=0):
    command = [sys.executable, "-m", "launch.roc_auc", *map(str, flags)]
    result = subprocess.run(
        command, capture_output=True, text=True, env=programs.environment(), timeout=60, check=False
    )
    assert result.returncode == status, (result.stdout, result.stderr)
    return result


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roc_auc")
    return folder / "out", _run("--seeds=40", f"--output_dir={folder / 'out'}").stdout


def test_means_are_within_their_error(written):
    folder, printed = written
    with open(folder / "roc_auc_cases.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 40
    for case in roc_auc_cases.CASES:
        own = [float(row["mean_over_clients"]) for row in rows if row["case"] == case]
        error = np.std(own, ddof=1) / np.sqrt(40)
        assert abs(np.mean(own) - roc_auc_cases.exact(case).mean) < 4 * error
        assert f"{np.mean(own):.4f} ± {np.std(own, ddof=1):.4f}" in printed
    for verdict in ("any", "weighted_by_positives", "weighted_by_negatives", "none (100%)"):
        assert verdict in printed
    assert "0.9238" in printed and "0.9854" in printed and "standard errors off" not in printed


def test_scores_are_as_drawn(written):
    table = client_tables.read_scores(written[0] / "case_2.1" / "scores.csv")
    drawn = roc_auc_cases.draw(np.random.default_rng(0))["2.1"]
    np.testing.assert_allclose(table["baseline_score"], drawn.scores, rtol=1e-6)
    assert list(table["client_id"]) == list(drawn.client_ids)


def test_figures(written):
    with style.settings():
        drawn = {d.name: d for d in score_figures.draw(written[0] / "case_2.3" / "scores.csv")}
    assert set(drawn) == {"densities", "roc_curves", "averages"}
    scores = roc_auc_cases.draw(np.random.default_rng(0))["2.3"]
    (ax,) = drawn["roc_curves"].figure.axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    for name in ("pooled", "device 4"):
        x, y = lines[name].get_data()
        of = np.ones(len(scores.labels), bool) if name == "pooled" else scores.client_ids == name
        expected = roc_auc.roc_auc(scores.labels[of], scores.scores[of])
        assert sklearn.metrics.auc(x, y) == pytest.approx(expected, abs=1e-4)
        assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    negatives, positives = drawn["densities"].figure.axes
    for ax in (negatives, positives):
        assert len(ax.get_lines()) >= 4
        x, y = ax.get_lines()[0].get_data()
        assert np.sum(y) * (x[1] - x[0]) == pytest.approx(1, abs=0.05)
    bars = [bar.get_width() for bar in drawn["averages"].figure.axes[0].patches]
    found = roc_auc.summarize(*scores)
    assert bars == pytest.approx([found.pooled, *[found.mean_over_clients] * 3], abs=1e-6)
    assert "tests find neither class alike: no average may be trusted" in drawn["averages"].caption


def _write_scores(path, *rounds):
    """Writes test examples from each round's `{client: {label: scores}}`, both models' alike."""
    keys = dict.fromkeys(("run_id", "dataset", "algorithm", "class"), "x")
    keys |= {"base_random_seed": 0, "split": "test"}
    rows = [
        {**keys, "round": number, "client_id": client, "label": label, "baseline_score": score,
         "personalized_score": score}
        for number, scores_of in enumerate(rounds, 1) for client, labels in scores_of.items()
        for label, scores in labels.items() for score in scores
    ]  # fmt: skip
    csv_files.write(path, columns.names("scores"), rows)


@pytest.mark.parametrize("alike, unlike", [("negatives", "positives"), ("positives", "negatives")])
def test_clients_of_one_class_are_a_reason_of_their_own(tmp_path, alike, unlike):
    like, label = np.arange(30.0), {"negatives": 0, "positives": 1}
    of = {"a": {label[alike]: like, label[unlike]: 20 + like},
          "b": {label[alike]: like, label[unlike]: 60 + like},
          "c": {label[unlike]: 90 + like}}  # fmt: skip
    _write_scores(tmp_path / "scores.csv", of)
    with style.settings():
        drawn = {d.name: d for d in score_figures.draw(tmp_path / "scores.csv")}
    words = f"{alike} look alike", f"{unlike} differ"
    assert all(word in drawn["densities"].caption for word in words)
    assert drawn["averages"].caption == (
        f"baseline: tests find the {alike} alike, but clients of one class are left out: no "
        "average may be trusted."
    )


def test_the_round_is_the_one_that_the_page_reports(tmp_path):
    clients = dict.fromkeys("ab", (0.5, 0.75))
    good = {client: {0: [0.0, 1.0, 2.0], 1: [3.0, 4.0, 5.0]} for client in "ab"}
    bad = {client: {1: [0.0, 1.0, 2.0], 0: [3.0, 4.0, 5.0]} for client in "ab"}
    for name, flags in (("best", {"reported_round": "best"}), ("last", {})):
        valid = {"v0": (0.5, 0.25)}
        worse = runs.run(tmp_path / "2", name, "ditto", clients, number=2, valid=valid)
        run = runs.run(tmp_path / "1", name, "ditto", clients, number=1, flags=flags)
        with open(run / "clients.csv", "a") as file:
            file.writelines((worse / "clients.csv").read_text().splitlines(keepends=True)[1:])
        _write_scores(run / "scores.csv", good, bad)
    built = building.build([str(tmp_path / "1")], tmp_path / "report", "svg")
    text = built.page.read_text(encoding="utf-8")
    found = re.findall(
        r"ROC curves of the global model; the area under the pooled one is (.)", text
    )
    assert found == ["1", "0"]
    assert len(re.findall("The global model(?:'|&#x27;|&#39;)s scores: among clients", text)) == 2
    with style.settings():  # A round without scores.
        assert len(list(score_figures.draw(tmp_path / "1" / "best" / "scores.csv", 9))) == 3


def test_figures_of_classes(tmp_path):
    rng = np.random.default_rng(1)
    keys = dict.fromkeys(("run_id", "dataset", "algorithm"), "x")
    keys |= {"base_random_seed": 0, "round": 1, "split": "test"}
    shifts = {"one": (0, 0), "two": (0, 9), "three": (1, 1)}  # Scores of class two shift by client.
    rows = [
        {**keys, "client_id": f"c{c}", "class": name, "label": i % 2,
         "baseline_score": (score := i % 2 + shifts[name][c] + rng.normal()),
         "personalized_score": score}
        for name in shifts for c in range(2) for i in range(100)
    ]  # fmt: skip
    path = tmp_path / "scores.csv"
    csv_files.write(path, columns.names("scores"), rows)
    with style.settings():
        drawn = {d.name: d for d in score_figures.draw(path)}
    assert list(drawn) == ["classes", "densities", "roc_curves", "averages"]
    assert "Class two has the largest gap: pooled" in drawn["classes"].caption
    assert drawn["densities"].caption.endswith("Class two against the rest.")
    (ax,) = drawn["classes"].figure.axes
    two = client_tables.read_scores(path).query("`class` == 'two'")
    expected = roc_auc.roc_auc(two.label.to_numpy(), two.baseline_score.to_numpy())
    pooled = ax.collections[0].get_offsets()
    assert pooled[1][0] == pytest.approx(expected) and len(pooled) == 3


def test_scores_that_are_not_finite_are_said(tmp_path):
    keys = dict.fromkeys(("run_id", "dataset", "algorithm"), "x")
    keys |= {"base_random_seed": 0, "round": 1, "split": "test", "class": "$x^$"}
    rows = [
        {**keys, "client_id": f"c{c}", "label": i % 2, "baseline_score": i + c,
         "personalized_score": None if c == 2 else i}
        for c in range(3) for i in range(10)
    ]  # fmt: skip
    rows += [{**row, "class": "y"} for row in rows]
    csv_files.write(tmp_path / "scores.csv", columns.names("scores"), rows)
    with style.settings():
        drawn = {d.name: d for d in score_figures.draw(tmp_path / "scores.csv")}
        style.rendered(drawn["classes"].figure, "svg")  # No name begins a formula.
    assert "Left out: 20 scores that are not finite." in drawn["averages"].caption
    # Of both models the same clients.
    assert drawn["densities"].caption.count("2 clients.") == 1


def test_bad_flags():
    assert "--seeds=1: expected" in _run("--seeds=1", status=2).stderr
    for name in ("", "/proc/x", __file__):
        error = _run("--seeds=2", f"--output_dir={name}", status=2).stderr
        assert error.count("\n") == 1 and f"--output_dir={name}: " in error
