"""motley_generative as a user runs it."""

import csv
import subprocess
import sys

import numpy as np
import pytest

from motley_tff.metrics.generative import client_features, scores
from tests.trainers import programs


def _run(*arguments, status=0):
    command = [sys.executable, "-m", "launch.generative", *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, env=programs.environment(), timeout=60, check=False
    )
    assert result.returncode == status, (result.stdout, result.stderr)
    return result


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    clients = {
        "left": rng.normal(size=(30, 2)) - [2, 0],
        "right": rng.normal(size=(20, 2)) + [2, 0],
    }
    np.savez(folder / "clients.npz", **clients)
    np.savez(folder / "one_client.npz", rng.normal(size=(40, 2)) + [2, 0])
    np.savez(folder / "middle.npz", rng.normal(size=(40, 2)) * [2, 1])
    np.savez(folder / "wide.npz", np.ones((4, 3)))
    np.savez(folder / "=wide.npz", rng.normal(size=(9, 2)))
    return folder


def _flags(files, *generated):
    return [f"--clients={files / 'clients.npz'}", *(f"--generated={files / g}" for g in generated)]


def test_scores_and_ranks(files, tmp_path):
    sets = ("one_client.npz", "middle.npz")
    printed = _run(*_flags(files, *sets), f"--output={tmp_path / 'table.csv'}").stdout
    with open(tmp_path / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["generated"] for row in rows] == ["one_client", "middle"]
    assert tuple(rows[0]) == scores.COLUMNS
    clients = client_features.read_clients(files / "clients.npz")
    generated = {name: client_features.read_generated(files / name, 2) for name in sets}
    expected = scores.table(clients, generated, 5).rows
    for row, same in zip(rows, expected, strict=True):
        assert row["features"] == "as given"
        for column in set(rows[0]) - {"generated", "features"}:
            assert float(row[column]) == pytest.approx(same[column], rel=1e-8)
    # A set between two clients looks like all their data and like neither's.
    assert rows[1]["fid_all_rank"] == "1"
    for row in expected:
        assert f"{row['fid_avg']:.5g} ({row['fid_avg_rank']:g})" in printed
        assert f"{row['coverage_all']:.5g} ({row['coverage_all_rank']:g})" in printed
    assert "kid 0 of 1, kid_biased 0 of 1" in printed


def test_markdown_without_neighbours(files, tmp_path):
    output = tmp_path / "table.md"
    _run(*_flags(files, "middle.npz", "=wide.npz"), "--num_neighbors=0", f"--output={output}")
    text = output.read_text()
    for word in ("middle", "=wide", "fid_all", "kid_biased_avg_rank"):
        assert word in text
    assert "recall" not in text
    *table, note = filter(None, text.splitlines())
    assert all(line.startswith("|") for line in table)
    assert "fid of =wide is too high: fewer than 10 examples a feature, of 2" in note


def test_names_are_no_formulas(files, tmp_path):
    _run(*_flags(files, "=wide.npz"), f"--output={tmp_path / 'table.csv'}")
    assert (tmp_path / "table.csv").read_text().splitlines()[1].startswith("'=wide,")


def test_the_papers_experiment(tmp_path):
    printed = _run("--experiment=gaussian", f"--output={tmp_path / 'table.csv'}").stdout
    minima = dict(line[7:].split(": ") for line in printed.splitlines() if line[:7] == "lowest ")
    assert minima.pop("fid_avg") == "var_x=1"
    assert set(minima.values()) == {"var_x=2"}
    assert set(minima) > {"fid_all", "kid_all", "kid_avg"}
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 1 + 17 + 1


@pytest.mark.parametrize(
    ("flags", "number"),
    [("nearest", 6), ("scaled", 15), ("classes", 3), ("extremes --only_client=left", 3)],
)
def test_experiments_on_clients(files, tmp_path, flags, number):
    experiment, *more = flags.split()
    given = [*_flags(files), f"--experiment={experiment}", *more, "--num_kept=7"]
    printed = _run(*given, "--num_neighbors=1", f"--output={tmp_path / 'table.csv'}").stdout
    assert "lowest fid_avg: " in printed
    with open(tmp_path / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= number if experiment == "nearest" else len(rows) == number
    gaps = [float(row["kid_avg"]) - float(row["kid_all"]) for row in rows]
    assert gaps == pytest.approx([gaps[0]] * len(gaps), rel=1e-6)


def test_the_critics_distance(files, tmp_path):
    output = tmp_path / "table.csv"
    given = [*_flags(files, "middle.npz", "one_client.npz"), "--wasserstein=one_client"]
    printed = _run(*given, "--num_neighbors=0", f"--output={output}").stdout
    assert "w1 of one_client: all " in printed and "w1 of middle" not in printed
    with open(output, newline="") as file:
        middle, one = csv.DictReader(file)
    assert middle["w1_all"] == middle["w1_avg"] == ""
    # It is where the right client is, 20 of 50 examples, and 4 from the left one, 30.
    assert float(one["w1_avg"]) == pytest.approx(4 * 0.6, abs=0.4)
    assert float(one["w1_all"]) == pytest.approx(4 * 0.6, abs=0.4)


def test_theorem_1(files, tmp_path):
    output = tmp_path / "table.csv"
    printed = _run(*_flags(files, "middle.npz"), "--theorem", f"--output={output}").stdout
    assert "fid_avg_over_sum" in printed
    with open(output, newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["gap"]) == pytest.approx(float(row["gap_of_traces"]), rel=1e-6)
    assert 0 < float(row["fid_avg_over_sum"]) <= 1 + 1e-9


def test_clients_of_one_example_are_noted(files, tmp_path):
    arrays = dict(np.load(files / "clients.npz"))
    np.savez(tmp_path / "clients.npz", single=np.zeros((1, 2)), **arrays)
    flags = [f"--clients={tmp_path / 'clients.npz'}", f"--generated={files / 'middle.npz'}"]
    printed = _run(*flags, f"--output={tmp_path / 'table.csv'}").stdout
    assert "note: fid_avg and kid_avg are undefined: 1 client (single)" in printed
    with open(tmp_path / "table.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["kid_avg"] == row["fid_avg_rank"] == "" and row["kid_biased_avg"] and row["kid_all"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--clients is required; give --clients=FILE (or --experiment=gaussian)"),
        (["--clients={}/clients.npz"], "--generated is required"),
        (["--experiment=gaussian", "--clients={}/clients.npz"], "draws its own data"),
        (["--clients={}/none.npz", "--generated={}/middle.npz"], "none.npz cannot be read"),
        (["--generated={}/wide.npz"], "wide.npz: found 3 features, expected 2"),
        (["--generated={}/middle.npz", "--generated={}/middle.npz"], "is given twice"),
        (["--experiment=nearest", "--num_kept=20"], "client right has 20 examples, expected more"),
        (["--experiment=extremes", "--only_client=up"], "--only_client=up: expected one of left,"),
        (["--experiment=extremes"], "--only_client and --experiment=extremes belong together"),
        (["--generated={}/middle.npz", "--only_client=left"], "belong together; give both"),
        (["--generated={}/middle.npz", "--wasserstein=x"], "--wasserstein=x: no such set; found"),
        (
            ["--generated={}/middle.npz", "--features=pca:2"],
            "[left]: found an array [30, 2], expect",
        ),
        (["--generated={}/middle.npz", "--features=pca:x"], "with a whole number, such as pca:64"),
        (["--generated={}/middle.npz", "--features={}"], "expected pca:K, or the directory of a"),
        (["--generated={}/middle.npz", "--features=pca:2", "--inception_weights=x"], "give one"),
        (["--generated={}/middle.npz", "--num_neighbors=40"], "middle: found 40 examples"),
        (["--generated={}/middle.npz", "--output=table.txt"], "ends in .csv, .md, .tex"),
        (["--generated={}/middle.npz", "--output={}/no/table.md"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line(files, flags, words):
    before = sorted(files.iterdir())
    given = [flag.format(files) for flag in flags]
    if not any(flag.startswith(("--clients", "--experiment=gaussian")) for flag in given) and given:
        given.append(f"--clients={files / 'clients.npz'}")
    result = _run(*given, status=2)
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert result.stdout == ""
    assert sorted(files.iterdir()) == before


def test_features_need_no_tensorflow(files):
    code = (
        "import sys; from motley_tff.metrics.generative import scores, client_features, gaussian; "
        "assert not {'tensorflow', 'matplotlib', 'pandas', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env=programs.environment(), check=True)
