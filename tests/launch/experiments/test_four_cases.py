"""launch/experiments/roc_auc/four_cases.py: the article's cases beside what they are exactly."""

import csv
import math
import subprocess
import sys

import numpy as np
import pytest

from motley_tff.metrics import roc_auc
from motley_tff.tables import client_tables
from tests.trainers import programs

_SCRIPT = programs.ROOT / "launch" / "experiments" / "roc_auc" / "four_cases.py"
_CASES = {"1": (False, False), "2.1": (False, True), "2.2": (True, False), "2.3": (True, True)}


def _run(*command, status=0):
    result = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True, text=True, env=programs.environment(), timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == status, (result.stdout, result.stderr)
    return result


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roc_auc") / "out"
    return folder, _run(_SCRIPT, "--seeds=40", f"--output_dir={folder}").stdout


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
    for case, how in _CASES.items():
        scores = rng.normal(-16, 20, 400_000), rng.normal(16, 10, 400_000)
        dealt = (
            np.sort(of) if is_sorted else of for of, is_sorted in zip(scores, how, strict=True)
        )
        quarters = zip(*(np.split(of, 4) for of in dealt), strict=True)
        devices = [roc_auc.roc_auc(labels, np.concatenate(of)) for of in quarters]
        assert exact[case][2:] == pytest.approx(devices, abs=4e-3)


def test_means_are_within_their_error(written, exact):
    folder, printed = written
    with open(folder / "roc_auc_cases.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 40
    for case in _CASES:
        own = [float(row["mean_over_clients"]) for row in rows if row["case"] == case]
        assert abs(np.mean(own) - exact[case][1]) < 4 * np.std(own, ddof=1) / np.sqrt(40) + 5e-5
        assert f"{np.mean(own):.4f} ± {np.std(own, ddof=1):.4f}" in printed
    says = [line.split("say")[1].split()[0] for line in printed.splitlines() if "say" in line]
    assert says == ["any", "weighted_by_positives", "weighted_by_negatives", "none"]
    assert "standard errors off" not in printed


def test_a_mean_that_is_off_ends_with_1(tmp_path):
    code = (
        "from launch.experiments.roc_auc import four_cases as script\n"
        "script.exact = lambda case: [0.5] * 6\n"
        "script.commandline.run_main(script.main)\n"
    )
    printed = _run("-c", code, "--seeds=5", f"--output_dir={tmp_path}", status=1).stdout
    assert "means are more than" in printed


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


def test_bad_flags(tmp_path):
    assert "--seeds=1: expected" in _run(_SCRIPT, "--seeds=1", status=2).stderr
    for name in ("", "/proc/x", __file__):
        error = _run(_SCRIPT, "--seeds=2", f"--output_dir={name}", status=2).stderr
        assert error.count("\n") == 1 and f"--output_dir={name}: " in error
