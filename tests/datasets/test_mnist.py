"""MNIST: by writer, dealt a class a client as FedEval does, its files, and its models."""

import numpy as np
import pytest

import datasets
from datasets import mnist
from tests.datasets import test_emnist
from tests.errors import refused

_ONE_CLASS = {
    "setting": "cross_silo",
    "partition": "classes:1",
    "evaluation_partition": "iid",
    "num_clients": 20,
    "val_split": 0.1,
    "test_split": 0.1,
}


def by_writer(path, **changes):
    """Writes 12 writers of 10 images each, each image filled with its own number."""
    arrays = {
        "images": np.repeat(np.arange(120, dtype=np.uint8), 784).reshape(120, 28, 28),
        "labels": np.arange(120) % 10,
        "writer_id": np.repeat(np.arange(12) * 7, 10),
    }
    return test_emnist.npz(path, **{**arrays, **changes})


def of_keras(path, **changes):
    """Writes 80 and 40 images in Keras's arrays."""
    images = np.random.default_rng(0).integers(0, 99, (120, 28, 28)).astype(np.uint8)
    labels = (np.arange(120) % 10).astype(np.uint8)
    parts = {"train": slice(0, 80), "test": slice(80, None)}
    arrays = {f"x_{name}": images[part] for name, part in parts.items()}
    arrays |= {f"y_{name}": labels[part] for name, part in parts.items()}
    nobody = {"images": None, "labels": None, "writer_id": None}
    return test_emnist.npz(path, **nobody, **{**arrays, **changes})


def create(path, **options):
    return datasets.create("mnist", data_file=str(path), **options)


def test_writers_are_clients(tmp_path):
    task = create(by_writer(tmp_path / "x.npz"))
    assert len(task.train) + len(task.valid) + len(task.test) == 12
    for client_id in task.train.ids:
        examples = task.train.fetch(client_id)["train"]
        first = int(client_id) // 7 * 10
        np.testing.assert_array_equal(examples["pixels"][:, 3, 4, 0], np.arange(first, first + 10))
        np.testing.assert_array_equal(examples["label"], np.arange(10))


def test_a_client_of_kerass_cache_trains_on_one_class_and_is_scored_on_all(tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "_KERAS_DIR", str(tmp_path))
    path = of_keras(tmp_path / "mnist.npz")
    task = datasets.create("mnist", **_ONE_CLASS)
    assert task.facts["files"] == [str(path)]
    classes, seen = [], {"valid": [], "test": []}
    for client_id in task.train.ids:
        (label,) = set(task.train.fetch(client_id)["train"]["label"])
        classes.append(label)
        for part, labels in seen.items():
            labels += task.test.fetch(client_id)[part]["label"].tolist()
    assert np.bincount(classes).tolist() == [2] * 10
    assert all(np.bincount(labels).tolist() == [2] * 10 for labels in seen.values())
    own = [
        set(task.test.fetch(i)["test"]["label"]) == {label}
        for i, label in zip(task.train.ids, classes, strict=True)
    ]
    assert sum(own) < 10  # By labels all 20 would be scored on their own class.


@pytest.mark.parametrize(
    ("model", "weights"), [(None, 669_706), ("lenet", 44_426), ("linear", 7_850)]
)
def test_models(tmp_path, model, weights):
    task = create(by_writer(tmp_path / "x.npz"), model=model)
    assert task.model.num_weights == weights


@pytest.mark.parametrize(
    ("write", "changes", "place", "problem", "expected"),
    [
        (by_writer, {"labels": np.full(120, -1)}, "x.npz labels", "-1 to -1", "0 to 9"),
        (of_keras, {}, "partition", "natural", "iid, classes:1"),
        (of_keras, {"x_test": None}, "x.npz", "arrays", "images"),
        (of_keras, {"x_train": np.full((80, 28, 28), np.nan)}, "x.npz images", "float64", "uint8"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit(tmp_path, write, changes, place, problem, expected):
    path = write(tmp_path / "x.npz", **changes)
    with refused(place, problem, expected):
        create(path)
