"""Figures of a scores.csv: densities by client, ROC curves, averages, and of classes."""

import re

import numpy as np
import pytest
import sklearn.metrics

from launch.report import building, figures, score_figures, style
from motley_tff.files import csv_files
from motley_tff.metrics import roc_auc
from motley_tff.tables import client_tables, columns
from tests.launch.report import written as runs


def _write(path, rows):
    """Writes examples of a run from their clients, labels and scores."""
    keys = dict.fromkeys(("run_id", "dataset", "algorithm", "class"), "x")
    keys |= {"base_random_seed": 0, "round": 1, "split": "test"}
    csv_files.write(path, columns.names("scores"), [keys | row for row in rows])


def _write_scores(path, *rounds):
    """Writes test examples from each round's `{client: {label: scores}}`, both models' alike."""
    rows = [
        {"round": number, "client_id": client, "label": label, "baseline_score": score,
         "personalized_score": score}
        for number, scores_of in enumerate(rounds, 1) for client, labels in scores_of.items()
        for label, scores in labels.items() for score in scores
    ]  # fmt: skip
    _write(path, rows)


def test_figures(tmp_path):
    rng, shifts = np.random.default_rng(0), {"a": 0.0, "b": 20.0, "c": 40.0}
    classes = {
        name: {0: rng.normal(shift, 9, 300), 1: rng.normal(shift + 9, 9, 300)}
        for name, shift in shifts.items()
    }
    _write_scores(tmp_path / "scores.csv", classes)
    with style.settings():
        drawn = {d.name: d for d in score_figures.draw(tmp_path / "scores.csv")}
    assert set(drawn) == {"densities", "roc_curves", "averages"}
    ids, labels = np.repeat(list(classes), 600), np.tile(np.repeat([0, 1], 300), 3)
    scores = np.concatenate([values for own in classes.values() for values in own.values()])
    (ax,) = drawn["roc_curves"].figure.axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    for name, which in {"pooled": ids != "", "b": ids == "b"}.items():
        x, y = lines[name].get_data()
        expected = roc_auc.roc_auc(labels[which], scores[which])
        assert sklearn.metrics.auc(x, y) == pytest.approx(expected, abs=1e-4)
        assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    for ax in drawn["densities"].figure.axes:
        assert len(ax.get_lines()) >= 3
        x, y = ax.get_lines()[1].get_data()
        assert np.sum(y) * (x[1] - x[0]) == pytest.approx(1, abs=0.05)
    bars = [bar.get_width() for bar in drawn["averages"].figure.axes[0].patches]
    auc = roc_auc.summarize(ids, labels, scores)
    assert bars == pytest.approx([auc.pooled, *[auc.mean_over_clients] * 3], abs=1e-6)
    assert drawn["averages"].numbers == [
        {"model": "baseline", "negatives": "differ", "positives": "differ",
         "clients of one class": 0, "average to trust": "none"}
    ]  # fmt: skip


def test_the_round_is_the_one_that_the_page_reports(tmp_path, monkeypatch):
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
    monkeypatch.setattr(figures, "KINDS", ())  # Of clients' values, which are not looked at.
    built = building.build([str(tmp_path / "1")], tmp_path / "report", "svg")
    text = built.page.read_text(encoding="utf-8")
    assert re.findall(r"<td>pooled</td><td>([^<]*)</td>", text) == ["1", "0"]
    with style.settings():  # A round without scores.
        assert len(list(score_figures.draw(tmp_path / "1" / "best" / "scores.csv", 9))) == 3


def test_figures_of_classes(tmp_path):
    rng = np.random.default_rng(1)
    shifts = {"one": (0, 0), "two": (0, 9), "three": (1, 1)}  # Scores of class two shift by client.
    rows = [
        {"client_id": f"c{c}", "class": name, "label": i % 2,
         "baseline_score": (score := i % 2 + shifts[name][c] + rng.normal()),
         "personalized_score": score}
        for name in shifts for c in range(2) for i in range(100)
    ]  # fmt: skip
    path = tmp_path / "scores.csv"
    _write(path, rows)
    with style.settings():
        drawn = {d.name: d for d in score_figures.draw(path)}
    assert list(drawn) == ["classes", "densities", "roc_curves", "averages"]
    gaps = [abs(r["pooled"] - r["mean over clients"]) for r in drawn["classes"].numbers]
    assert max(gaps) == gaps[1]
    assert drawn["densities"].numbers[0]["class, against the rest"] == "two"
    (ax,) = drawn["classes"].figure.axes
    two = client_tables.read_scores(path).query("`class` == 'two'")
    expected = roc_auc.roc_auc(two.label.to_numpy(), two.baseline_score.to_numpy())
    pooled = ax.collections[0].get_offsets()
    assert pooled[1][0] == pytest.approx(expected) and len(pooled) == 3


def test_scores_that_are_not_finite_are_said(tmp_path):
    rows = [
        {"client_id": f"c{c}", "class": "$x^$", "label": i % 2, "baseline_score": i + c,
         "personalized_score": None if c == 2 else i}
        for c in range(3) for i in range(10)
    ]  # fmt: skip
    rows += [{**row, "class": "y"} for row in rows]
    _write(tmp_path / "scores.csv", rows)
    with style.settings():
        drawn = {d.name: d for d in score_figures.draw(tmp_path / "scores.csv")}
        style.rendered(drawn["classes"].figure, "svg")  # No name begins a formula.
    (row,) = drawn["densities"].numbers
    # Of both models the same clients.
    assert (row["left out, not finite"], row["clients"]) == (20, 2)
