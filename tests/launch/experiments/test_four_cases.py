"""launch/experiments/roc_auc/four_cases.py: the article's cases beside what they are exactly."""

import math

import numpy as np
import pytest

from motley_tff.metrics import roc_auc
from motley_tff.tables import client_tables
from tests.launch import commands

_CASES = {"1": (False, False), "2.1": (False, True), "2.2": (True, False), "2.3": (True, True)}


@pytest.fixture(scope="module")
def four_cases():
    with commands.opened("launch.experiments.roc_auc.four_cases") as run:
        yield run


@pytest.fixture(scope="module")
def written(four_cases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("roc_auc") / "out"
    status, printed = four_cases("--seeds=20", f"--output_dir={folder}")
    assert status == 0
    return folder, printed


@pytest.fixture(scope="module")
def exact(written):
    """{case: [pooled, mean, each of four devices]}, as printed."""
    lines = [line.split()[1:] for line in written[1].splitlines() if "exact" in line.split()]
    return {case: list(map(float, line)) for case, line in zip(_CASES, lines, strict=True)}


def test_exact_values(exact):
    pooled = 0.5 * math.erfc(-32 / math.sqrt(500) / math.sqrt(2))
    assert round(pooled, 4) == 0.9238
    assert [values[0] for values in exact.values()] == [0.9238] * 4
    assert [values[1] for values in exact.values()] == [0.9238, 0.9238, 0.9238, 0.9854]
    rng, labels = np.random.default_rng(0), np.repeat([0, 1], 100_000)
    for case, are_sorted in _CASES.items():
        scores = rng.normal(-16, 20, 400_000), rng.normal(16, 10, 400_000)
        dealt = (
            np.sort(part) if is_sorted else part
            for part, is_sorted in zip(scores, are_sorted, strict=True)
        )
        quarters = zip(*(np.split(part, 4) for part in dealt), strict=True)
        devices = [roc_auc.roc_auc(labels, np.concatenate(part)) for part in quarters]
        assert exact[case][2:] == pytest.approx(devices, abs=4e-3)


def test_means_are_within_their_error(written, exact):
    folder, printed = written
    rows = commands.rows(folder / "roc_auc_cases.csv")
    assert len(rows) == 4 * 20
    for case in _CASES:
        own = [float(row["mean_over_clients"]) for row in rows if row["case"] == case]
        assert abs(np.mean(own) - exact[case][1]) < 4 * np.std(own, ddof=1) / np.sqrt(20) + 5e-5
        assert f"{np.mean(own):.4f} ± {np.std(own, ddof=1):.4f}" in printed
    says = [line.split("say")[1].split()[0] for line in printed.splitlines() if "say" in line]
    assert says == ["any", "weighted_by_positives", "weighted_by_negatives", "none"]
    assert "standard errors off" not in printed


def test_cases_deal_the_same_scores(written):
    tables = {c: client_tables.read_scores(written[0] / f"case_{c}" / "scores.csv") for c in _CASES}
    whole = np.sort(tables["1"]["baseline_score"])
    for case, table in tables.items():
        np.testing.assert_array_equal(np.sort(table["baseline_score"]), whole)
        assert table.groupby(["client_id", "label"]).size().tolist() == [500] * 8
        for label, is_sorted in enumerate(_CASES[case]):
            values = table["baseline_score"][table["label"] == label]
            assert values.is_monotonic_increasing == is_sorted
        files = {path.name for path in (written[0] / f"case_{case}").iterdir()} - {"scores.csv"}
        names = ("averages", "densities", "roc_curves")
        assert files == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
