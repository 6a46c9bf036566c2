"""motley_generative as a user runs it."""

import json
import subprocess
import sys

import numpy as np
import pytest

from launch.generative import sets as sets_lib, tables
from motley_tff.metrics.generative import client_features, scores
from tests.launch import commands, generated_runs
from tests.trainers import programs


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    clients = {
        "left": rng.normal(size=(30, 2)) - [2, 0],
        "right": rng.normal(size=(20, 2)) + [2, 0],
    }
    np.savez(folder / "clients.npz", **clients)
    np.savez(folder / "middle.npz", rng.normal(size=(40, 2)) * [2, 1])
    np.savez(folder / "wide.npz", np.ones((4, 3)))
    np.savez(folder / "=wide.npz", rng.normal(size=(9, 2)))
    return folder


def _flags(files, *generated):
    return [f"--clients={files / 'clients.npz'}", *(f"--generated={files / g}" for g in generated)]


def test_scores_and_ranks(tmp_path):
    """Clients of mean -2 and 2, variance 1; what is generated is the right one, and all."""
    left, right = np.array([[-3.0], [-1]]), np.array([[1.0], [3]])
    np.savez(tmp_path / "clients.npz", left=left, right=right)
    np.savez(tmp_path / "right.npz", right)
    np.savez(tmp_path / "all.npz", np.concatenate([left, right]))
    printed = generated_runs.score(
        *_flags(tmp_path, "right.npz", "all.npz"), "--num_neighbors=1",
        f"--output={tmp_path / 'table.csv'}",
    ).stdout  # fmt: skip
    of_right, of_all = commands.rows(tmp_path / "table.csv")
    assert (of_right["generated"], of_all["generated"]) == ("right", "all")
    assert tuple(of_right) == (*scores.COLUMNS, "source", "file")
    assert of_right["features"] == "as given" and of_right["file"] == str(tmp_path / "right.npz")
    # Squared differences of means, and of deviations, which are sqrt(2) and of all sqrt(20 / 3).
    apart = 4 + (np.sqrt(20 / 3) - np.sqrt(2)) ** 2
    for name, right, every in (
        ("fid_all", apart, 0), ("fid_all_rank", 2, 1), ("fid_avg", (16 + 0) / 2, apart),
        ("coverage_all", 3 / 4, 1), ("coverage_all_rank", 2, 1), ("num_examples", 2, 4),
    ):  # fmt: skip
        cells = [float(row[name]) for row in (of_right, of_all)]
        assert cells == pytest.approx([right, every], abs=1e-6), name
    assert f"{apart:.5g} (2)       8 (2)" in printed and "kid 0 of 1, kid_biased 0 of 1" in printed


def test_classes_are_those_of_the_examples_that_are_scored(capsys):
    """A hundred examples of class 0, then as many of class 1."""
    clients = client_features.from_arrays({"a": np.arange(4.0)[:, None]})
    features, classes = np.arange(200.0)[:, None], np.eye(2)[np.repeat([0, 1], 100)]
    pictures = {
        "mine": sets_lib.Generated(features, "file", predicted=classes),
        "other": sets_lib.Generated(features, "file"),
    }
    options = sets_lib.SetOptions(num_examples=10, num_neighbors=0)
    group = {name: sets_lib._drawn(options, name, own) for name, own in pictures.items()}
    kept = group["mine"].features[:, 0].astype(int)
    assert len(kept) == 10 and 0 < (kept < 100).sum() < 10
    columns, rows, notes = tables.scored(options, sets_lib.Sets("as given", clients, group))
    assert not any("clients' own" in note for note in notes)
    sets = sets_lib.Sets("as given", clients, group, np.eye(2)[[0, 0, 0, 1]])
    own = "the clients' own pictures have a label entropy of 0.562 of 0.693 nats, smallest class"
    assert f"{own} share 25%" in tables.scored(options, sets).notes
    assert "label_entropy" in columns and "label_entropy" not in rows[1]
    share = (kept < 100).mean()
    assert rows[0]["smallest_class_share"] == pytest.approx(min(share, 1 - share))
    tables.show(rows, [])
    said = capsys.readouterr().out
    assert "classes of mine: label entropy " in said and " of 0.693 nats, smallest share " in said
    assert "classes of other" not in said


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return generated_runs.write(tmp_path_factory.mktemp("runs"))


def test_checkpoints_of_runs(runs, tmp_path):
    output = tmp_path / "table.csv"
    flags = [f"--run={runs / 'one'}", f"--run={runs / 'two'}", "--features=pca:2"]
    printed = generated_runs.score(
        *flags, "--resamples=3", "--num_neighbors=2", f"--output={output}"
    ).stdout
    rows = commands.rows(output)
    assert [row["generated"] for row in rows[:3]] == ["one round 0", "one round 2", "one round 10"]
    assert [(row["source"], row["series"], row["parameter"]) for row in rows[3:]] == [
        ("checkpoint", "two", n) for n in ("0", "2", "10")
    ]
    assert rows[2]["file"] == str(runs / "one" / "generated" / "round_00010.npz")
    assert all(float(row["fid_avg_std"]) > 0 for row in rows)
    assert all(float(row["coverage_all_std"]) >= 0 for row in rows)
    assert "note: sets have 40 to 50 examples" in printed and " ± " in printed
    flags += ["--num_examples=30"]
    printed = generated_runs.score(*flags, "--num_neighbors=0", f"--output={output}").stdout
    rows = commands.rows(output)
    assert [row["num_examples"] for row in rows] == ["30"] * 6
    assert "sets have" not in printed and "fid_all_std" not in rows[0]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--run={}", "--features=pca:2"], ": found no generated/round_*.npz"),
        (["--run={}/one"], "--run: found neither, expected --features or --inception_weights"),
        (["--run={}/one", "--features=pca:2", "--num_examples=41"],
         "--num_examples=41: expected at most the 40 that one round 0 has"),
        (["--run={}/one", "--run={}/one/", "--features=pca:2"], "/one: found this path twice"),
        (["--run={}/one", "--generated={}/one round 0.npy", "--features=pca:2"],
         "one round 0.npy: found the name of a checkpoint of --run=one"),
        (["--run={}/one", "--run={}/none", "--features=pca:2"], "none/generated/clients.npz"),
        (["--run={}/one", "--run={}/other", "--features=pca:2"],
         "/other/generated/clients.npz: found pictures of other clients"),
        (["--run={}/one", "--features={}/two"],
         "/one: found a run with --dataset_name=mnist"),
        (["--clients={}/link.npz", "--generated={}/one/generated/round_00000.npz",
          "--features={}/two"],
         "/one: found a run with --dataset_name=mnist"),
    ],
)  # fmt: skip
def test_bad_runs_are_one_line(tmp_path, flags, words):
    runs = generated_runs.write(tmp_path)
    pictures = np.zeros((9, 4, 4), np.uint8)
    for name in ("other", "none"):
        (runs / name / "generated").mkdir(parents=True)
        np.savez(runs / name / "generated" / "round_00001.npz", images=pictures)
    np.savez(runs / "other" / "generated" / "clients.npz", a=pictures)
    (runs / "link.npz").symlink_to(runs / "one" / "generated" / "clients.npz")
    for name, dataset in (("one", "mnist"), ("two", "emnist")):
        record = {"flags": {"dataset_name": dataset, "generator": "ddpm"}}
        (runs / name / "run.json").write_text(json.dumps(record))
    assert words in generated_runs.score(*(flag.format(runs) for flag in flags), status=2).stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--clients: found nothing, expected --clients=FILE, or --run=DIR"),
        (["--clients={}/clients.npz"], "--generated: found nothing"),
        (["--clients={}/none.npz", "--generated={}/middle.npz"], "none.npz cannot be read"),
        (["--generated={}/middle.npz", "--generated={}/middle.npz"], "found this path twice"),
        (["--generated={}/middle.npz", "--features={}"], "expected pca:K, or the directory of a"),
        (["--generated={}/wide.npz", "--features=pca:2", "--inception_weights=x"], "--features: "),
        (["--generated={}/middle.npz", "--classifier={}"], "--classifier={}: expected the direct"),
        (["--generated={}/middle.npz", "--num_neighbors=40"], "middle: found 40 examples"),
        (["--generated={}/middle.npz", "--output=table.txt"], "ends in .csv, .md, .tex"),
    ],
)
def test_bad_input_is_one_line(files, flags, words):
    before = sorted(files.iterdir())
    arguments = [flag.format(files) for flag in flags]
    if not any(flag.startswith("--clients") for flag in arguments) and arguments:
        arguments.append(f"--clients={files / 'clients.npz'}")
    result = generated_runs.score(*arguments, status=2)
    assert result.stderr.count("\n") == 1
    assert words.format(files) in result.stderr
    assert result.stdout == ""
    assert sorted(files.iterdir()) == before


def test_features_need_no_tensorflow():
    code = (
        "import sys; from motley_tff.metrics.generative import scores, client_features; "
        "assert not {'tensorflow', 'matplotlib', 'pandas', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env=programs.environment(), check=True)


@pytest.mark.parametrize(("flag", "is_moved"), [("--theorem", True), ("--fnord", False)])
def test_a_flag_of_the_papers_script_is_told_where_it_went(flag, is_moved):
    command = [sys.executable, "-m", "launch.generative.command", flag]
    done = subprocess.run(command, env=programs.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert ("generative/sets.py --help" in done.stderr) == is_moved
