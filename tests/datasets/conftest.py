"""Fixtures: where real data are, EMNIST in TFF's SQLite form, and models checked once."""

import collections
import contextlib
import io
import pathlib
import sqlite3

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from datasets import emnist
from datasets.readers import native_files
from motley_tff import commandline
from motley_tff.core import task as task_lib
from tests.contracts import in_process
from tests.trainers import programs

PROJECT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def models_checked_once():
    """Lets a task trace its model on its data the first time alone.

    That is most of what a task costs, and changed facts, clients or files repeat it.
    """
    check, passed = task_lib.check_model_reads_data, set()

    def once(dataset, model, loss, preprocess, fields):
        key = (dataset, model.shapes, fields)
        if key not in passed:
            check(dataset, model, loss, preprocess, fields)
            passed.add(key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_lib, "check_model_reads_data", once)
        yield


@pytest.fixture
def read_here(monkeypatch):
    """Reads sound files in this process, as `native_files` does in one of its own."""
    monkeypatch.setattr(
        native_files, "read", lambda kind, path: native_files.READERS[kind](str(path))
    )


@pytest.fixture(scope="session")
def real_data_dir() -> pathlib.Path:
    if not programs.DATA.is_dir():
        pytest.skip(f"no real data in {programs.DATA} (MOTLEY_DATA_DIR)")
    return programs.DATA


@pytest.fixture(scope="session")
def written():
    """Twelve writers' examples; one has a quote in its id."""
    writing = emnist.synthesize(3, num_writers=12)
    ids = [f"f{i:04d}_{i}" for i in range(12)]
    ids[5] = "f0005_o'neil"
    data = {}
    for new, old in zip(ids, writing.groups, strict=True):
        rows = np.flatnonzero(writing.writer_ids == old)[:10]
        data[new] = {
            "pixels": (writing.images[rows] / np.float32(255)).astype(np.float32),
            "label": writing.labels[rows],
        }
    return data


def write_sqlite(path, data, split):
    """Writes clients with TFF's own writer, of one split or `{client: split}`."""
    import tensorflow_federated as tff

    def dataset(client_id):
        return tf.data.Dataset.from_tensor_slices(
            collections.OrderedDict(sorted(data[client_id].items()))
        )

    tff.simulation.datasets.save_to_sql_client_data(
        list(data), dataset, str(path), allow_overwrite=True,
        split_names_by_client_id=dict.fromkeys(data, split) if isinstance(split, str) else split,
    )  # fmt: skip
    return path


def write_tables(path, clients):
    """Writes TFF's tables of `{(client, split): [features]}`; its writer has a client in one split.

    Each example's features are `{name: tf.train.Feature}`.
    """
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        columns = "client_id TEXT, split_name TEXT"
        database.execute(f"CREATE TABLE client_metadata ({columns}, num_examples INTEGER)")
        database.execute(f"CREATE TABLE examples ({columns}, serialized_example_proto BLOB)")
        for owner, examples in clients.items():
            row = (*owner, len(examples))
            database.execute("INSERT INTO client_metadata VALUES (?, ?, ?)", row)
            for features in examples:
                example = tf.train.Example(features=tf.train.Features(feature=features))
                row = (*owner, example.SerializeToString())
                database.execute("INSERT INTO examples VALUES (?, ?, ?)", row)
    return path


def assert_same_clients(task, other):
    """Checks that two tasks have the same clients with the same examples."""
    for split, clients in task.splits.items():
        assert other.splits[split].ids == clients.ids
        for client_id in clients.ids:
            tf.nest.map_structure(
                np.testing.assert_array_equal,
                dict(clients.fetch(client_id)),
                dict(other.splits[split].fetch(client_id)),
            )


def run_command(module, *arguments):
    """Returns what a command prints with these flags; flags of other programs make room."""
    known, printed = flags.FLAGS, io.StringIO()
    before = [known[name] for name in in_process.declared()]
    for flag in before:
        delattr(known, flag.name)
    module.define_flags()
    try:
        with flagsaver.flagsaver(), contextlib.redirect_stdout(printed):
            commandline.parse([module.__name__, *arguments])
            module.main()
    finally:
        for flag in list(known.flags_by_module_dict()[module.__name__]):
            delattr(known, flag.name)
        for flag in before:
            flags.DEFINE_flag(flag)
    return printed.getvalue()


def _features(pixels, label):
    return {
        "pixels": tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(pixels))),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }


@pytest.fixture(scope="session")
def sqlite_dir(tmp_path_factory, written) -> pathlib.Path:
    """A data folder with `emnist/emnist_all.sqlite`: two splits, the same clients in both."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "emnist").mkdir()
    clients = {
        (client_id, split): [
            _features(pixels, label)
            for pixels, label in zip(e["pixels"], e["label"], strict=True)
            if label < 10 or split == "all_train"
        ]
        for split in ("all_train", "digits_only_train")
        for client_id, e in written.items()
    }
    write_tables(folder / "emnist" / "emnist_all.sqlite", clients)
    return folder
