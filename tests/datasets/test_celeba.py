"""CelebA: TFF's SQLite read as TFF reads it, and synthetic faces."""

import numpy as np
import tensorflow as tf

import datasets
from datasets import celeba
from tests.datasets.conftest import write_tables
from tests.errors import refused


def _int64(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _write(path, people=5, side=84):
    """Writes people of four pictures each, filled with their number; every second one smiles."""
    clients = {
        (f"{person:03d}", "split_by_examples_train"): [
            {
                **{name: _int64([0]) for name in celeba.attributes()},
                "smiling": _int64([number % 2]),
                "male": _int64([1]),
                "image": _int64([person] * side * side * 3),
            }
            for number in range(4)
        ]
        for person in range(people)
    }
    return write_tables(path, clients)


def test_reads_tffs_file_and_attributes(tmp_path):
    (tmp_path / "celeba").mkdir()
    path = _write(tmp_path / "celeba" / "celeba.sqlite")
    task = datasets.create("celeba", data_dir=str(tmp_path))
    assert task.facts["files"] == [str(path)] and task.facts["attribute"] == "smiling"
    assert len(task.train) + len(task.valid) + len(task.test) == 5
    for client_id in task.train.ids:
        examples = task.train.fetch(client_id)["train"]
        assert np.shape(examples["pixels"]) == (4, 84, 84, 3)
        assert set(np.ravel(examples["pixels"])) == {int(client_id)}
        assert sorted(np.ravel(examples["label"])) == [0, 0, 1, 1]
    male = datasets.create("celeba", data_file=str(path), label_column="male")
    assert set(np.ravel(male.train.fetch(male.train.ids[0])["train"]["label"])) == {1}
    assert male.label_names == ("not male", "male")


def test_what_is_refused(tmp_path):
    with refused("label_column", "smile", "five_o_clock"):
        datasets.create("celeba", label_column="smile", data_dir=str(tmp_path))
    with refused("label_column", "male", "smiling"):
        datasets.create("celeba", label_column="male", use_synthetic_data=True)
    path = _write(tmp_path / "celeba.sqlite", side=64)
    with refused("celeba.sqlite", expected="image [84, 84, 3] and smiling"):
        datasets.create("celeba", data_file=str(path))
