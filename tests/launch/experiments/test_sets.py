"""launch/experiments/generative/sets.py on a few examples."""

import numpy as np
import pytest

from tests.launch import commands


@pytest.fixture(scope="module")
def sets():
    with commands.opened("launch.experiments.generative.sets") as run:
        yield run


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    path, rng = tmp_path_factory.mktemp("clients") / "clients.npz", np.random.default_rng(0)
    np.savez(path, left=rng.normal(size=(30, 2)) - [2, 0], right=rng.normal(size=(20, 2)) + [2, 0])
    return path


def test_what_each_form_prefers_of_the_papers_normal_distributions(sets, tmp_path):
    printed = sets("--sets=gaussian", f"--output_dir={tmp_path}")[1]
    assert "fid: " in printed and "; all prefers 2, avg 1\n" in printed
    assert "kid: the two forms order 0 of 153 pairs of sets differently; all prefers 2" in printed
    assert len(commands.rows(tmp_path / "gaussian.csv")) == 17 + 1
    assert {path.name for path in tmp_path.iterdir()} == {
        "gaussian.csv", "gaussian.png", "gaussian.svg"
    }  # fmt: skip


def test_anchors_are_ranked_apart_and_the_gap_of_kid_is_a_constant(sets, clients, tmp_path):
    flags = ["--sets=nearest", "--num_anchors=3", "--num_kept=7", f"--clients={clients}"]
    _, printed = sets(*flags, f"--output_dir={tmp_path}")
    rows = commands.rows(tmp_path / "nearest.csv")
    series = {row["series"] for row in rows}
    assert len(series) == 3
    for name in series:
        assert sum(r["series"] == name and r["fid_all_rank"] == "1" for r in rows) == 1
    gaps = [float(row["kid_avg"]) - float(row["kid_all"]) for row in rows]
    assert gaps == pytest.approx([gaps[0]] * len(gaps), rel=1e-6)
    size = len(rows) // 3
    assert f"kid: the two forms order 0 of {3 * size * (size - 1) // 2} pairs" in printed


def test_theorem_1(sets, clients, tmp_path):
    sets("--sets=classes", "--theorem", f"--clients={clients}", f"--output_dir={tmp_path}")
    for row in commands.rows(tmp_path / "classes_theorem.csv"):
        assert float(row["gap"]) == pytest.approx(float(row["gap_of_traces"]), rel=1e-6)
        assert 0 < float(row["fid_avg_over_sum"]) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--sets=nearest"], "--sets=nearest: expected gaussian without --clients"),
        (["--sets=gaussian", "--clients={}"], "--sets=gaussian: "),
        (["--sets=files", "--clients={}"], "--sets=files: expected files with --generated"),
        (["--sets=scaled", "--clients={}", "--num_kept=20"], "right has 20 examples, expected"),
        (["--sets=extremes", "--clients={}", "--only_client=up"], "expected one of left, right"),
        (["--sets=classes", "--clients={}", "--theorem", "--wasserstein=up"], "--wasserstein=up: "),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(sets, clients, flags, words):
    assert words in sets.refused(*(flag.format(clients) for flag in flags))
