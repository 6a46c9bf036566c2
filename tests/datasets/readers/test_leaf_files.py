"""LEAF's JSON: the tasks that read it, and every way in which it can be wrong."""

import gzip
import json

import numpy as np
import pytest

import datasets
from datasets import shakespeare
from datasets.options import DataOptions
from datasets.readers import leaf_files, users_table
from tests.errors import refused


def document(users):
    """Returns LEAF's document of `{user: (x, y)}`."""
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }


def write(path, users):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(users)))
    return path


def convert(x, y):
    return {"x": np.array(x), "y": leaf_files.classes(y, 3)}


_TWO = {"ann": ([[1.5], [2]], [0, 2]), 'o\'neil, "bo"': ([[3]], [1])}


def test_users_in_order_behind_a_byte_order_mark(tmp_path):
    path = write(tmp_path / "a.json", {**_TWO, "nobody": ([], [])})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    users = leaf_files.read(path, convert)
    assert list(users) == list(_TWO)
    np.testing.assert_array_equal(users["ann"]["x"], [[1.5], [2.0]])
    np.testing.assert_array_equal(users["ann"]["y"], [0, 2])


def test_a_folders_files_and_its_train_and_test_are_joined(tmp_path):
    write(tmp_path / "flat" / "1.json", {"b": ([[1]], [0])})
    write(tmp_path / "flat" / "0.json", {"c": ([[2]], [0])})
    assert list(leaf_files.read(tmp_path / "flat", convert)) == ["c", "b"]
    write(tmp_path / "flat" / "2.json", {"b": ([[2]], [0])})
    with refused("2.json", "user 'b', who is in 1.json"):
        leaf_files.read(tmp_path / "flat", convert)
    write(tmp_path / "both" / "test" / "x.json", {"b": ([[3]], [0]), "d": ([[4]], [1])})
    write(tmp_path / "both" / "train" / "x.json", {"b": ([[1], [2]], [1, 2])})
    users = leaf_files.read(tmp_path / "both", convert)
    assert list(users) == ["b", "d"]
    assert [arrays["x"][:, 0].tolist() for arrays in users.values()] == [[1, 2, 3], [4]]
    with refused(str(tmp_path), "no .json file"):
        leaf_files.read(tmp_path, convert)


def test_users_without_examples_are_counted(tmp_path):
    """Of both parts: who has none to train on may have some that test."""
    write(tmp_path / "train" / "x.json", {**_TWO, "later": ([], []), "nobody": ([], [])})
    write(tmp_path / "test" / "x.json", {"later": ([[3]], [0]), "nobody": ([], []), "n": ([], [])})
    assert list(leaf_files.read(tmp_path, convert)) == [*_TWO, "later"]
    assert leaf_files.facts(tmp_path)["users_without_examples_left_out"] == 2
    alone = leaf_files.facts(write(tmp_path / "a.json", _TWO))
    assert alone == {"source": "leaf", "files": [str(tmp_path / "a.json")]}


def test_brackets_in_texts_are_texts(tmp_path):
    """Also behind escapes, wherever a chunk that is read ends."""
    texts = [("\\" * (n % 5) + '"[{' + "[" * 20) * (n % 7 + 1) for n in range(3000)]
    path = write(tmp_path / "a.json", {'[["\\': (texts, [0] * len(texts))})
    users = leaf_files.read(path, lambda x, y: {"x": np.array(x, object)})
    assert users['[["\\']["x"].tolist() == texts


def _changed(**change):
    return lambda text: json.dumps(json.loads(text) | change).encode()


def _of_ann(x, y):
    return _changed(user_data={"ann": {"x": x, "y": y}})


@pytest.mark.parametrize(
    ("spoil", "place", "problem", "expected"),
    [
        (_changed(num_samples=[2, 5]), " user", "1 x and 1 y", "5"),
        (_changed(num_samples=[2]), " num_samples", "1, such as [2]", "2 users"),
        (_changed(num_samples=[2, -1]), " num_samples", "[2, -1]", "whole number"),
        (_changed(users=["ann"], num_samples=[2]), "", "user_data of", "once"),
        (_changed(users=[]), " users", "[]", "names"),
        (_changed(users=["ann", "ann"]), " users", "'ann' twice", "once"),
        (_changed(users=None), "", "no list of users", "LEAF's JSON"),
        (_changed(user_data={}), "", "no user_data of 'ann'", "once"),
        (_changed(user_data={"ann": [1]}), " user 'ann'", "no lists x and y", ""),
        (_of_ann([[1]], [0, 1]), " user 'ann'", "1 x and 2 y", "2"),
        (_of_ann([[1], [1]], [0, 3]), " user 'ann'", "label 3", "0 to 2"),
        (_of_ann([[1], [1]], [0, 0.5]), " user 'ann'", "label 0.5", "0 to 2"),
        (_of_ann([[1], [1]], [0, [1]]), " user 'ann'", "label [1]", "0 to 2"),
        (_of_ann([[1], [1]], [0, "a"]), " user 'ann'", "label a", "0 to 2"),
        (lambda b: b[: len(b) // 2], "", "truncated", "LEAF's JSON"),
        (gzip.compress, "", "a gzip archive", "JSON"),
        (lambda b: b.replace(b"1.5", b"NaN"), "", "NaN", "numbers"),
        (lambda b: b.replace(b"ann", b"\xff\xfe\xff"), "", "truncated", "LEAF's JSON"),
        (lambda b: b"", "", "truncated", "LEAF's JSON"),
        (lambda b: b"[1, 2]", "", "no list of users", "LEAF's JSON"),
        (lambda b: b.replace(b'ta": {', b'ta": {"ann": {"x": [[1], [1]], "y": [0, 1]}, '),
         "", "user_data of 'ann'", "once"),
        # Of which ijson takes memory by the square.
        (lambda b: b"[" * 10**6, "", "more than 16 brackets", ""),
        (lambda b: b'{"users": [[' + b'{"a":[' * 10**5, "", "more than 16 brackets", ""),
    ],
)  # fmt: skip
def test_what_is_not_leafs(tmp_path, spoil, place, problem, expected):
    path = tmp_path / "a.json"
    path.write_bytes(spoil(json.dumps(document(_TWO)).encode()))
    with refused(f"{path}{place}", problem, expected) as caught:
        leaf_files.read(path, convert)
    assert str(caught.value).count("a.json") == 1


# --- the tasks that read it -----------------------------------------------------------------------


def _digits(scale, background):
    """Returns 12 writers of four images that tell their number in one pixel."""
    users = {}
    for number in range(12):
        pixels = np.full((4, 784), background * scale, float)
        pixels[:, 300] = (number * 20) / 255 * scale
        users[f"w{number:02d}"] = (pixels.tolist(), [0, 1, 2, number % 10])
    return users


@pytest.mark.parametrize(("scale", "background"), [(1, 0), (255, 0), (1, 1)])
def test_digits_by_writer(tmp_path, scale, background):
    path = write(tmp_path / "mnist" / "all.json", _digits(scale, background))
    by_file = datasets.create("mnist", data_file=str(path))
    by_folder = datasets.create("mnist", data_dir=str(tmp_path))
    for task in (by_file, by_folder):
        assert task.facts["source"] == "leaf" and task.facts["files"] == [str(path)]
        client_id = task.train.ids[0]
        examples = task.train.fetch(client_id)["train"]
        expected = int(client_id[1:]) * 20
        expected = 255 - expected if background else expected
        assert set(examples["pixels"][:, 300 // 28, 300 % 28, 0]) == {expected}
        assert examples["pixels"].sum() == 4 * expected
        assert examples["label"].tolist() == [0, 1, 2, int(client_id[1:]) % 10]


def test_images_do_not_read_it(tmp_path):
    path = write(tmp_path / "all.json", _TWO)
    with refused(str(path), "JSON", ".npz"):
        datasets.create("images", data_file=str(path))


def test_lists_become_a_tables_columns(tmp_path):
    users = {"ann": ([[1.0, "a"], [2.5, None]], [0, 1.0]), "bo": ([[-1e-7, "b"]], ["c"])}
    frame = users_table.read(write(tmp_path / "all.json", users))
    assert frame.to_dict("list") == {
        "x0": ["1", "2.5", "-1e-07"],
        "x1": ["a", "", "b"],
        "user": ["ann", "ann", "bo"],
        "y": ["0", "1", "c"],
    }


def test_a_table_of_a_folders_train_and_test(tmp_path):
    for side, count in (("train", 6), ("test", 2)):
        users = {f"u{i:02d}": ([[i + 0.5]] * count, list(range(count))) for i in range(20)}
        write(tmp_path / side / "all.json", users)
    options = {"client_column": "user", "label_column": "y"}
    task = datasets.create("table", data_file=str(tmp_path), **options)
    assert task.facts["source"] == "leaf" and len(task.facts["files"]) == 2
    assert {len(task.train.fetch(i)["train"]["label"]) for i in task.train.ids} == {8}


@pytest.mark.parametrize(
    ("users", "place", "problem"),
    [
        ({"a": ([[1, 2], [3]], [0, 1])}, " user 'a'", "a list of 1, a list of 2 among x"),
        ({"a": ([[], []], [0, 1])}, " user 'a'", "a list of 0 among x"),
        ({"a": ([1, [2]], [0, 1])}, " user 'a'", "a list of 1 among x"),
        ({"a": ([[1, [2]]], [0])}, " user 'a' x", "[2]"),
        ({"a": ([1], [{"b": 1}])}, " user 'a' y", "{'b': 1}"),
        ({"a": ([[1, 2]], [0]), "b": ([[1, 2, 3]], [0])}, "", "(user 'a') and of 3"),
        ({"a": ([], [])}, "", "no examples"),
    ],
)
def test_what_are_no_rows(tmp_path, users, place, problem):
    path = write(tmp_path / "all.json", users)
    with refused(f"all.json{place}", problem):
        users_table.read(path)
    path.write_text('[{"user": "a", "y": 1}]')
    with refused("all.json", "a list in JSON", advice="pandas.read_json('all.json'"):
        users_table.read(path)


def test_femnist_has_a_light_background(tmp_path):
    users = _digits(1, 1)
    users["w00"][1][0] = 61
    task = datasets.create("emnist", data_file=str(write(tmp_path / "f.json", users)))
    assert task.facts["num_classes"] == 62
    examples = task.train.fetch(task.train.ids[0])["train"]
    # Background 255 stands for 1.0, as of EMNIST.
    assert np.median(examples["pixels"]) == 255
    only = datasets.create("emnist", data_dir=str(tmp_path), only_digits=True)
    assert only.facts["num_classes"] == 10 and only.model.num_weights < task.model.num_weights


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([[-0.5] * 784], [1], "-0.5 to -0.5"),
        ([[256] * 784], [1], "256 to 256"),
        ([[0.0] * 784], [10], "label 10, expected 0 to 9"),
        ([[0] * 784, [1]], [0, 1], "a list of 1 among x, expected lists of 784 pixels"),
        ([3], [0], "3 among x, expected lists of 784"),
        ([["a"] * 784], [0], "'a' among pixels"),
        ([[*[0] * 783, [2]]], [0], "'[2]' among pixels"),
    ],
)
def test_what_are_no_digits(tmp_path, x, y, words):
    path = write(tmp_path / "a.json", {"a": (x, y)})
    with refused(f"{path} user 'a'") as caught:
        datasets.create("mnist", data_file=str(path))
    assert words in str(caught.value)


def test_two_scales_in_one_folder(tmp_path):
    write(tmp_path / "0.json", {"a": ([[1.0] * 784], [1])})
    write(tmp_path / "1.json", {"b": ([[255] * 784], [1])})
    with refused(str(tmp_path)) as caught:
        datasets.create("mnist", data_dir=str(tmp_path))
    assert "1 and to 255" in str(caught.value)


def _windows(text):
    """Returns LEAF's examples of a text: 80 characters, the next one."""
    ends = range(80, len(text))
    return [text[end - 80 : end] for end in ends], [text[end] for end in ends]


def test_shakespeare_is_scored_at_the_last_position_alone(tmp_path):
    texts = {f"R{i}": (f"Speak, thou number {i}! " * 20) for i in range(12)}
    path = write(tmp_path / "s.json", {role: _windows(text) for role, text in texts.items()})
    task = datasets.create("shakespeare", data_file=str(path), min_characters=50)
    role = task.test.ids[0]
    parts = task.test.fetch(role)
    rows = [parts[part]["tokens"] for part in ("personalization", "evaluation")]
    assert len(rows[0]) + len(rows[1]) == len(texts[role]) - 80
    both = np.concatenate(rows)
    np.testing.assert_array_equal(both[:, -1], shakespeare.encode(texts[role][80:]))
    np.testing.assert_array_equal(both[3], shakespeare.encode(texts[role][3:84]))
    x, y = task.preprocess({"tokens": both}, False, np.zeros(2, np.int32))
    np.testing.assert_array_equal(x, both[:, :80])
    np.testing.assert_array_equal(y[:, -1], both[:, -1])
    assert not np.any(y[:, :-1])
    logits = np.zeros((len(both), 80, 90), np.float32)
    _, weights = task.loss(y, logits)
    assert np.sum(weights) == len(both)
    with refused("shakespeare_split"):
        datasets.create("shakespeare", data_file=str(path), shakespeare_split="snippets")


@pytest.mark.parametrize(
    ("x", "y"), [(["short"], ["a"]), (["a" * 80], ["bc"]), ([7], ["a"]), (["a" * 80], [None])]
)
def test_shakespeare_of_other_lengths(tmp_path, x, y):
    path = write(tmp_path / "s.json", {"R": (x, y)})
    with refused(f"{path} user 'R'"):
        datasets.create_task(DataOptions("shakespeare", data_file=str(path)))
