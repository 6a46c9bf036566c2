"""Which runs may be compared: on the same data, label scale and evaluation rows."""

import dataclasses
import json

import pandas as pd
import pytest

import motley_tff as motley
from datasets.options import DataOptions
from motley_tff.core.errors import UserError
from motley_tff.tables import client_tables, comparable
from tests.contracts import in_process

# Options of data that say where they are, how they are learned from, or what a class is called.
_OF_NO_DATA = {
    "dataset_name", "data_dir", "data_file", "base_random_seed", "memory_limit_gb", "group_key",
    "mask_padding", "setting", "label_kind", "model", "model_sizes", "lam_svm", "l2_reg",
}  # fmt: skip
_FLAGS = {"partition": "natural", "val_split": None, "max_clients": None, "setting": "cross_silo"}
_RECORD = {
    "flags": _FLAGS,
    "data": {"label_range": [0.0, 10.0]},
    "data_files": {"a.csv": "12:ab"},
}


def _data(tmp_path, record):
    (tmp_path / "run.json").write_text(json.dumps(record))
    return comparable.of_table(tmp_path / "clients.csv")


def test_every_option_of_data_is_a_flag_of_data_or_known_to_be_none():
    fields = {field.name for field in dataclasses.fields(DataOptions)}
    assert fields == _OF_NO_DATA | set(comparable.DATA_FLAGS)
    assert not _OF_NO_DATA & set(comparable.DATA_FLAGS)
    for field in dataclasses.fields(DataOptions):
        default = comparable.DATA_FLAGS.get(field.name)
        assert field.default in (None, default) or field.name in _OF_NO_DATA


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, None),
        ({"flags": {**_FLAGS, "partition": "iid"}}, "--partition of a and b (natural and iid)"),
        ({"flags": {**_FLAGS, "val_split": 0.3}}, "--val_split of a and b (0.15 and 0.3)"),
        ({"flags": {**_FLAGS, "max_clients": 5}}, "--max_clients of a and b (None and 5)"),
        ({"flags": {**_FLAGS, "setting": "cross_device"}},
         "--setting of a and b (cross_silo and cross_device)"),
        ({"data": {"label_range": [0.0, 20.0]}}, "label_range of a and b (0,10 and 0,20)"),
        ({"data_files": {"a.csv": "12:cd"}}, "data_files of a and b"),
        # What stands for a default, the file under another name, what a version did not write.
        ({"flags": {**_FLAGS, "val_split": 0.15}, "data_files": {"b.csv": "12:ab"}}, None),
        ({"flags": {"partition": "natural"}, "data": {}}, None),
        ({"flags": {**_FLAGS, "client_learning_rate": 3, "model": "mlp"}}, None),
    ],
)  # fmt: skip
def test_what_differs_is_named(tmp_path, other, words):
    data = {"a": _data(tmp_path, _RECORD), "b": _data(tmp_path, {**_RECORD, **other})}
    assert comparable.differences(data, {}) == ([words] if words else [])


def _from_python(options, facts):
    return {"flags": {"data": options, "base_random_seed": 7}, "data": facts}


_MADE = {"options": {}}
_OF_TRAINER = {
    "flags": {**dict.fromkeys(comparable.DATA_FLAGS), "feature_columns": ["x", "y"]},
    "data": {"base_random_seed": 0},
}


@pytest.mark.parametrize(
    ("options", "facts", "words"),
    [
        ({"feature_columns": ["x", "y"]}, {"base_random_seed": 0}, []),
        ({"feature_columns": ["x", "y"], "partition": "natural", "val_split": 0.15}, {}, []),
        ({"feature_columns": ["x"]}, {}, ["--feature_columns of a and b (x,y and x)"]),
        ({}, _MADE, ["--feature_columns of a and b (x,y and None)"]),
        ({"feature_columns": ["x", "y"], "partition": "iid"}, _MADE,
         ["--partition of a and b (natural and iid)"]),
        ({"feature_columns": ["x", "y"], "base_random_seed": 7}, _MADE,
         ["--base_random_seed of a and b (0 and 7)"]),
        # Nothing is drawn; a task that was made in memory says nothing of its data.
        ({"feature_columns": ["x", "y"], "base_random_seed": 7}, {"base_random_seed": None}, []),
        ({}, {"source": "memory"}, []),
    ],
)  # fmt: skip
def test_options_of_a_run_from_python_are_a_trainers_flags(tmp_path, options, facts, words):
    data = {"a": _data(tmp_path, _OF_TRAINER), "b": _data(tmp_path, _from_python(options, facts))}
    assert comparable.differences(data, {}) == words


def test_options_of_a_package_are_compared(tmp_path):
    data = {
        str(i): _data(
            tmp_path, _from_python({"width": i, "use_synthetic_data": True}, {"package": "p"})
        )
        for i in (1, 2)
    }
    assert comparable.differences(data, {}) == ["options of 1 and 2 (width=1 and width=2)"]


def test_runs_from_python_and_of_trainers(tmp_path):
    """The data of both have a seed, which from Python is not the run's."""

    def python(**options):
        name = "-".join(map(str, options.values())) or "python"
        task = motley.create_task("school", use_synthetic_data=True, **options)
        motley.run(
            task, motley.algorithms.Local(), rounds=1, seed=5, root_output_dir=str(tmp_path),
            experiment_name=name, backend=motley.BackendConfig(name="sequential"),
        )  # fmt: skip
        return tmp_path / name

    with in_process.opened("mtl_trainer") as trainer:
        flags = ("--algorithm=local", "--total_rounds=1", "--backend=sequential")
        ours = trainer(tmp_path, "ours", *flags, "--base_random_seed=5")
        with in_process.eager.running(), in_process.small():
            others = python(base_random_seed=5), python(), python(base_random_seed=5, max_clients=2)
    data = {}
    for folder in (ours, *others):
        path = folder / "clients.csv"
        data[folder.name] = client_tables.evaluations(client_tables.read(path), path)[0].data
    assert comparable.differences(data, {}) == [
        "--base_random_seed of ours and python (5 and 0)",
        "--max_clients of ours and 5-2 (None and 2)",
    ]


def test_evaluation_rows_differ():
    """Of the clients that both have, and say of."""
    first = pd.DataFrame({"client_id": ["x", "y", "z"], "num_evaluation_examples": [5, 6, None]})
    other = pd.DataFrame({"client_id": ["w", "z", "y"], "num_evaluation_examples": [1, 9, 7]})
    data = {"a": {}, "b": {}}
    (line,) = comparable.differences(data, {"a": first, "b": other})
    assert line == "num_evaluation_examples of a and b, of 1 of 2 clients: y (6 and 7)"
    assert comparable.differences(data, {"a": first, "b": other[["client_id"]]}) == []
    with pytest.raises(UserError, match="y .6 and 7.; compare runs on the same data, or give --a"):
        comparable.check(data, {"a": first, "b": other}, anyway=False)
    assert comparable.check(data, {"a": first, "b": other}, anyway=True) == [
        f"warning: the runs are not scored on the same: {line}"
    ]


def test_of_a_sweep_the_flags_that_all_its_runs_have_count(tmp_path):
    grid = {"fixed": [["partition", "dirichlet:1"]], "grid": [["max_clients", ["3", "5"]]]}
    plan = {"grid": grid, "use_synthetic_data": True}
    data = _data(tmp_path, {"flags": {}, "plan": plan, "setting": None})
    assert (data["partition"], data["use_synthetic_data"], data["val_split"]) == (
        "dirichlet:1", True, 0.15,
    )  # fmt: skip
    assert "max_clients" not in data
    (tmp_path / "sweep.csv").write_text("run_id,max_clients\np0_s1,3\np1_s1,5\n")
    (tmp_path / "tasks").mkdir()
    for number, files in enumerate(({}, {"a.csv": "12:ab"})):
        (tmp_path / f"tasks/{number}.json").write_text(json.dumps({"data_files": files}))
    table = tmp_path / "clients.csv"
    data = comparable.of_table(table, "p1_s1", "1")
    known = (data["max_clients"], data["data_files"], data[comparable.SEED])
    assert known == ("5", ["12:ab"], "1")
    # A run that has a directory of its own says more.
    (tmp_path / "runs/p0_s1").mkdir(parents=True)
    (tmp_path / "runs/p0_s1/run.json").write_text(json.dumps(_RECORD))
    assert comparable.of_table(table, "p0_s1")["label_range"] == [0.0, 10.0]
    assert comparable.of_table(tmp_path / "mine.csv") == {}
    with pytest.raises(UserError, match="run.json is not as a run wrote it"):
        _data(tmp_path, [])
