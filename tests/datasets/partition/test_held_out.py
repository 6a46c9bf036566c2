"""Who validates and tests by name, of ten clients c0 to c9; the permutation is in `test_splits`."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from datasets.options import DataOptions
from datasets.partition import held_out, splits
from tests.errors import refused

SIZES = {f"c{i}": 5 for i in range(10)}
GROUPS = {i: "even" if int(i[1]) % 2 == 0 else "odd" for i in SIZES}
# Of Motley's permutation of ten: c3 c5 c6 c1 c4 c7 c8 c9 c0 c2.


def _options(**named):
    return DataOptions("table", **named)


def _split(sizes=types.MappingProxyType(SIZES), groups=types.MappingProxyType(GROUPS), **named):
    facts = {"client_groups": groups}
    split = splits.published_or_proportional(sizes, None, _options(**named), facts)
    return {name: set(getattr(split, name)) for name in splits.SPLITS}


def test_nobody_named_is_the_split_of_before():
    assert _split() == {
        "valid": {"c3"}, "test": {"c5"}, "train": {"c6", "c1", "c4", "c7", "c8", "c9", "c0", "c2"}
    }  # fmt: skip


def test_a_group_is_left_out_and_the_rest_is_split_as_before():
    split = _split(test_clients=("group=odd",))
    assert split["test"] == {"c1", "c3", "c5", "c7", "c9"}
    # c6 is the first of them in the permutation, and 12% of five is less than one.
    assert split["valid"] == {"c6"} and split["train"] == {"c0", "c2", "c4", "c8"}


def test_both_lists_leave_the_others_to_train():
    split = _split(valid_clients=("group=odd",), test_clients=("c0", "table:c2"))
    assert split["valid"] == {"c1", "c3", "c5", "c7", "c9"}
    assert split["test"] == {"c0", "c2"} and split["train"] == {"c4", "c6", "c8"}


def test_names_of_a_file(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("\ufeffc4\n\n  c9 \nc4\n", encoding="utf-8")
    assert _split(test_clients=(str(path), "c0"))["test"] == {"c0", "c4", "c9"}
    assert held_out.paths(_options(test_clients=(str(path), "c0"))) == [str(path)]


def test_the_order_of_names_decides_nothing():
    first = splits.published_or_proportional(SIZES, None, _options(test_clients=("c1", "c0")))
    second = splits.published_or_proportional(SIZES, None, _options(test_clients=("c0", "c1")))
    assert first == second and first.test == ("c0", "c1")


def test_a_published_split_keeps_its_other_part():
    published = {"train": ["c0", "c1", "c2"], "valid": ["c3", "c4"], "test": ["c5", "c6"]}
    sizes = {i: 5 for ids in published.values() for i in ids}
    split = splits.split_named(sizes, {"test": ["c1", "c3"]}, published)
    # c5 and c6, which nobody named, train now.
    assert split[:3] == (("c0", "c2", "c5", "c6"), ("c4",), ("c1", "c3"))
    with refused(finding="none of the 2 published valid", advice="valid_clients"):
        splits.split_named(sizes, {"test": ["c3", "c4"]}, published)


def test_a_client_that_cannot_be_halved_is_left_out():
    with refused(finding="no test client of 1"):
        _split({**SIZES, "c1": 1}, test_clients=("c1",))


@pytest.mark.parametrize(
    ("named", "place", "finding", "expected", "advice"),
    [
        ({"test_clients": ("c99",)}, "test_clients", "c99", "a client", "did you mean c9?"),
        ({"valid_clients": ("x",)}, "valid_clients", "x", "a client", "such as c0, group=VALUE"),
        ({"test_clients": ("group=all",)}, "test_clients", "group=all", "even, odd", ""),
        ({"valid_clients": ("c1",), "test_clients": ("group=odd",)},
         "test_clients", "c1", "valid_clients does not name", "out of one"),
        ({"test_clients": ("group=odd", "group=even")}, "test_clients", None, "not 0", "fewer"),
        ({"valid_clients": ("group=odd",), "test_clients": ("group=even",)},
         "test_clients", None, "at least 1 of 10 clients", "fewer"),
        ({"test_clients": ("gone.txt",)}, "test_clients", "gone.txt", "No such file", "path"),
    ],
)  # fmt: skip
def test_what_cannot_be_held_out(named, place, finding, expected, advice):
    with refused(place, finding, expected, advice):
        _split(**named)


def test_groups_that_nobody_knows_and_files_without_names(tmp_path):
    with refused("test_clients", "group=odd", "names of clients", "group_column"):
        _split(groups={}, test_clients=("group=odd",))
    for content, expected in ((b"\n \n", "empty"), (b"\xff\xfe", "other bytes")):
        path = tmp_path / "names.txt"
        path.write_bytes(content)
        with refused("valid_clients", str(path), expected):
            held_out.check(_options(valid_clients=(str(path),)), "cross_device")


@pytest.mark.parametrize("kind", ["arrays", "graph"])
def test_sources_of_several_splits_are_one(kind):
    data = {"train": {"a": np.arange(3)}, "valid": {"b": np.arange(4)}, "test": {"c": np.arange(5)}}
    members = {split: tuple(clients) for split, clients in data.items()}
    if kind == "arrays":
        source = splits.joined(data, members)
        assert {i: len(rows) for i, rows in source.items()} == {"a": 3, "b": 4, "c": 5}
        return
    loads = {
        split: functools.partial(_rows_in_graph, len(rows))
        for split, clients in data.items()
        for rows in clients.values()
    }
    load = tf.function(
        splits.joined(loads, members), input_signature=[tf.TensorSpec([], tf.string)]
    )
    assert [len(load(i)) for i in ("a", "c", "b")] == [3, 5, 4]


def _rows_in_graph(count, client_id):
    return tf.range(count)
