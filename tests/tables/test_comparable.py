"""Which runs may be compared: on the same data, label scale and evaluation rows."""

import json

import pandas as pd
import pytest

import motley_tff as motley
from datasets.options import DataOptions
from motley_tff.tables import client_tables, comparable
from tests.contracts import in_process
from tests.errors import refused

# Of an earlier version, which did not say what its data's options stand for.
_FLAGS = {"partition": "natural", "val_split": 0.15, "max_clients": None, "setting": "cross_silo"}
_RECORD = {
    "flags": _FLAGS,
    "data": {"label_range": [0.0, 10.0]},
    "data_files": {"a.csv": "12:ab"},
}


def _data(tmp_path, record):
    (tmp_path / "run.json").write_text(json.dumps(record))
    return comparable.of_table(tmp_path / "clients.csv")


def test_all_options_but_those_of_places_seeds_and_models_decide_examples():
    every, deciding = vars(DataOptions("table")), DataOptions("table").deciding
    assert every.keys() - deciding.keys() == {
        "dataset_name", "data_dir", "data_file", "base_random_seed", "data_seed",
        "memory_limit_gb", "group_key", "mask_padding", "setting", "label_kind", "model",
        "model_sizes", "lam_svm", "l2_reg",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, None),
        ({"flags": {**_FLAGS, "partition": "iid"}}, "partition of a and b (natural and iid)"),
        ({"flags": {**_FLAGS, "val_split": 0.3}}, "val_split of a and b (0.15 and 0.3)"),
        ({"flags": {**_FLAGS, "max_clients": 5}}, None),  # What the first has, nobody knows.
        ({"flags": {**_FLAGS, "setting": "cross_device"}},
         "setting of a and b (cross_silo and cross_device)"),
        ({"data": {"label_range": [0.0, 20.0]}}, "label_range of a and b (0,10 and 0,20)"),
        ({"data_files": {"a.csv": "12:cd"}}, "data_files of a and b"),
        # Nothing said, the file under another name, what a version did not write.
        ({"flags": {**_FLAGS, "val_split": None}, "data_files": {"b.csv": "12:ab"}}, None),
        ({"flags": {"partition": "natural"}, "data": {}}, None),
        ({"flags": {**_FLAGS, "client_learning_rate": 3, "model": "mlp"}}, None),
    ],
)  # fmt: skip
def test_what_differs_is_named(tmp_path, other, words):
    data = {"a": _data(tmp_path, _RECORD), "b": _data(tmp_path, {**_RECORD, **other})}
    assert comparable.differences(data, {}) == ([words] if words else [])


@pytest.mark.parametrize(
    ("flags", "facts", "seed"),
    [({"data_seed": 5}, {}, 5), ({"data_seed": "5"}, {"base_random_seed": None}, None),
     ({"data_seed": None}, {"base_random_seed": 3}, 3)],
)  # fmt: skip
def test_data_have_a_seed_of_their_own(tmp_path, flags, facts, seed):
    """Of a sweep, whose runs do not say what of the data is drawn, it is what was given."""
    record = {"flags": {**_FLAGS, "base_random_seed": 9, **flags}, "data": facts}
    assert _data(tmp_path, record).get("base_random_seed") == seed


def _from_python(options, facts):
    return {"flags": {"data": options, "base_random_seed": 7}, "data": facts}


def _facts(**options):
    return {"options": DataOptions("table", **options).deciding, "arguments": options}


_OF_TRAINER = {
    "flags": {"val_split": 0.3},  # What the data say of themselves counts.
    "data": {"base_random_seed": 0, "options": _facts(feature_columns=("x", "y"))["options"]},
}


@pytest.mark.parametrize(
    ("options", "facts", "words"),
    [
        ({}, _facts(feature_columns=("x", "y")) | {"base_random_seed": 0}, []),
        ({}, _facts(feature_columns=("x",)), ["feature_columns of a and b (x,y and x)"]),
        ({}, _facts(), ["feature_columns of a and b (x,y and None)"]),
        ({}, _facts(feature_columns=("x", "y"), max_clients=3, partition="iid"),
         ["partition of a and b (natural and iid)", "max_clients of a and b (None and 3)"]),
        ({"base_random_seed": 7}, _facts(feature_columns=("x", "y")),
         ["base_random_seed of a and b (0 and 7)"]),
        # Nothing is drawn; a task that was made in memory says nothing of its data.
        ({"base_random_seed": 7},
         _facts(feature_columns=("x", "y")) | {"base_random_seed": None}, []),
        ({}, {"source": "memory"}, []),
        # An earlier version has what was given, and what was not is unknown.
        ({"feature_columns": ["x"], "val_split": None}, {"options": {"val_split": None}},
         ["feature_columns of a and b (x,y and x)"]),
    ],
)  # fmt: skip
def test_options_of_a_run_from_python_and_of_a_trainers_run(tmp_path, options, facts, words):
    record = json.loads(json.dumps(_from_python(options, facts)))
    data = {"a": _data(tmp_path, _OF_TRAINER), "b": _data(tmp_path, record)}
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
        options = json.loads((ours / "run.json").read_text())["data"]["options"]
        expected = DataOptions("school", use_synthetic_data=True).deciding
        assert options == json.loads(json.dumps(expected))
        with in_process.eager.running(), in_process.small():
            others = python(base_random_seed=5), python(), python(base_random_seed=5, max_clients=2)
    data = {}
    for folder in (ours, *others):
        path = folder / "clients.csv"
        data[folder.name] = client_tables.evaluations(client_tables.read(path), path)[0].data
    assert comparable.differences(data, {}) == [
        "base_random_seed of ours and python (5 and 0)",
        "max_clients of ours and 5-2 (None and 2)",
    ]


def test_evaluation_rows_differ():
    """Of the clients that both have, and say of."""
    first = pd.DataFrame({"client_id": ["x", "y", "z"], "num_evaluation_examples": [5, 6, None]})
    other = pd.DataFrame({"client_id": ["w", "z", "y"], "num_evaluation_examples": [1, 9, 7]})
    data = {"a": {}, "b": {}}
    (line,) = comparable.differences(data, {"a": first, "b": other})
    assert line == "num_evaluation_examples of a and b, of 1 of 2 clients: y (6 and 7)"
    assert comparable.differences(data, {"a": first, "b": other[["client_id"]]}) == []
    with refused(finding=line, advice="anyway"):
        comparable.check(data, {"a": first, "b": other}, anyway=False)
    assert comparable.check(data, {"a": first, "b": other}, anyway=True) == [
        f"warning: the runs are not scored on the same: {line}"
    ]


def test_of_a_sweep_the_flags_that_all_its_runs_have_count(tmp_path):
    grid = {"fixed": [["partition", "dirichlet:1"]], "grid": [["max_clients", ["3", "5"]]]}
    plan = {"grid": grid, "use_synthetic_data": True}
    data = _data(tmp_path, {"flags": {}, "plan": plan, "setting": None})
    assert (data["partition"], data["use_synthetic_data"]) == ("dirichlet:1", True)
    assert not {"max_clients", "val_split"} & data.keys()
    (tmp_path / "sweep.csv").write_text("run_id,max_clients\np0_s1,3\np1_s1,5\n")
    (tmp_path / "tasks").mkdir()
    for number, files in enumerate(({}, {"a.csv": "12:ab"})):
        content = {"data_files": files, "runs": [{"run_id": f"p{number}_s1"}]}
        content["options"] = {"val_split": 0.15, "max_clients": 5 + number}
        (tmp_path / f"tasks/{number}.json").write_text(json.dumps(content))
    table = tmp_path / "clients.csv"
    data = comparable.of_table(table, "p1_s1", "1")
    names = ("max_clients", "val_split", "data_files", comparable.SEED)
    assert [data[name] for name in names] == [6, 0.15, ["12:ab"], "1"]
    # A run that has a directory of its own says more.
    (tmp_path / "runs/p0_s1").mkdir(parents=True)
    (tmp_path / "runs/p0_s1/run.json").write_text(json.dumps(_RECORD))
    assert comparable.of_table(table, "p0_s1")["label_range"] == [0.0, 10.0]
    assert comparable.of_table(tmp_path / "mine.csv") == {}
    with refused("run.json", "'list' object"):
        _data(tmp_path, [])
