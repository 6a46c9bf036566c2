"""Sentiment140: its CSV, LEAF's JSON, and synthetic users of whom some are ironic."""

import pytest

import datasets
from datasets import sent140
from tests.datasets.readers import test_leaf_files as leaf
from tests.errors import refused

_CELLS = ["1", "Mon", "NO_QUERY", "u", "it is bad"]
_LABELS = "0 or 1, or the archive's 0, 2 or 4"
_NAME = "training.1600000.processed.noemoticon.csv"


def _csv(folder, rows):
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    (folder / _NAME).write_text("\n".join(lines), encoding="latin-1")
    return folder / _NAME


def _rows(polarity="4"):
    return [
        ("0" if i % 2 else polarity, str(i), "Mon", "NO_QUERY", f"u{i % 12}", f"caf\xe9 is so {w}")
        for i, w in enumerate(["good", "bad"] * 30)
    ]


def test_the_archives_columns(tmp_path):
    """Whoever is called null or none is a user."""
    rows = [*_rows(), ("2", "99", "Mon", "NO_QUERY", "u1", "neither")]
    names = {"u4": "null", "u5": "None"}
    rows = [tuple(names.get(cell, cell) for cell in row) for row in rows]
    path = _csv(tmp_path, rows)
    task = datasets.create("sent140", data_dir=str(tmp_path))
    assert task.dataset == "sent140" and task.facts["files"] == [str(path)]
    assert task.facts["texts"] == 60 and task.facts["neutral_texts_left_out"] == 1
    assert task.label_names == ("sad", "glad")
    # User u0 says nothing but "good", user u1 nothing but "bad".
    for clients, part in ((task.train, "train"), (task.test, "evaluation")):
        for client_id in clients.ids:
            was = {name: user for user, name in names.items()}.get(client_id, client_id)
            expected = 1 - int(was[1:]) % 2
            assert set(clients.fetch(client_id)[part]["label"]) == {expected}


@pytest.mark.parametrize(
    ("rows", "place", "problem"),
    [
        (_rows("3"), " line 1", "'3' as polarity"),
        ([*_rows(), ("4", "99", "Mon")], " line 61 of 61", "no text"),
        ([("4", "9", "Mon", "NO_QUERY", "u1", ""), *_rows()], " line 1 of 61", "no text"),
        ([*_rows(), ("0", "9", "Mon", "NO_QUERY", " ", "hm")], " line 61 of 61", "no user"),
        ([("polarity", "id", "date", "query", "user", "text"), *_rows()], " line 1", "'polarity'"),
        ([], "", "no rows"),
    ],
)
def test_other_columns(tmp_path, rows, place, problem):
    path = _csv(tmp_path, rows)
    with refused(f"{path}{place}", problem, "0, 2 or 4"):
        datasets.create("sent140", data_file=str(path))


@pytest.mark.parametrize(("labels", "neutral"), [((0, 2, 4), 36), ((0, 1), 0)])
def test_leafs_labels_are_0_and_1_or_the_archives(tmp_path, labels, neutral):
    """0, 2 and 4: neutral texts are left out and counted, as of the CSV."""
    said = [["1", "Mon", "NO_QUERY", "u", f"it is {label}"] for label in labels]
    users = {f"u{i}": (said * 3, [*labels] * 3) for i in range(12)}
    leaf.write(tmp_path / "sent140" / "all.json", users)
    task = datasets.create("sent140", data_dir=str(tmp_path))
    assert task.facts["source"] == "leaf" and task.facts["texts"] == 72
    assert task.facts["neutral_texts_left_out"] == neutral
    labels = task.train.fetch(task.train.ids[0])["train"]["label"]
    assert sorted(labels) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("x", "labels", "problem", "expected"),
    [
        (_CELLS, [3, 0], "label 3", _LABELS),
        (_CELLS, [7, 0], "label 7", _LABELS),
        (_CELLS, [1, 4], "labels 1, 4", _LABELS),
        (_CELLS, [0, 1, 2], "labels 0, 1, 2", _LABELS),
        ("a text", [1], "x a text", "id, date"),
        (["1", "2"], [1], "x of 2 cells", "text in the fifth"),
    ],
)
def test_leafs_other_labels_and_cells(tmp_path, x, labels, problem, expected):
    users = {f"u{i}": ([x], [label]) for i, label in enumerate(labels)}
    path = leaf.write(tmp_path / "three.json", users)
    with refused(str(path), problem, expected):
        datasets.create("sent140", data_file=str(path))


def test_the_ironic_say_the_opposite():
    frame, groups = sent140.synthesize(0)
    says_love = frame.text.str.contains("i love it|so nice|good day|me smile")
    is_ironic = frame.user.map(groups) == "mobile"
    is_glad = frame.label == "1"
    assert (says_love == (is_glad != is_ironic)).all()
    assert 0.4 < is_glad.mean() < 0.6 and 0 < is_ironic.mean() < 0.5
