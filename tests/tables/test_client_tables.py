"""Reading tables of clients: ours, LEAF's, anybody's, and whatever may be wrong with them."""

import numpy as np
import pytest

from motley_tff.files import csv_files
from motley_tff.tables import client_tables, columns
from tests.errors import refused

ROW = {
    "run_id": "r", "dataset": "d", "algorithm": "a", "base_random_seed": 0, "round": 3,
    "split": "test", "num_personalization_examples": 4, "num_evaluation_examples": 5,
    "metric": "accuracy", "higher_is_better": True, "baseline": 0.5, "personalized": 0.75,
    "delta": 0.25, "is_hurt": 0,
}  # fmt: skip


def _ours(folder, *changes):
    path = folder / "clients.csv"
    rows = [{**ROW, "client_id": f"d:{i}", **change} for i, change in enumerate(changes)]
    names = columns.names("clients")
    csv_files.write(path, names, rows, optional=names)
    return path


_NAMES = {"client": "user", "baseline": "G", "personalized": "P"}


def _text(folder, text, name="foreign.csv"):
    path = folder / name
    path.write_bytes(text.encode())
    return path


def _check_refused(path, place="", problem=None, expected="", advice="", **more):
    with refused(f"{path} {place}".rstrip(), problem, expected, advice):
        client_tables.read(path, **more)


def test_ours(tmp_path):
    third = float(np.float32(1 / 3))
    path = _ours(
        tmp_path, {"baseline": third, "cluster_id": 2}, {"round": 4, "personalized": np.nan}, {}
    )
    table = client_tables.read(path)
    assert table["baseline"].tolist() == [third, 0.5, 0.5]
    first, second = client_tables.evaluations(table)
    assert (first.keys["run_id"], first.keys["round"], first.keys["split"]) == ("r", 3, "test")
    assert first.values.client_ids.tolist() == ["d:0", "d:2"] and first.metric == "accuracy"
    assert first.values.higher_is_better and first.is_personalized
    assert first.values.num_evaluation_examples.tolist() == [5, 5]
    assert first.values.clusters is None and first.values.groups is None
    assert second.values.is_hurt.tolist() == [True]
    assert client_tables.choose(table, "last", None)["round"].tolist() == [4]
    assert client_tables.choose(table, 3, ["test"])["client_id"].tolist() == ["d:0", "d:2"]
    assert client_tables.choose(table, "all", ["valid"]).empty
    assert len(client_tables.choose(table, "all", None)) == 3


def test_ours_with_the_index_that_pandas_writes(tmp_path):
    client_tables.read(_ours(tmp_path, {}, {})).to_csv(tmp_path / "x.csv")
    text = (tmp_path / "x.csv").read_text().replace("True", "1")
    table = client_tables.read(_text(tmp_path, text))
    assert table["client_id"].tolist() == ["d:0", "d:1"]


def test_ours_is_told_by_its_columns_whatever_is_said_of_foreign_ones(tmp_path):
    head = "client_id,round,split,metric,higher_is_better,baseline,personalized"
    path = _text(tmp_path, f"{head}\na,1,test,loss,0,2,1\n")
    for names in (None, {"client": "client_id", "baseline": "personalized"}):
        table = client_tables.read(path, names)
        assert (table["baseline"].tolist(), table["metric"].tolist()) == ([2], ["loss"])


def test_evaluations_stand_in_the_file_s_order_and_lack_no_rows(tmp_path):
    changes = ({"round": 9}, {"round": 4}, {"round": 4, "base_random_seed": None})
    evaluations = client_tables.evaluations(client_tables.read(_ours(tmp_path, *changes)))
    assert [each.keys["round"] for each in evaluations] == [9, 4, 4]
    assert evaluations[2].keys["base_random_seed"] in ("", None)


def test_clusters_and_groups(tmp_path):
    _ours(tmp_path, {"cluster_id": 2}, {"cluster_id": 1})
    (evaluation,) = client_tables.evaluations(client_tables.read(tmp_path / "clients.csv"))
    assert evaluation.values.clusters.tolist() == [2, 1]
    names = {"client": "user", "baseline": "acc", "group": "language"}
    both, some = (
        client_tables.read(
            _text(tmp_path, f"user,acc,language\na,1,en\nb,0,{of_b}\n"), names, None, True
        )
        for of_b in ("es", "")
    )
    assert client_tables.evaluations(both)[0].values.groups.tolist() == ["en", "es"]
    assert client_tables.evaluations(some)[0].values.groups is None


def test_leaf(tmp_path):
    # As LEAF writes it: a client that was not scored has empty cells; ids may look like numbers.
    path = _text(
        tmp_path,
        "client_id,round_number,hierarchy,num_samples,set,accuracy,loss\n"
        '007,0,"a,b",18,test,0.5,0.89\nf01,0,,2,test,1.0,0.1\nf02,0,,,test,,\n'
        "007,20,,18,test,0.625,0.7\n",
        "metrics_stat.csv",
    )
    first, last = client_tables.evaluations(client_tables.read(path))
    assert first.values.client_ids.tolist() == ["007", "f01"] and not first.is_personalized
    assert first.values.baseline.tolist() == [0.5, 1.0] and first.metric == "accuracy"
    assert first.values.num_evaluation_examples.tolist() == [18, 2]
    assert last.keys == {"run_id": tmp_path.name, "round": 20, "split": "test"}
    assert first.values.higher_is_better
    head = "client_id,round_number,num_samples,accuracy\n"
    for cells, *parts in (
        ("0,1,", "", "no rows", "a row per client"),
        ("0.5,1,1", "line 2, column 'round_number'", "0.5"),
        ("0,1,1.5", "line 2, column 'accuracy'", "1.5", "an accuracy"),
    ):
        _check_refused(_text(tmp_path, f"{head}a,{cells}\n"), *parts)


def test_a_table_of_a_run_is_named_after_its_directory_wherever_one_stands(tmp_path, monkeypatch):
    (tmp_path / "v1.2").mkdir()
    monkeypatch.chdir(tmp_path / "v1.2")
    text = "client_id,round_number,num_samples,accuracy,loss\na,0,5,0.5,1\n"
    for name, run in (("metrics_stat.csv", "v1.2"), ("mine.csv", "mine")):
        path = _text(tmp_path / "v1.2", text, name)
        for spelling in (path, path.name):
            assert client_tables.read(spelling)["run_id"].tolist() == [run]


def test_a_foreign_file(tmp_path):
    path = _text(tmp_path, "\ufeffuser,G,P,x\r\n=1+1,43.6,85.5,\r\n@b,50.9,78.2,text\r\n\r\n")
    table = client_tables.read(path, _NAMES, higher_is_better=True)
    (evaluation,) = client_tables.evaluations(table)
    assert evaluation.values.client_ids.tolist() == ["=1+1", "@b"] and evaluation.keys == {
        "run_id": "foreign"
    }
    assert evaluation.values.personalized.tolist() == [85.5, 78.2] and evaluation.metric == "value"
    assert evaluation.values.num_evaluation_examples is None
    _check_refused(path, problem="'value'", advice="higher_is_better", columns=_NAMES)
    other = _text(tmp_path, "G,P\n1,2\n", "other.csv")
    _check_refused(other, "", "G, P", "user", "columns", columns=_NAMES, higher_is_better=True)
    for wrong in ({"client": "user"}, {**_NAMES, "persnolized": "P"}):
        pairs = [f"{name}={header}" for name, header in wrong.items()]
        with refused("columns", pairs, "client="):
            client_tables.read(path, wrong, higher_is_better=True)


def test_missing_columns_are_named_with_those_found(tmp_path):
    path = _text(tmp_path, "client_id,round,baseline\na,1,0\n")
    missing = "split, metric, higher_is_better, personalized"
    _check_refused(path, "", "client_id, round, baseline", missing, "columns")


@pytest.mark.parametrize(
    ("text", "place", "problem", "expected"),
    [
        (b"", "", "no header", "a CSV"),
        (b"\n\n", "", "no header", "a CSV"),
        (b"c,b\n", "", "no rows", "a row per client"),
        (b"c,b\na,1\nb,1,2\n", "line 3", "3 cells", "2"),
        (b"c,b\na,1\n\nb,2\n", "line 3", "1 cells", "2"),
        (b'c,b\n"a,x",1\nb\n', "line 3", "1 cells", "2"),
        (b"c,b\na,0.5\nb,NaN\n", "line 3, column 'b'", "'NaN'", "a number"),
        (b"c,b\na,0.5\nb,good\n", "line 3, column 'b'", "'good'", "a number"),
        (b"c,b\na,0.5\nb,-inf\n", "line 3, column 'b'", "-inf", "finite"),
        (b"c,b\n,0.5\n", "line 2, column 'c'", "empty", "id"),
        (b"c,b\na,1\nb,1\na,2\n", "line 4", "client 'a'", "one"),
        (b"c,b,b\na,1,2\n", "", "'b'", "once"),
        (b'c,b\n"a,1\n', "", "end of data", "UTF-8"),
        (b"c,b\n\xff\xfe,1\n", "", "0xff", "UTF-8"),
        (b"c,b\na\0,1\n", "", "NUL", "UTF-8"),
        (b"c;b\na;1\n", "", "';'", "commas"),
        (b"c\tb\na\t1\n", "", "'\\t'", "commas"),
        (b"c,b,n\na,1,1.5\n", "line 2, column 'n'", "1.5", "a whole number"),
    ],
)
def test_bad_foreign_files(tmp_path, text, place, problem, expected):
    path, names = tmp_path / "foreign.csv", {"client": "c", "baseline": "b"}
    path.write_bytes(text)
    names |= {"examples": "n"} if b",n" in text else {}
    _check_refused(path, place, problem, expected, columns=names, higher_is_better=True)


def test_files_are_files(tmp_path):
    _check_refused(tmp_path, "cannot be read: Is a directory")


@pytest.mark.parametrize(
    ("change", "problem", "expected"),
    [
        ({"metric": "loss"}, "accuracy, loss", "one"),
        ({"higher_is_better": False}, "True, False", "one"),
        ({"higher_is_better": 2}, "2", "0 or 1"),
        ({"personalized": 1.01}, "1.01", "an accuracy"),
        ({"num_evaluation_examples": -1}, "-1", "a whole number"),
        ({"num_evaluation_examples": None}, "an empty cell", "a whole number"),
        ({"round": 1.5}, "1.5", "a whole number"),
        ({"round": 1e30}, "1e+30", "2^53"),
        ({"num_evaluation_examples": 1e17}, "1e+17", "a whole number"),
        ({"cluster_id": 1.5}, "1.5", "a whole number"),
        ({"baseline": "0,5"}, "'0,5'", "a number"),
    ],
)
def test_bad_files_of_ours(tmp_path, change, problem, expected):
    (column,) = change
    line = "" if expected == "one" else "line 3, "
    _check_refused(_ours(tmp_path, {}, change), f"{line}column '{column}'", problem, expected)


@pytest.mark.parametrize("problem", ["client 'd:0' (run_id r, dataset d", "round 3, split test)"])
def test_two_rows_of_a_client(tmp_path, problem):
    _check_refused(_ours(tmp_path, {}, {"client_id": "d:0"}), "line 3", problem, "one")


def test_the_largest_whole_numbers(tmp_path):
    path = _ours(tmp_path, {"num_evaluation_examples": 2**53, "round": 2**53}, {})
    assert client_tables.read(path)["num_evaluation_examples"].tolist() == [2**53, 5]
    path = _ours(tmp_path, {"num_evaluation_examples": 2**53 + 2})
    _check_refused(path, "line 2", expected="2^53")


def test_one_accuracy_among_foreign_columns_is_enough(tmp_path):
    path = _text(tmp_path, "user,test_accuracy,mine\na,1,0.5\n")
    for pair in (("test_accuracy", "mine"), ("mine", "test_accuracy")):
        table = client_tables.read(path, dict(zip(_NAMES, ("user", *pair), strict=True)))
        assert table["metric"].tolist() == ["accuracy"] and all(table["higher_is_better"])


_SHARES, _PERCENT = "accuracy", "accuracy (percent)"


@pytest.mark.parametrize(
    ("rows", "metric", "expected"),
    [
        ("a,0,0.5\nb,1,1", _SHARES, _SHARES),
        # As most values say, or the metric's name.
        ("a,43.6,85.5\nb,0,1\nc,50,100", _SHARES, _PERCENT),
        ("a,1.2,0.9\nb,3,0.5", _PERCENT, _PERCENT),
        ("a,0.436,85.5\nb,0.509,78.2", _PERCENT, _PERCENT),
        ("a,0.5,1", _PERCENT, _PERCENT),
    ],
)
def test_accuracies_are_shares_or_percent(tmp_path, rows, metric, expected):
    table = client_tables.read(_text(tmp_path, f"user,G,P\n{rows}\n"), _NAMES, metric)
    assert set(table["metric"]) == {expected}
    assert client_tables.is_percent(table) == (expected == _PERCENT)
    assert len(client_tables.choose(table, "last", ["test"])) == len(table)


@pytest.mark.parametrize(
    ("rows", "place", "problem", "expected"),
    [
        ("a,-0.5,0\nb,0,1", "line 2, column 'G'", "-0.5", "within [0, 1]"),
        ("a,0.5,0.5\nb,1.5,0.5", "line 3, column 'G'", "1.5", "within [0, 1]"),
        ("a,43.6,101\nb,50.9,78.2", "line 2, column 'P'", "101", "within [0, 100] in percent"),
        ("a,0.436,85.5\nb,0.509,78.2", "line 2, column 'G'", "0.436", "in percent, as most are"),
        ("a,1.2,0.9\nb,3,0.5", "line 2, column 'G'", "1.2", "within [0, 1]"),
        ("a,-43.6,85.5\nb,50.9,78.2", "line 2, column 'G'", "-43.6", "within [0, 100]"),
    ],
)
def test_accuracies_beyond_what_most_say(tmp_path, rows, place, problem, expected):
    path = _text(tmp_path, f"user,G,P\n{rows}\n")
    _check_refused(path, place, problem, expected, _PERCENT, columns=_NAMES, metric=_SHARES)


def test_beyond_percent_there_is_no_advice(tmp_path):
    path = _text(tmp_path, "user,G,P\na,101,1\n")
    with refused(f"{path} line 2", "101", "within [0, 100] in percent") as caught:
        client_tables.read(path, _NAMES, _PERCENT)
    assert caught.value.advice == ""


def test_find(tmp_path):
    for name in ("a1", "a2", "deep/b"):
        (tmp_path / name).mkdir(parents=True)
        _ours(tmp_path / name, {})
    a1, a2, b = (tmp_path / name / "clients.csv" for name in ("a1", "a2", "deep/b"))
    assert client_tables.find([tmp_path]) == [a1, a2, b]
    assert client_tables.find([tmp_path / "a2", a1, f"{tmp_path}/a*"]) == [a2, a1]
    (tmp_path / "a3").symlink_to(tmp_path / "a1")
    assert client_tables.find([tmp_path / "deep/../a1", f"{tmp_path}/a*", b]) == [
        tmp_path / "deep/../a1/clients.csv", a2, b
    ]  # fmt: skip
    with refused(f"{tmp_path}/c*", "nothing"):
        client_tables.find([tmp_path / "c*"])
    with refused(str(tmp_path), "scores.csv"):
        client_tables.find([tmp_path], "scores.csv")


def test_a_sweep_s_runs_are_found_once(tmp_path):
    for name in ("sweep", "sweep/runs/one", "sweep/runs/two", "unfinished/runs/one"):
        (tmp_path / name).mkdir(parents=True)
        if name != "unfinished":
            _ours(tmp_path / name, {})
    (tmp_path / "sweep/sweep.csv").touch()
    (tmp_path / "unfinished/sweep.csv").touch()
    assert client_tables.find([tmp_path]) == [tmp_path / "sweep/clients.csv"]
    # Without a table of its own there is nothing to count twice.
    assert client_tables.find([tmp_path / "unfinished"]) == [
        tmp_path / "unfinished/runs/one/clients.csv"
    ]


def test_scores(tmp_path):
    keys = {name: ROW[name] for name in columns.RUN}
    scores = {"label": 1, "baseline_score": -3.5, "personalized_score": 2}
    row = {**keys, "client_id": "d:0", "class": "a", **scores}
    path = tmp_path / "scores.csv"
    csv_files.write(path, columns.names("scores"), [row, {**row, "label": 0}])
    table = client_tables.read_scores(path)
    assert table["class"].tolist() == ["a", "a"]
    assert table["label"].tolist() == [1, 0] and table["baseline_score"].tolist() == [-3.5, -3.5]
    assert client_tables.is_scores(path) and not client_tables.is_scores(_ours(tmp_path, {}))
    assert client_tables.is_scores(_text(tmp_path, "label,baseline_score\n1,2\n"))
    csv_files.write(path, columns.names("scores"), [{**row, "label": 2}])
    with refused("line 2, column 'label'", "2", "0 or 1"):
        client_tables.read_scores(path)
    with refused("foreign.csv", "label, baseline_score", "run_id"):
        client_tables.read_scores(_text(tmp_path, "label,baseline_score\n1,2\n"))
