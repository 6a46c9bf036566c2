"""Reading tables of clients: ours, LEAF's, anybody's, and whatever may be wrong with them."""

import subprocess
import sys

import numpy as np
import pytest

from motley_tff.core.errors import UserError
from motley_tff.files import csv_files
from motley_tff.tables import client_tables, columns

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


def _text(folder, text, name="foreign.csv"):
    path = folder / name
    path.write_bytes(text.encode())
    return path


def _message(path, **more):
    with pytest.raises(UserError) as error:
        client_tables.read(path, **more)
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    return str(error.value)


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
    found = client_tables.evaluations(client_tables.read(_ours(tmp_path, *changes)))
    assert [each.keys["round"] for each in found] == [9, 4, 4]
    assert found[2].keys["base_random_seed"] in ("", None)


def test_groups_that_only_some_clients_have_are_none(tmp_path):
    path = _text(tmp_path, "user,acc,language\na,1,en\nb,0,\n")
    names = {"client": "user", "baseline": "acc", "group": "language"}
    table = client_tables.read(path, names, higher_is_better=True)
    assert client_tables.evaluations(table)[0].values.groups is None


def test_clusters_and_groups(tmp_path):
    _ours(tmp_path, {"cluster_id": 2}, {"cluster_id": 1})
    (found,) = client_tables.evaluations(client_tables.read(tmp_path / "clients.csv"))
    assert found.values.clusters.tolist() == [2, 1]
    path = _text(tmp_path, "user,acc,language\na,1,en\nb,0,es\n")
    names = {"client": "user", "baseline": "acc", "group": "language"}
    table = client_tables.read(path, names, higher_is_better=True)
    assert client_tables.evaluations(table)[0].values.groups.tolist() == ["en", "es"]


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
    assert "no rows; expected a row per client" in _message(_text(tmp_path, f"{head}a,0,1,\n"))
    assert "column 'round_number': found 0.5" in _message(_text(tmp_path, f"{head}a,0.5,1,1\n"))
    path = _text(tmp_path, "client_id,round_number,num_samples,accuracy\na,0,1,1.5\n")
    assert "line 2, column 'accuracy': found 1.5, expected an accuracy" in _message(path)


def test_a_table_of_a_run_is_named_after_its_directory_wherever_one_stands(tmp_path, monkeypatch):
    (tmp_path / "v1.2").mkdir()
    monkeypatch.chdir(tmp_path / "v1.2")
    text = "client_id,round_number,num_samples,accuracy,loss\na,0,5,0.5,1\n"
    for name, run in (("metrics_stat.csv", "v1.2"), ("mine.csv", "mine")):
        path = _text(tmp_path / "v1.2", text, name)
        for one in (path, path.name):
            assert client_tables.read(one)["run_id"].tolist() == [run]


def test_a_foreign_file(tmp_path):
    path = _text(tmp_path, "\ufeffuser,G,P,x\r\n=1+1,43.6,85.5,\r\n@b,50.9,78.2,text\r\n\r\n")
    names = {"client": "user", "baseline": "G", "personalized": "P"}
    table = client_tables.read(path, names, higher_is_better=True)
    (found,) = client_tables.evaluations(table)
    assert found.values.client_ids.tolist() == ["=1+1", "@b"] and found.keys == {
        "run_id": "foreign"
    }
    assert found.values.personalized.tolist() == [85.5, 78.2] and found.metric == "value"
    assert found.values.num_evaluation_examples is None
    assert "higher values are better" in _message(path, columns=names)
    assert "lacks columns user" in _message(
        _text(tmp_path, "G,P\n1,2\n", "other.csv"), columns=names, higher_is_better=True
    )
    for wrong in ({"client": "user"}, {**names, "persnolized": "P"}):
        with pytest.raises(UserError, match="expected client="):
            client_tables.read(path, wrong, higher_is_better=True)


def test_missing_columns_are_named_with_those_found(tmp_path):
    message = _message(_text(tmp_path, "client_id,round,baseline\na,1,0\n"))
    assert "lacks columns split, metric, higher_is_better, personalized" in message
    assert "found client_id, round, baseline" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("c,b\n", "no rows"),
        ("c,b\na,1\nb,1,2\n", "line 3: found 3 cells, expected 2"),
        ("c,b\na,1\n\nb,2\n", "line 3: found 1 cells, expected 2"),
        ('c,b\n"a,x",1\nb\n', "line 3: found 1 cells, expected 2"),
        ("c,b\na,0.5\nb,NaN\n", "line 3, column 'b': found 'NaN', expected a number"),
        ("c,b\na,0.5\nb,good\n", "line 3, column 'b': found 'good', expected a number"),
        ("c,b\na,0.5\nb,-inf\n", "line 3, column 'b': found -inf, expected a finite number"),
        ("c,b\n,0.5\n", "line 2, column 'c': found an empty cell, expected a client's id"),
        ("c,b\na,1\nb,1\na,2\n", "line 4: client 'a' has a second row"),
        ("c,b,b\na,1,2\n", "column 'b' stands twice"),
        ('c,b\n"a,1\n', "not a UTF-8 CSV"),
        ("c,b\na\0,1\n", "NUL bytes"),
        ("c;b\na;1\n", "found cells separated by ';', expected commas"),
        ("c\tb\na\t1\n", "found cells separated by '\\t', expected commas"),
    ],
)
def test_bad_foreign_files(tmp_path, text, words):
    path = _text(tmp_path, text)
    assert words in _message(path, columns={"client": "c", "baseline": "b"}, higher_is_better=True)


def test_foreign_counts_are_whole_and_files_are_files(tmp_path):
    path = _text(tmp_path, "c,b,n\na,1,1.5\n")
    names = {"client": "c", "baseline": "b", "examples": "n"}
    message = _message(path, columns=names, higher_is_better=True)
    assert "column 'n': found 1.5, expected a whole number" in message
    assert "cannot be read: Is a directory" in _message(tmp_path)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"c,b\n\xff\xfe,1\n")
    names = {"client": "c", "baseline": "b"}
    assert "not a UTF-8 CSV" in _message(path, columns=names, higher_is_better=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": "loss"}, "mixes metrics: column 'metric' holds accuracy, loss"),
        ({"higher_is_better": False}, "mixes metrics: column 'higher_is_better' holds True, False"),
        ({"higher_is_better": 2}, "column 'higher_is_better': found 2, expected 0 or 1"),
        ({"personalized": 1.01}, "line 3, column 'personalized': found 1.01, expected an accuracy"),
        ({"num_evaluation_examples": -1}, "found -1, expected a whole number"),
        ({"num_evaluation_examples": None}, "found an empty cell, expected a whole number"),
        ({"round": 1.5}, "line 3, column 'round': found 1.5, expected a whole number"),
        ({"round": 1e30}, "found 1e+30, expected a whole number, 0 or more (to 2^53)"),
        ({"num_evaluation_examples": 1e17}, "found 1e+17, expected a whole number"),
        ({"cluster_id": 1.5}, "column 'cluster_id': found 1.5, expected a whole number"),
        ({"baseline": "0,5"}, "line 3, column 'baseline': found '0,5', expected a number"),
        ({"client_id": "d:0"}, "line 3: client 'd:0' has a second row (run_id r, dataset d"),
        ({"client_id": "d:0"}, "round 3, split test)"),
    ],
)
def test_bad_files_of_ours(tmp_path, change, words):
    assert words in _message(_ours(tmp_path, {}, change))


def test_the_largest_whole_numbers(tmp_path):
    path = _ours(tmp_path, {"num_evaluation_examples": 2**53, "round": 2**53}, {})
    assert client_tables.read(path)["num_evaluation_examples"].tolist() == [2**53, 5]
    path = _ours(tmp_path, {"num_evaluation_examples": 2**53 + 2})
    assert "expected a whole number" in _message(path)


def test_one_accuracy_among_foreign_columns_is_enough(tmp_path):
    path = _text(tmp_path, "user,test_accuracy,mine\na,1,0.5\n")
    names = {"client": "user", "baseline": "test_accuracy", "personalized": "mine"}
    assert client_tables.read(path, names)["metric"].tolist() == ["accuracy"]
    names = {"client": "user", "baseline": "mine", "personalized": "test_accuracy"}
    assert client_tables.read(path, names)["higher_is_better"].tolist() == [True]


def test_accuracies_from_0_to_1_of_a_table_without_rounds(tmp_path):
    path = _text(tmp_path, "c,b\na,0\nb,1\n")
    names = {"client": "c", "baseline": "b"}
    table = client_tables.read(path, names, "accuracy")
    assert len(client_tables.choose(table, "last", ["test"])) == 2
    path = _text(tmp_path, "c,b\na,-0.5\n")
    assert "expected an accuracy within" in _message(path, columns=names, metric="accuracy")


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ("a,43.6,85.5\nb,0,1\nc,50,100", "accuracy (percent)"),
        ("a,0,0.5\nb,1,1", "accuracy"),
        (
            "a,0.5,0.5\nb,1.5,0.5",
            "line 3, column 'G': found 1.5, expected an accuracy within [0, 1]",
        ),
        ("a,43.6,101\nb,50.9,78.2", "found 101, expected an accuracy within [0, 100] in percent"),
        (
            "a,0.436,85.5\nb,0.509,78.2",
            "line 2, column 'G': found 0.436, expected an accuracy within [0, 100] in percent, as "
            "most are; if all are in percent, call the metric 'accuracy (percent)', of",
        ),
        ("a,1.2,0.9\nb,3,0.5", "found 1.2, expected an accuracy within [0, 1]; if all are in perc"),
        ("a,-43.6,85.5\nb,50.9,78.2", "found -43.6"),
    ],
)
def test_accuracies_are_shares_or_percent_as_their_values_say(tmp_path, rows, found):
    path = _text(tmp_path, f"user,G,P\n{rows}\n")
    names = {"client": "user", "baseline": "G", "personalized": "P"}
    if found.startswith("accuracy"):
        assert set(client_tables.read(path, names, "accuracy")["metric"]) == {found}
    else:
        assert found in _message(path, columns=names, metric="accuracy")


@pytest.mark.parametrize("rows", ["a,1.2,0.9\nb,3,0.5", "a,0.436,85.5\nb,0.509,78.2", "a,0.5,1"])
def test_accuracies_are_in_percent_where_the_metric_says_so(tmp_path, rows):
    path, names = _text(tmp_path, f"c,G,P\n{rows}\n"), {"client": "c", "baseline": "G"}
    metric = "accuracy (percent)"
    table = client_tables.read(path, {**names, "personalized": "P"}, metric)
    assert set(table["metric"]) == {metric} and client_tables.is_percent(table)
    path = _text(tmp_path, "c,G\na,101\n")
    message = _message(path, columns=names, metric=metric)
    assert message.endswith("found 101, expected an accuracy within [0, 100] in percent")


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
    with pytest.raises(UserError, match="is not there"):
        client_tables.find([tmp_path / "c*"])
    with pytest.raises(UserError, match="holds no scores.csv"):
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
    with pytest.raises(UserError, match="line 2, column 'label': found 2, expected 0 or 1"):
        client_tables.read_scores(path)
    with pytest.raises(UserError, match="lacks columns run_id"):
        client_tables.read_scores(_text(tmp_path, "label,baseline_score\n1,2\n"))


def test_no_tensorflow():
    code = (
        "import sys; from motley_tff.tables import client_tables; from motley_tff import metrics; "
        "sys.exit('tensorflow' in sys.modules or 'pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
