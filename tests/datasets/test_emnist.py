import contextlib
import sqlite3

import numpy as np
import pytest
import tensorflow as tf

import datasets
from datasets.partition import splits
from tests.datasets.conftest import write_sqlite
from tests.errors import refused


def npz(path, **changes):
    """Writes 12 writers with 5 images each; a change of None leaves an array out."""
    arrays = {
        "images": np.random.default_rng(0).integers(0, 99, (60, 28, 28), dtype=np.uint8),
        "labels": np.arange(60) % 10,
        "writer_id": np.repeat(np.arange(12) * 7, 5),
        **changes,
    }
    np.savez(path, **{name: a for name, a in arrays.items() if a is not None})
    return path


def create(path=None, **options):
    file = None if path is None else str(path)
    return datasets.create_task(datasets.DataOptions("emnist", data_file=file, **options))


def test_npz_is_inverted_and_split(tmp_path):
    path = npz(tmp_path / "w.npz")
    task = create(path)
    assert task.facts["num_classes"] == 10
    assert task.facts["files"] == [str(path)]
    # 12 writers: one validates, one tests; sorted as numbers, then permuted by seed 13.
    ids = [str(7 * i) for i in range(12)]
    order = [ids[i] for i in np.random.RandomState(13).permutation(12)]
    assert [*task.valid.ids, *task.test.ids, *task.train.ids] == order
    raw = np.load(path)
    writer = task.train.ids[0]
    rows = raw["writer_id"] == int(writer)
    examples = task.train.fetch(writer)["train"]
    np.testing.assert_array_equal(examples["pixels"], 255 - raw["images"][rows])
    x, y = task.preprocess(
        {k: tf.constant(v) for k, v in examples.items()}, False, tf.zeros([2], tf.int32)
    )
    np.testing.assert_allclose(x[..., 0], 1 - raw["images"][rows] / 255, atol=1e-6)
    np.testing.assert_array_equal(y, raw["labels"][rows])
    assert x.dtype == tf.float32
    tested = task.test.fetch(task.test.ids[0])
    assert len(tested["personalization"]["label"]) == 2
    assert len(tested["evaluation"]["label"]) == 3


def test_npz_with_letters_has_62_classes_unless_only_digits(tmp_path):
    ids = np.repeat([f"w{i:02d}" for i in range(12)], 5)
    path = npz(tmp_path / "w.npz", labels=np.arange(60) % 30, writer_id=ids)
    assert create(path).facts["num_classes"] == 62 and set(create(path).train.ids) < set(ids)
    digits = create(path, only_digits=True, model="lenet")
    assert digits.facts["num_classes"] == 10 and digits.model.num_weights == 44_426


def test_an_array_of_an_npz_groups_writers(tmp_path):
    # Two of every three writers are of one series; one of them writes no digit.
    series = np.repeat(np.arange(12) % 3 // 2, 5)
    labels = np.arange(60) % 10 + np.repeat(np.arange(12) == 3, 5) * 20
    path = npz(tmp_path / "w.npz", series=series, form=np.array(["f", "g"])[series], labels=labels)
    expected = {str(7 * i): "1" if i % 3 == 2 else "0" for i in range(12)}
    task = create(path, group_key="series")
    assert task.facts["client_groups"] == expected
    assert task.facts["group_key"] == "series"
    assert set(create(path, group_key="form").facts["client_groups"].values()) == {"f", "g"}
    assert set(create(path, group_key="series", only_digits=True).facts["client_groups"]) >= {"7"}
    assert "client_groups" not in create(path).facts


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("hsf", "'series'], the arrays of"),
        ("series", "2 (0, 1) of writer 14"),
        ("images", "text [60], not uint8 [60, 28, 28]"),
    ],
)
def test_arrays_that_group_no_writers(tmp_path, key, expected):
    series = np.zeros(60, np.int64)
    series[12] = 1
    path = npz(tmp_path / "w.npz", series=series)
    with refused("group_key", key, expected) as caught:
        create(path, group_key=key)
    assert str(path) in caught.value.expected


def test_a_group_key_needs_an_npz(sqlite_dir):
    for folder, kind in ((None, "synthetic writers"), (sqlite_dir, "emnist_all.sqlite")):
        options = {"use_synthetic_data": True} if folder is None else {"data_dir": str(folder)}
        with refused("group_key", "x", kind):
            create(group_key="x", **options)


def test_npz_is_found_in_the_data_folder(tmp_path):
    (tmp_path / "emnist").mkdir()
    npz(tmp_path / "emnist" / "one.npz")
    assert create(data_dir=str(tmp_path)).facts["source"] == "npz"
    npz(tmp_path / "two.npz")
    with refused(str(tmp_path), "2 .npz files (one.npz, two.npz)", "one", "data_file"):
        create(data_dir=str(tmp_path))


def test_sqlite_has_precedence_and_its_clients_are_what_was_written(sqlite_dir, written):
    task = create(data_dir=str(sqlite_dir))
    assert task.facts["source"] == "sqlite" and task.train.in_graph
    order = [sorted(written)[i] for i in np.random.RandomState(13).permutation(12)]
    assert [*task.valid.ids, *task.test.ids, *task.train.ids] == order
    for split, clients in task.splits.items():
        for client_id in clients.ids:
            own = {**written[client_id], "label": written[client_id]["label"].astype(np.int32)}
            expected = {"train": own} if split == "train" else splits.halve(own)
            in_graph = tf.function(clients.load)(tf.constant(client_id))
            for parts in (clients.fetch(client_id), in_graph):
                tf.nest.map_structure(np.testing.assert_array_equal, dict(parts), expected)
    digits = create(data_dir=str(sqlite_dir), only_digits=True)
    assert digits.facts["num_classes"] == 10
    labels = written[order[-1]]["label"]
    digit_labels = digits.train.fetch(order[-1])["train"]["label"]
    np.testing.assert_array_equal(digit_labels, labels[labels < 10])


IMAGES = np.zeros((60, 28, 28), np.uint8)
BAD_ARRAYS = {
    "missing": ({"writer_id": None}, "", "['images', 'labels']", "['writer_id']"),
    "float images": ({"images": IMAGES / 1.0}, " images", "float64", "uint8 [n, 28, 28]"),
    "flat images": ({"images": IMAGES.reshape(60, 784)}, " images", "[60, 784]", "uint8"),
    "few labels": ({"labels": np.arange(5)}, " labels", "int64, shape [5]", "[60]"),
    "float labels": ({"labels": np.zeros(60)}, " labels", "float64", "integers"),
    "large labels": ({"labels": np.arange(60) + 40}, " labels", "40 to 99", "0 to 61"),
    "negative labels": ({"labels": np.arange(60) - 1}, " labels", "-1 to 58", "0 to 61"),
    "white background inverted": ({"images": IMAGES + 255}, "", "255", "0 = background"),
    "nothing": (
        {"images": IMAGES[:0], "labels": np.arange(0), "writer_id": np.arange(0)},
        " labels", "none", "0 to 61",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays_end_in_one_line_that_names_the_file(tmp_path, case):
    changes, place, problem, expected = BAD_ARRAYS[case]
    path = npz(tmp_path / "bad.npz", **changes)
    with refused(f"{path}{place}", problem, expected):
        create(path)


def test_sqlite_of_other_examples(tmp_path):
    """A database of TFF's form whose examples have no pixels."""
    path = tmp_path / "other.sqlite"
    write_sqlite(path, {c: {"tokens": np.arange(4)} for c in "abc"}, "all_train")
    with refused(f"{path} client 'c'", "cannot be read", "examples with pixels"):
        create(path)
    with refused(str(path), "['all_train']", "'digits"):
        create(path, only_digits=True)


def test_sqlite_with_no_examples_and_with_some_that_are_none(tmp_path, written):
    """Read when they are trained on: a line, where the loss would have ended in a stack trace."""
    path = tmp_path / "emnist_all.sqlite"
    order = [sorted(written)[i] for i in np.random.RandomState(13).permutation(12)]
    empty, low, high, garbage = order[-4:]
    labels = {low: -1, high: 62}
    changed = {
        i: {**e, "label": np.full_like(e["label"], labels[i])} if i in labels else e
        for i, e in written.items()
    }
    changed[empty] = {field: values[:0] for field, values in written[empty].items()}
    write_sqlite(path, changed, "all_train")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        # TensorFlow fails at quoting bytes that are no text.
        connection.execute(
            "UPDATE examples SET serialized_example_proto = ? WHERE client_id = ?",
            (b"garbage\xff\xff", garbage),
        )
        connection.commit()
    task = create(path)
    assert task.facts["clients_left_out"] == {"no examples": [empty]}
    for client_id, label in labels.items():
        with refused(f"client '{client_id}'", "found labels") as caught:
            task.train.fetch(client_id)
        assert f"[{label}]" in caught.value.finding and "0 to 61" in caught.value.finding
    with refused(f"client '{garbage}'", "Could not parse") as caught:
        task.train.fetch(garbage)
    assert str(caught.value).isprintable() and "{{" not in str(caught.value)
