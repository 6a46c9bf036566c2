import h5py
import numpy as np
import pytest
import scipy.io
import tensorflow as tf

import datasets
from datasets import school
from tests.errors import refused


def cells(arrays, shape=None):
    cell = np.empty(len(arrays), object)
    for i, array in enumerate(arrays):
        cell[i] = array
    return cell.reshape(shape or (1, -1))


def mat(path, **changes):
    """Writes four schools of ten students; a change of None leaves an array out."""
    rng = np.random.default_rng(0)
    content = {
        "X": cells([rng.integers(0, 99, (10, 28)).astype(np.uint8) for _ in range(4)]),
        "Y": cells([rng.integers(1, 71, (10, 1)).astype(np.uint8) for _ in range(4)]),
        **changes,
    }
    scipy.io.savemat(path, {name: a for name, a in content.items() if a is not None})
    return path


def create(path=None, **options):
    file = None if path is None else str(path)
    return datasets.create_task(datasets.DataOptions("school", data_file=file, **options))


def test_one_school_by_hand():
    x = np.arange(14.0).reshape(7, 2)
    y = np.arange(1.0, 8.0)
    # Seed 100 cuts seven rows into test [1, 2], valid [4], train the rest.
    task = school.create_task_from_data([x, x], [y, y + 63], 100)
    parts = task.test.fetch("school_000")
    np.testing.assert_allclose(parts["test"]["target"], (y[[1, 2]] - 1) / 69, rtol=1e-6)
    np.testing.assert_allclose(parts["valid"]["target"], (y[[4]] - 1) / 69, rtol=1e-6)
    train = x[[0, 3, 5, 6]]
    expected = (x[4] - train.mean(0)) / train.std(0)
    np.testing.assert_allclose(parts["valid"]["features"], [expected], rtol=1e-6)
    assert parts["train"]["features"].dtype == np.float32
    assert task.facts["score_range"] == [1.0, 70.0]
    assert task.drop_remainder
    assert task.setting == "cross_silo"
    assert task.train.ids == task.valid.ids == task.test.ids == ("school_000", "school_001")


def test_metrics():
    task = school.create_task_from_data([np.eye(5)], [np.arange(5.0)], 0)
    assert [(m.name, m.higher_is_better) for m in task.metrics] == [
        ("half_squared_error", False),
        ("squared_error", False),
    ]
    y, outputs = tf.constant([1.0, 0.0]), tf.constant([3.0, 1.0])
    for function, expected in ((task.loss, [2.0, 0.5]), (task.metrics[1].function, [4.0, 1.0])):
        values, weights = function(y, outputs)
        np.testing.assert_allclose(values, expected)
        np.testing.assert_allclose(weights, [1.0, 1.0])


def test_school_too_small_to_split_trains_and_is_named():
    task = school.create_task_from_data(
        [np.eye(5), np.eye(5)[:2]], [np.arange(5.0), np.arange(2.0)], 0
    )
    assert task.train.ids == ("school_000", "school_001")
    assert task.valid.ids == task.test.ids == ("school_000",)
    assert len(task.train.fetch("school_001")["train"]["target"]) == 2
    (listed,) = task.facts["clients_not_evaluable"].values()
    assert listed == ["school_001"]


def test_schools_of_a_planted_group_have_closer_coefficients():
    schools = school.synthesize(5, num_schools=60)
    groups = np.array(list(schools.groups.values()))
    assert len(set(groups)) == 3
    coefficients = []
    for x, y in zip(schools.features, schools.targets, strict=True):
        standard = (x[:, :27] - x[:, :27].mean(0)) / np.maximum(x[:, :27].std(0), 0.1)
        gram = standard.T @ standard + 5 * np.eye(27)
        coefficients.append(np.linalg.solve(gram, standard.T @ (y - y.mean())))
    coefficients = np.array(coefficients)
    distance = np.square(coefficients[:, None] - coefficients[None]).sum(-1)
    same = groups[:, None] == groups[None]
    pairs = ~np.eye(60, dtype=bool)
    assert distance[same & pairs].mean() < 0.6 * distance[~same].mean()


X = [np.ones((10, 28)) for _ in range(4)]
Y = [np.arange(10.0).reshape(-1, 1) for _ in range(4)]
BAD_FILES = {
    "no school": ({"X": cells([]), "Y": cells([])}, "", "cell [1, 0]", "cell arrays X and Y"),
    "no Y": ({"Y": None}, "", {"X": "cell [1, 4]"}, "cell arrays X and Y"),
    "column of cells": ({"X": cells(X, (4, 1)), "Y": cells(Y, (4, 1))}, "", "[4, 1]", "[1, "),
    "other counts": ({"Y": cells(Y[:3])}, "", "'Y': 'cell [1, 3]'", "as many"),
    "other width": ({"X": cells([*X[:3], X[0][:, :5]])}, " school 3", "X [10, 5]", "28]"),
    "empty school": (
        {"X": cells([*X[:3], X[0][:0]]), "Y": cells([*Y[:3], Y[0][:0]])},
        " school 3", "X [0, 28]", "at least one",
    ),
    "not finite": ({"X": cells([*X[:3], X[0] * np.nan])}, " school 3", "not finite", ""),
    "beyond float32": (
        {"X": cells([np.tile([[1e300], [-1e300]], (5, 28))] * 4)}, "", "too large", "",
    ),
    "one score": ({"Y": cells([np.ones((10, 1))] * 4)}, "", "1 as every student's score", "differ"),
    "tiny": (
        {"X": cells([x[:2] for x in X]), "Y": cells([y[:2] for y in Y])}, "", "4 silos", "of 3"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
@pytest.mark.usefixtures("read_here")
def test_bad_files_end_in_one_line_that_names_the_file(tmp_path, case):
    changes, place, problem, expected = BAD_FILES[case]
    path = mat(tmp_path / "bad.mat", **changes)
    with refused(f"{path}{place}", problem, expected):
        create(path)


@pytest.mark.parametrize("header", [b"MATLAB 7.3 MAT-file, Platform: GLNXA64", b""])
def test_a_file_of_matlab_7_3_can_be_saved_as_an_older_one(tmp_path, header):
    path = tmp_path / "school.mat"
    with h5py.File(path, "w", userblock_size=512 if header else 0) as file:
        file["X"] = np.zeros(3)
    content = path.read_bytes()
    if header:
        path.write_bytes(header.ljust(512, b"\0") + content[512:])
    with refused(str(path), "v7.3", "v5 to v7", "save -v7 school.mat X Y"):
        create(path)


def test_packed_files_and_other_variables_are_read(tmp_path):
    rng = np.random.default_rng(0)
    content = {
        "X": cells([rng.integers(0, 99, (10, 28)) for _ in range(4)]),
        "Y": cells([rng.integers(1, 71, (10, 1)) for _ in range(4)]),
        "about": {"text": "four schools", "numbers": [1.5, 2.5], "none": np.zeros((0, 0))},
    }
    for is_packed in (False, True):
        scipy.io.savemat(tmp_path / "x.mat", content, do_compression=is_packed)
        assert len(create(tmp_path / "x.mat").train) == 4
