"""What every data set keeps to, also of installed packages, on its synthetic twin if it has one."""

import dataclasses
import importlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import datasets
from datasets import dealing
from motley_tff.core import client_work, clients as clients_lib, learning
from tests import synthetic
from tests.contracts import in_process
from tests.trainers import programs


def _names():
    installed = datasets.packages.installed()
    for name in datasets.names():
        is_ours = name in datasets.REGISTRY
        if is_ours or datasets.packages.takes(installed[name], "use_synthetic_data"):
            yield name


@pytest.fixture(scope="module", params=_names())
def name(request):
    return request.param


@pytest.fixture(scope="module")
def task(name):
    return synthetic.task(name)


@pytest.mark.parametrize("name", datasets.REGISTRY)
def test_the_module_opens_with_a_card(name):
    module = importlib.import_module(datasets.REGISTRY[name])
    for heading in ("Source:", "Licence:", "Clients:", "Fields:", "Split:", "Citation:"):
        assert heading in module.__doc__, heading


def test_splits(task, name):
    assert task.dataset == name
    sets = {split: set(clients.ids) for split, clients in task.splits.items()}
    assert all(sets.values())
    if name in datasets.REGISTRY.keys() - datasets.DEALT:
        assert set(task.facts["client_groups"]) == set.union(*sets.values())
    if task.setting == "cross_device":
        assert not (sets["train"] & sets["valid"] | sets["valid"] & sets["test"])
        assert not sets["train"] & sets["test"]
    else:
        assert sets["valid"] == sets["test"] <= sets["train"]


def test_every_evaluated_client_has_examples(task):
    for split in ("valid", "test"):
        clients = task.splits[split]
        for client_id in clients.ids:
            parts = clients.fetch(client_id)
            for part in (task.personalization_part(split), task.evaluation_part(split)):
                sizes = {len(values) for values in parts[part].values()}
                assert len(sizes) == 1 and sizes.pop() > 0


def test_sizes_are_those_of_the_clients(task):
    for clients in task.splits.values():
        for client_id in clients.ids[:5]:
            parts = clients.fetch(client_id).values()
            assert clients.sizes[client_id] == sum(map(clients_lib.num_rows, parts))


def test_loss_and_metrics_have_an_entry_an_example(task):
    examples = task.train.fetch(task.train.ids[0])["train"]
    rows = {field: tf.convert_to_tensor(values[:4]) for field, values in examples.items()}
    key = tf.constant([1, 2])
    x, y = task.preprocess(rows, False, key)
    outputs = task.model.predict(task.model.initial_weights(0), x, False, key)
    for function in learning.entry_functions(task).values():
        values, weights = function(y, outputs)
        assert values.shape == weights.shape and len(values) == 4
        assert np.all(np.isfinite(values)) and np.all(weights >= 0)


_FEW = (
    "--total_rounds=1", "--final_evaluation_clients=1", "--backend=sequential",
    "--max_examples_per_client=6",
)  # fmt: skip
# {data set: (trainer, flags of its own work)}, where it is not fine-tuning
_TRAINERS = {
    "adni": ("mtl_trainer", "--algorithm=ditto"),
    "celeba": ("hypcluster_trainer", "--num_clusters=2"),
    "table": ("knn_per_trainer", "--coefficients=0.5"),
}
# Landmarks take minutes.
_QUICK = [name for name in _names() if name != "landmark"]


@pytest.mark.parametrize("name", _QUICK)
def test_a_round_of_a_trainer(name, tmp_path):
    task = synthetic.task(name)
    trainer, own = _TRAINERS.get(name, ("finetuning_trainer", "--finetune_max_epochs=1"))
    flags = [f"--dataset_name={name}", *_FEW, own]
    if name in datasets.DEALT:
        flags += ["--partition=dirichlet:1", "--num_clients=3"]
    is_silos = task.setting == "cross_silo"
    flags.append("--max_clients=2" if is_silos else "--clients_per_train_round=1")
    with (
        mock.patch.object(datasets, "create_task", lambda options: dealing.cut(task, options)),
        in_process.opened(trainer) as run,
    ):
        run(tmp_path, "x", *flags)
    clients = programs.table(tmp_path, "x", "clients")
    assert set(clients.split) == {"valid", "test"} and set(clients.dataset) == {name}
    assert np.isfinite(clients[["baseline", "personalized", "baseline_loss"]]).all().all()
    if not is_silos:
        assert clients.groupby("split").size().tolist() == [1, 1]
    summary = programs.table(tmp_path, "x", "summary").set_index("split")
    for split, rows in clients.groupby("split"):
        assert summary.num_clients[split] == len(rows)
        assert summary.baseline_mean[split] == pytest.approx(rows.baseline.mean(), rel=1e-6)
        assert summary.pct_clients_hurt[split] == pytest.approx(100 * rows.is_hurt.mean())


@pytest.mark.slow
@pytest.mark.parametrize("name", _QUICK)
def test_the_seed_decides(name):
    def first(task):
        return task.train.fetch(task.train.ids[0])["train"]

    def made(**options):
        return datasets.create_task(synthetic.options_of(name, **options))

    one, same, other = first(synthetic.task(name)), first(made()), first(made(base_random_seed=7))
    for field in one:
        np.testing.assert_array_equal(one[field], same[field])
    assert any(
        np.shape(one[f]) != np.shape(other[f]) or not np.array_equal(one[f], other[f]) for f in one
    )


def test_tasks_and_passes_check_themselves(task):
    with pytest.raises(ValueError, match="lack the parts"):
        dataclasses.replace(
            task,
            setting="cross_silo" if task.setting == "cross_device" else "cross_device",
        )
    with pytest.raises(ValueError, match="metric"):
        dataclasses.replace(task, metrics=())
    with pytest.raises(ValueError, match="batch_size"):
        client_work.Pass("train", lambda c, b: c, 0)
