"""Examples dealt to other clients and cut: who owns what, under every kind of task."""

import dataclasses

import numpy as np
import pytest

import datasets
from datasets.options import DataOptions
from datasets.partition import dealing
from motley_tff.core import clients
from tests import synthetic, toy
from tests.errors import refused


def _deal(task, **options):
    return dealing.apply(task, DataOptions("emnist", **options))


def _rows(task, field="x"):
    """Returns every example of a task, once, sorted."""
    clients = {i: c.fetch(i) for c in task.splits.values() for i in c.ids}
    parts = [part for of_client in clients.values() for part in of_client.values()]
    rows = np.concatenate([np.asarray(part[field]) for part in parts])
    return rows[np.lexsort(rows.T)]


@pytest.fixture(scope="module")
def devices():
    return toy.classifier_task(8, (7, 12, 3, 20, 9))


@pytest.mark.parametrize("partition", ["iid", "classes:2", "dirichlet:0.5"])
def test_every_example_has_one_owner(devices, partition):
    dealt = _deal(devices, partition=partition, num_clients=9)
    np.testing.assert_array_equal(_rows(dealt), _rows(devices))
    ids = [i for source in dealt.splits.values() for i in source.ids]
    suffix = dealt.facts["partition_sha256"][:6]
    assert sorted(ids) == [f"client_{i}_{suffix}" for i in range(9)]
    assert [len(c) for c in dealt.splits.values()] == [7, 1, 1]
    for i in dealt.test.ids:
        sizes = [len(part["y"]) for part in dealt.test.fetch(i).values()]
        assert min(sizes) >= 1 and abs(sizes[0] - sizes[1]) <= 1


def test_the_seed_decides_and_the_record_tells(devices):
    first, same, other = (
        _deal(devices, partition="dirichlet:0.5", base_random_seed=seed).facts for seed in (1, 1, 2)
    )
    assert first["partition_sha256"] == same["partition_sha256"] != other["partition_sha256"]
    counts = np.array(list(first["class_counts"].values()))
    assert counts.shape == (24, 3) and first["classes"] == ["0", "1", "2"]
    # As many clients as there were, and all examples.
    assert counts.sum() == len(_rows(devices))


def test_silos_are_pooled_whole_and_split_by_their_shares():
    task = datasets.create(
        "vehicle", use_synthetic_data=True, partition="dirichlet:1", num_clients=5,
        val_split=0.2, test_split=0.2,
    )  # fmt: skip
    before = synthetic.task("vehicle")
    assert len(task.train) == 5 and task.train is task.valid is task.test
    assert len(_rows(task, "features")) == len(_rows(before, "features"))
    parts = task.test.fetch(task.test.ids[0])
    total = sum(len(part["target"]) for part in parts.values())
    assert len(parts["test"]["target"]) == int(np.ceil(0.2 * total))


def test_what_is_known_of_natural_clients_is_dropped(devices):
    facts = {"client_groups": {"t0": "a"}, "clients_left_out": {}}
    dealt = _deal(dataclasses.replace(devices, facts=facts), partition="iid", num_clients=20)
    assert "client_groups" not in dealt.facts and "clients_left_out" in dealt.facts


def test_fewer_clients_are_the_same_under_every_seed(devices):
    first, other = (_deal(devices, max_clients=12, base_random_seed=seed) for seed in (1, 2))
    for split in ("train", "valid", "test"):
        assert first.splits[split].ids == other.splits[split].ids
        assert len(first.splits[split]) == 4
        assert set(first.splits[split].ids) < set(devices.splits[split].ids)


def test_fewer_silos_stay_one_population():
    silos = toy.classifier_silos((7, 12, 3, 20))
    cut = dealing.cut(silos, DataOptions("school", max_clients=2))
    assert len(cut.train) == 2 and cut.train is cut.valid is cut.test


def test_dealt_clients_may_be_fewer_and_the_record_is_of_those_left(devices):
    whole = _deal(devices, partition="classes:1", num_clients=12)
    cut = _deal(devices, partition="classes:1", num_clients=12, max_clients=6)
    ids = {i for source in cut.splits.values() for i in source.ids}
    counts = whole.facts["class_counts"]
    for client_id in whole.train.ids:
        labels = whole.train.fetch(client_id)["train"]["y"]
        assert np.bincount(labels, minlength=3).tolist() == counts[client_id]
        assert len(set(labels.tolist())) == 1
    assert 3 <= len(ids) < 12
    assert cut.facts["class_counts"] == {i: n for i, n in counts.items() if i in ids}
    fewer = _deal(devices, partition="classes:1", num_clients=12, max_examples_per_client=4)
    assert "class_counts" not in fewer.facts  # Which was of all examples.


def test_silos_get_enough_for_their_shares():
    """Of .45 and .45, 10 examples would leave none to train on: drawn again, not refused."""
    for seed in range(2):
        task = datasets.create(
            "cifar10", use_synthetic_data=True, partition="dirichlet:0.1", num_clients=20,
            setting="cross_silo", val_split=0.45, test_split=0.45, base_random_seed=seed,
        )  # fmt: skip
        parts = [task.test.fetch(i) for i in task.test.ids]
        assert all(len(part["label"]) for of_client in parts for part in of_client.values())


def test_fewer_examples_keep_the_proportions_of_parts_and_their_order(devices):
    cut = _deal(devices, max_examples_per_client=10)
    for split, source in cut.splits.items():
        for i in source.ids:
            before, after = (t.splits[split].fetch(i) for t in (devices, cut))
            sizes = {part: len(fields["y"]) for part, fields in before.items()}
            for part, fields in after.items():
                total = sum(sizes.values())
                kept = max(1, sizes[part] * 10 // total) if total > 10 else sizes[part]
                assert len(fields["y"]) == kept
                places = [np.flatnonzero((before[part]["x"] == x).all(1))[0] for x in fields["x"]]
                assert places == sorted(places) and len(set(places)) == kept


def test_loaded_in_a_graph_as_in_memory():
    task = toy.classifier_task(4)
    first_id = task.train.ids[0]
    parts = {p: dict(f) for p, f in task.train.fetch(first_id).items()}
    in_graph = clients.InGraphClients([first_id], lambda client_id: parts, {first_id: 7})
    here, there = (
        dealing._fewer_examples(source, 4).fetch(first_id)["train"]["x"]
        for source in (in_graph, clients.subset(task.train, [first_id]))
    )
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize(
    ("options", "place", "problem", "expected", "advice"),
    [
        ({"partition": "classes:4"}, "partition", "classes:4", "3 classes", ""),
        ({"partition": "classes:1", "num_clients": 2}, "partition", "classes:1", "all 3", ""),
        ({"partition": "dirichlet:0.01", "num_clients": 60, "min_examples": 3},
         "partition", "dirichlet:0.01", "least 3 examples", "lower min_examples"),
        ({"max_clients": 2}, "max_clients", 2, "3 or more", ""),
        ({"partition": "iid", "num_clients": 1}, "", "1 client", "several", ""),
        ({"partition": "iid", "num_clients": 900}, "num_clients", 900, "least 2", ""),
        ({"partition": "iid", "num_clients": 9, "memory_limit_gb": 1e-7},
         "memory_limit_gb", 1e-7, "more", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_dealt(devices, options, place, problem, expected, advice):
    with refused(place, problem, expected, advice):
        _deal(devices, **options)


@pytest.mark.parametrize("options", [{}, {"min_examples": 2}])
def test_what_was_not_given_or_is_no_more_than_splits_need_cannot_be_lowered(devices, options):
    with refused("partition", "dirichlet:0.01", advice="fewer clients or") as caught:
        _deal(devices, partition="dirichlet:0.01", num_clients=60, **options)
    assert "min_examples" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "place", "problem", "expected"),
    [
        ("school", {"partition": "classes:2"}, "partition", "classes:2", "iid"),
        ("emnist", {"num_clients": 3}, "num_clients", 3, "partition=iid"),
        ("emnist", {"min_examples": 3}, "min_examples", 3, "partition=iid"),
        ("emnist", {"partition": "iid", "min_examples": 3}, "min_examples", 3, "num_clients"),
        ("emnist", {"partition": "iid", "num_clients": 1}, "num_clients", 1, "at least 2"),
        ("emnist", {"max_clients": 0}, "max_clients", 0, "at least 1"),
        ("cifar10", {}, "partition", "natural", "iid, classes:K"),
        ("cifar10", {"partition": "iid", "val_split": 0.2}, "val_split", 0.2, "silos"),
        ("cifar10", {"partition": "iid", "l2_reg": 0.2}, "l2_reg", 0.2, "silos"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(name, options, place, problem, expected):
    with refused(place, problem, expected):
        datasets.create(name, use_synthetic_data=True, **options)


def test_large_clients_keep_as_many_as_they_may():
    """100,000 examples times a limit of 50,000 are no int32."""
    many = {"train": {"x": np.arange(100_000)}, "test": {"x": np.arange(10)}}
    kept = dealing._fewer_examples(clients.InMemoryClients({"a": many}), 50_000).fetch("a")
    assert [len(kept[part]["x"]) for part in ("train", "test")] == [49_995, 4]


def test_labels_of_no_known_class_are_nobodys(devices):
    client_id = devices.train.ids[0]
    data = {i: {"train": dict(devices.train.fetch(i)["train"])} for i in devices.train.ids}
    labels = np.full_like(data[client_id]["train"]["y"], -1)
    data[client_id]["train"]["y"] = labels
    odd = dataclasses.replace(
        devices, train=clients.InMemoryClients(data), label_names=("a", "b", "c")
    )
    dealt = _deal(odd, partition="classes:1", num_clients=9)
    assert dealt.facts["examples_left_out_of_no_known_class"] == len(labels)
    assert dealt.facts["classes"] == ["a", "b", "c"]
    assert len(_rows(dealt)) == len(_rows(devices)) - len(labels)
