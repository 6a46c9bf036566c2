"""motley_generative as a user runs it."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from launch.generative import printed, scoring, sets as sets_lib
from motley_tff.core.errors import UserError
from motley_tff.metrics.generative import client_features, scores, wasserstein
from tests.launch import generated_runs
from tests.trainers import programs


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
    printed = generated_runs.score(
        *_flags(files, *sets), f"--output={tmp_path / 'table.csv'}"
    ).stdout
    with open(tmp_path / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["generated"] for row in rows] == ["one_client", "middle"]
    assert tuple(rows[0]) == (*scores.COLUMNS, "source", "file")
    clients = client_features.read_clients(files / "clients.npz")
    generated = {name: client_features.read_generated(files / name, 2) for name in sets}
    expected = scores.table(clients, generated, 5).rows
    for row, same in zip(rows, expected, strict=True):
        assert row["features"] == "as given"
        for column in set(rows[0]) - {"generated", "features", "source", "file"}:
            assert float(row[column]) == pytest.approx(same[column], rel=1e-8)
    # A set between two clients looks like all their data and like neither's.
    assert rows[1]["fid_all_rank"] == "1"
    for row in expected:
        assert f"{row['fid_avg']:.5g} ({row['fid_avg_rank']:g})" in printed
        assert f"{row['coverage_all']:.5g} ({row['coverage_all_rank']:g})" in printed
    assert "kid 0 of 1, kid_biased 0 of 1" in printed


def test_markdown_without_neighbours(files, tmp_path):
    output = tmp_path / "table.md"
    generated_runs.score(
        *_flags(files, "middle.npz", "=wide.npz"), "--num_neighbors=0", f"--output={output}"
    )
    text = output.read_text()
    for word in ("middle", "=wide", "fid_all", "kid_biased_avg_rank"):
        assert word in text
    assert "recall" not in text
    *table, note, of_sizes = filter(None, text.splitlines())
    assert all(line.startswith("|") for line in table)
    assert of_sizes.startswith("sets have 9 to 40 examples")
    assert "fid of =wide is too high: fewer than 10 examples a feature, of 2" in note


def test_names_are_no_formulas(files, tmp_path):
    generated_runs.score(*_flags(files, "=wide.npz"), f"--output={tmp_path / 'table.csv'}")
    assert (tmp_path / "table.csv").read_text().splitlines()[1].startswith("'=wide,")


def test_the_papers_experiment(tmp_path):
    printed = generated_runs.score(
        "--experiment=gaussian", f"--output={tmp_path / 'table.csv'}"
    ).stdout
    best = [line.split() for line in printed.splitlines()[-4:]]
    assert best == [["best", "all", "avg"], ["fid", "2", "1"], ["kid", "2", "2"],
                    ["kid_biased", "2", "2"]]  # fmt: skip
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 1 + 17 + 1


@pytest.mark.parametrize(
    ("flags", "number"),
    [("nearest", 6), ("scaled", 15), ("classes", 3), ("extremes --only_client=left", 3)],
)
def test_experiments_on_clients(files, tmp_path, flags, number):
    experiment, *more = flags.split()
    given = [*_flags(files), f"--experiment={experiment}", *more, "--num_kept=7"]
    printed = generated_runs.score(
        *given, "--num_neighbors=1", f"--output={tmp_path / 'table.csv'}"
    ).stdout
    assert ("\nbest " in printed) == (experiment in ("nearest", "scaled"))
    with open(tmp_path / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["source"] for row in rows} == {experiment}
    kept = {row.get("num_kept") for row in rows}
    assert kept == ({"7"} if experiment in ("nearest", "scaled") else {None})
    assert ("K = 7 nearest neighbours" in printed) == (kept == {"7"})
    assert len(rows) >= number if experiment == "nearest" else len(rows) == number
    gaps = [float(row["kid_avg"]) - float(row["kid_all"]) for row in rows]
    assert gaps == pytest.approx([gaps[0]] * len(gaps), rel=1e-6)


def test_anchors_are_ranked_alone(files, tmp_path):
    given = [*_flags(files), "--experiment=nearest", "--num_anchors=3", "--num_kept=7"]
    printed = generated_runs.score(
        *given, "--num_neighbors=1", f"--output={tmp_path / 'table.csv'}"
    ).stdout
    with open(tmp_path / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    anchors = sorted({row["series"] for row in rows})
    assert len(anchors) == 3 and all(name.startswith("anchor ") for name in anchors)
    for anchor in anchors:
        own = [row for row in rows if row["series"] == anchor]
        assert sum(row["fid_all_rank"] == "1" for row in own) == 1
        assert [row["generated"] for row in own] == [f"nearest {row['parameter']}" for row in own]
    pairs = 3 * len(own) * (len(own) - 1) // 2
    assert "of 3 anchors' sets each alone:" in printed and f" of {pairs}, kid 0 of" in printed
    best = next(line for line in printed.splitlines() if line.startswith("kid  "))
    assert "avg smaller" in printed and best.endswith(" of 3")


def test_files_beside_several_anchors_are_scored_once(files, tmp_path):
    given = [*_flags(files, "middle.npz", "one_client.npz"), "--experiment=nearest"]
    given += ["--num_kept=7", "--num_neighbors=1", f"--output={tmp_path / 'table.csv'}"]
    found = {}
    for number in (1, 2):
        found[number] = generated_runs.score(*given, f"--num_anchors={number}").stdout
        with open(tmp_path / "table.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        own = [row for row in rows if row["source"] == "file"]
        assert [row["generated"] for row in own] == ["middle", "one_client"]
    # Of one anchor's sets the files' are two more, of several they rank alone.
    assert {row["fid_all_rank"] for row in own} == {"1", "2"}
    size = (len(rows) - 2) // 2
    assert f" of {(size + 2) * (size + 1) // 2}, kid 0 of" in found[1]
    assert f" of {size * (size - 1) + 1}, kid 0 of" in found[2]
    assert "differently, of 2 anchors' sets and of the files' each alone:" in found[2]
    best = next(line for line in found[2].splitlines() if line.startswith("kid  "))
    assert best.endswith(" of 2")


def _wanted(**values):
    empty = dict.fromkeys(sets_lib.Wanted._fields)
    return sets_lib.Wanted(**{
        **empty, "num_neighbors": 0, "resamples": 0, "base_random_seed": 0, **values
    })  # fmt: skip


def test_critics_are_of_each_anchor(monkeypatch, capsys):
    """A critic that returns a set's mean, and twice that."""
    monkeypatch.setattr(
        wasserstein,
        "forms",
        lambda clients, features, *rest: (features.mean(), 2 * features.mean()),
    )
    clients = client_features.from_arrays({"a": np.arange(4.0)[:, None]})
    groups = [
        {
            f"nearest {n}": sets_lib.Generated(np.arange(float(n))[:, None] + a, "nearest", f"{a}")
            for n in (3, 5)
        }
        for a in (10, 20)
    ]
    sets = sets_lib.Sets("as given", clients, groups)
    columns, rows, _ = scoring.scored(_wanted(wasserstein=["nearest 3"]), sets)
    assert {"w1_all", "w1_avg"} < set(columns)
    assert [(row.get("w1_all"), row.get("w1_avg")) for row in rows] == [
        (11, 22), (None, None), (21, 42), (None, None),
    ]  # fmt: skip
    printed.scores(rows, [], [2, 2])
    said = capsys.readouterr().out
    assert "w1 of 10: nearest 3: all 11 (1), avg 22 (1)\nw1 of 20: nearest 3: all 21 (1)" in said
    assert said.endswith("kid_biased 0 of 2\n")
    columns, rows, _ = scoring.scored(_wanted(wasserstein=["nearest 5", "nearest 3"]), sets)
    assert {"w1_all_rank", "w1_avg_rank"} < set(columns)
    assert [row["w1_avg_rank"] for row in rows] == [1, 2, 1, 2]
    printed.scores(rows, [], [2, 2])
    assert capsys.readouterr().out.endswith("kid_biased 0 of 2, w1 0 of 2\n")
    # Sets from files stand in a group of their own, where no set of the anchors' is.
    of_files = {n: sets_lib.Generated(np.arange(4.0)[:, None], "file") for n in ("x", "y")}
    beside = sets._replace(groups=[of_files, *groups])
    _, rows, _ = scoring.scored(_wanted(wasserstein=["x", "y"]), beside)
    printed.scores(rows, [], [2, 2, 2])
    assert capsys.readouterr().out.endswith("kid_biased 0 of 3, w1 0 of 1\n")
    with pytest.raises(UserError, match="x: no such set; found nearest 3, nearest 5$"):
        scoring.scored(_wanted(wasserstein=["x"]), sets)


def test_classes_are_those_of_the_examples_that_are_scored(capsys):
    """A hundred examples of class 0, then as many of class 1."""
    clients = client_features.from_arrays({"a": np.arange(4.0)[:, None]})
    features, classes = np.arange(200.0)[:, None], np.eye(2)[np.repeat([0, 1], 100)]
    of = sets_lib.Generated(features, "file", predicted=classes)
    made = sets_lib.Generated(features, "classes")
    wanted = _wanted(num_examples=10, wasserstein=[])
    group = sets_lib._drawn(wanted, {"given": of, "made": made})
    kept = group["given"].features[:, 0].astype(int)
    assert len(kept) == 10 and 0 < (kept < 100).sum() < 10
    columns, rows, notes = scoring.scored(wanted, sets_lib.Sets("as given", clients, [group]))
    assert not any("clients' own" in note for note in notes)
    sets = sets_lib.Sets("as given", clients, [group], np.eye(2)[[0, 0, 0, 1]])
    own = "the clients' own pictures have a label entropy of 0.562 of 0.693 nats, smallest class"
    assert f"{own} share 25%" in scoring.scored(wanted, sets).notes
    assert "label_entropy" in columns and "label_entropy" not in rows[1]
    share = (kept < 100).mean()
    assert rows[0]["smallest_class_share"] == pytest.approx(min(share, 1 - share))
    printed.scores(rows, [], [2])
    said = capsys.readouterr().out
    assert "classes of given: label entropy " in said and " of 0.693 nats, smallest share " in said
    assert "classes of made" not in said


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return generated_runs.write(tmp_path_factory.mktemp("runs"))


def test_checkpoints_of_runs(runs, tmp_path):
    output = tmp_path / "table.csv"
    given = [f"--run={runs / 'one'}", f"--run={runs / 'two'}", "--features=pca:2"]
    printed = generated_runs.score(
        *given, "--resamples=3", "--num_neighbors=2", f"--output={output}"
    ).stdout
    with open(output, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["generated"] for row in rows[:3]] == ["one round 0", "one round 2", "one round 10"]
    assert [(row["source"], row["series"], row["parameter"]) for row in rows[3:]] == [
        ("checkpoint", "two", n) for n in ("0", "2", "10")
    ]
    assert rows[2]["file"] == str(runs / "one" / "generated" / "round_00010.npz")
    assert all(float(row["fid_avg_std"]) > 0 for row in rows)
    assert all(float(row["coverage_all_std"]) >= 0 for row in rows)
    assert "note: sets have 40 to 50 examples" in printed and " ± " in printed
    given += ["--num_examples=30", "--experiment=extremes", "--only_client=b"]
    printed = generated_runs.score(*given, "--num_neighbors=0", f"--output={output}").stdout
    with open(output, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["num_examples"] for row in rows] == ["30"] * 9
    assert "sets have" not in printed and "fid_all_std" not in rows[0]


def test_experiments_have_as_many_of_every_set_as_wanted(files):
    real = client_features.read_clients(files / "clients.npz")
    wanted = _wanted(clients=str(files / "clients.npz"), generated=[], run=[], num_kept=7)

    def sizes(**values):
        (group,) = sets_lib.read(wanted._replace(num_anchors=1, **values)).groups
        return {name: len(of.features) for name, of in group.items()}

    assert sizes(experiment="classes") == {"left": 30, "right": 20, "left + right": 50}
    assert set(sizes(experiment="classes", num_examples=15).values()) == {15}
    extremes = sets_lib.read(
        wanted._replace(experiment="extremes", only_client="left", num_examples=20)
    ).groups[0]
    whole, narrow = (extremes[name].features for name in list(extremes)[1:])
    mean = real.features.mean(axis=0)
    np.testing.assert_allclose(narrow - mean, (whole - mean) * np.sqrt(0.5))
    assert len(whole) == 20 and set(map(tuple, whole)) < set(map(tuple, real.features))
    nearest = sizes(experiment="nearest", num_examples=15)
    assert all(name == f"nearest {size}" for name, size in nearest.items())
    with pytest.raises(UserError, match="^--num_examples=21: right has 20; give at most that$"):
        sizes(experiment="classes", num_examples=21)


def test_experiments_of_unlike_sizes_are_noted(files):
    wanted = _wanted(clients=str(files / "clients.npz"), generated=[], run=[], num_kept=7)
    wanted = wanted._replace(num_anchors=1, wasserstein=[])
    for experiment, sizes in (("classes", ["20 to 50"]), ("nearest", []), ("scaled", [])):
        of = wanted._replace(experiment=experiment)
        notes = scoring.scored(of, sets_lib.read(of)).notes
        found = [note for note in notes if note.startswith("sets have")]
        assert [note.split(" examples")[0] for note in found] == [f"sets have {s}" for s in sizes]


def test_bad_runs_are_one_line(runs, tmp_path):
    (other := tmp_path / "other" / "generated").mkdir(parents=True)
    bad = [
        ([f"--run={tmp_path}", "--features=pca:2"], "no generated/round_*.npz in it; give the"),
        ([f"--run={runs / 'one'}"], "say of what features are, such as --features=pca:64"),
        ([f"--run={runs / 'one'}", "--features=pca:2", "--num_examples=41"],
         "--num_examples=41: one round 0 has 40; give at most that"),
        ([f"--run={runs / 'one'}"] * 2 + ["--features=pca:2"], "is given twice"),
        ([f"--run={runs / 'one'}", f"--run={runs}/one/", "--features=pca:2"], "is given twice"),
        ([f"--run={runs / 'one'}", f"--generated={runs}/one round 0.npy", "--features=pca:2"],
         "one round 0.npy is named as a checkpoint of --run=one; give the file another name"),
    ]  # fmt: skip
    np.savez(other / "round_00001.npz", images=np.zeros((9, 4, 4), np.uint8))
    two = [f"--run={runs / 'one'}", f"--run={tmp_path / 'other'}", "--features=pca:2"]
    bad.append((two, "cannot be read: No such file or directory"))
    for flags, words in bad:
        result = generated_runs.score(*flags, status=2)
        assert result.stderr.count("\n") == 1 and words in result.stderr, result.stderr
    for name, flags in (
        ("one", {"dataset_name": "mnist", "generator": "ddpm"}),
        ("two", {"dataset_name": "emnist"}),
    ):
        (runs / name / "run.json").write_text(json.dumps({"flags": flags}))
    words = f"{runs / 'one'}: a run with --dataset_name=mnist, expected emnist as --features="
    of_clients = [f"--clients={runs / 'one/generated/clients.npz'}", "--experiment=classes"]
    link = tmp_path / "link.npz"
    link.symlink_to(runs / "one/generated/clients.npz")
    of_link = [f"--clients={link}", "--experiment=classes"]
    for flags in ([f"--run={runs / 'one'}"], of_clients, of_link):
        unlike = [*flags, f"--features={runs / 'two'}"]
        assert words in generated_runs.score(*unlike, status=2).stderr
    np.savez(other / "clients.npz", a=np.zeros((9, 4, 4), np.uint8))
    assert (
        "the runs had other clients; give --clients=FILE"
        in generated_runs.score(*two, status=2).stderr
    )


def test_the_critics_distance(files, tmp_path):
    output = tmp_path / "table.csv"
    given = [*_flags(files, "middle.npz", "one_client.npz"), "--wasserstein=one_client"]
    printed = generated_runs.score(*given, "--num_neighbors=0", f"--output={output}").stdout
    assert "w1 of one_client: all " in printed and "w1 of middle" not in printed
    with open(output, newline="") as file:
        middle, one = csv.DictReader(file)
    assert middle["w1_all"] == middle["w1_avg"] == ""
    # It is where the right client is, 20 of 50 examples, and 4 from the left one, 30.
    assert float(one["w1_avg"]) == pytest.approx(4 * 0.6, abs=0.4)
    assert float(one["w1_all"]) == pytest.approx(4 * 0.6, abs=0.4)


def test_every_set_of_extremes_can_be_named(files, monkeypatch):
    monkeypatch.setattr(wasserstein, "forms", lambda *of: (0.0, 1.0))
    wanted = _wanted(
        clients=str(files / "clients.npz"), generated=[], run=[], experiment="extremes",
        only_client="left",
    )  # fmt: skip
    sets = sets_lib.read(wanted)
    # As DEFINE_list reads the flag.
    named = wanted._replace(wasserstein=",".join(sets.groups[0]).split(","))
    assert [row["w1_avg"] for row in scoring.scored(named, sets).rows] == [1.0] * 3


def test_theorem_1(files, tmp_path):
    output = tmp_path / "table.csv"
    printed = generated_runs.score(
        *_flags(files, "middle.npz"), "--theorem", f"--output={output}"
    ).stdout
    assert printed.startswith("features: as given, 2 of them\n") and "fid_avg_over_sum" in printed
    with open(output, newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["features"], row["num_features"]) == ("as given", "2")
    assert float(row["gap"]) == pytest.approx(float(row["gap_of_traces"]), rel=1e-6)
    assert 0 < float(row["fid_avg_over_sum"]) <= 1 + 1e-9


def test_theorem_1_of_few_examples(tmp_path):
    """Covariances by n are defined of one example, too, and as far off; here all are one point."""
    np.savez(tmp_path / "clients.npz", a=np.zeros((30, 2)), b=np.zeros((1, 2)))
    np.savez(tmp_path / "made.npz", features=np.zeros((9, 2)))
    given = [f"--clients={tmp_path / 'clients.npz'}", f"--generated={tmp_path / 'made.npz'}"]
    table = tmp_path / "table.md"
    printed = generated_runs.score(*given, "--theorem", f"--output={table}").stdout
    for words in ("fid of made is too high: fewer than 10", "fid_avg is too high: 1 client (b) of"):
        assert f"note: {words}" in printed and words in table.read_text()
    assert re.search(r"fid_avg_over_sum +\| +1 \|", table.read_text())


def test_theorem_1_of_several_anchors(files, tmp_path):
    output = tmp_path / "table.csv"
    given = [*_flags(files), "--experiment=nearest", "--num_anchors=2", "--num_kept=7"]
    printed = generated_runs.score(*given, "--theorem", f"--output={output}").stdout
    with open(output, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["series"], row["generated"]) for row in rows}) == len(rows)
    assert len({row["series"] for row in rows}) == 2 and {row["num_kept"] for row in rows} == {"7"}
    assert f"{rows[0]['series']}: {rows[0]['generated']} " in printed and "source" not in rows[0]


def test_clients_of_one_example_are_noted(files, tmp_path):
    arrays = dict(np.load(files / "clients.npz"))
    np.savez(tmp_path / "clients.npz", single=np.zeros((1, 2)), **arrays)
    flags = [f"--clients={tmp_path / 'clients.npz'}", f"--generated={files / 'middle.npz'}"]
    printed = generated_runs.score(*flags, f"--output={tmp_path / 'table.csv'}").stdout
    assert "note: fid_avg and kid_avg are undefined: 1 client (single)" in printed
    with open(tmp_path / "table.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["kid_avg"] == row["fid_avg_rank"] == "" and row["kid_biased_avg"] and row["kid_all"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--clients is required; give --clients=FILE (or --run=DIR, or --experiment=gaussian)"),
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
        (["--generated={}/middle.npz", "--theorem", "--resamples=9"], "for which --resamples is"),
        (["--generated={}/middle.npz", "--theorem", "--classifier=x"], "for which --classifier is"),
        (
            ["--generated={}/middle.npz", "--classifier={}"],
            "--classifier={}: expected the directory",
        ),
        (["--experiment=classes", "--classifier={}"], "--classifier is for pictures of"),
        (["--generated={}/middle.npz", "--theorem", "--wasserstein=middle"], "for which --wass"),
        (["--generated={}/middle.npz", "--num_neighbors=40"], "middle: found 40 examples"),
        (["--generated={}/middle.npz", "--output=table.txt"], "ends in .csv, .md, .tex"),
        (["--generated={}/middle.npz", "--output={}/no/table.md"], "cannot be written"),
        (["--generated={}/middle.npz", "--output={}/clients.npz/x.md"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line(files, flags, words):
    before = sorted(files.iterdir())
    given = [flag.format(files) for flag in flags]
    if not any(flag.startswith(("--clients", "--experiment=gaussian")) for flag in given) and given:
        given.append(f"--clients={files / 'clients.npz'}")
    result = generated_runs.score(*given, status=2)
    assert result.stderr.count("\n") == 1
    assert words.format(files) in result.stderr
    assert result.stdout == ""
    assert sorted(files.iterdir()) == before


def test_features_need_no_tensorflow(files):
    code = (
        "import sys; from motley_tff.metrics.generative import scores, client_features, gaussian; "
        "assert not {'tensorflow', 'matplotlib', 'pandas', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env=programs.environment(), check=True)
