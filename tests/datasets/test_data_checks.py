"""What is odd about clients' examples, on tables of a few rows."""

import numpy as np

from datasets import data_checks
from datasets.partition import splits
from tests import synthetic, toy


def _table(**rows):
    """Returns clients of rows (a, b, label)."""
    return {
        client: dict(
            zip(("a", "b", "label"), map(np.array, zip(*columns, strict=True)), strict=True)
        )
        for client, columns in rows.items()
    }


def test_what_is_in_order_is_not_mentioned():
    clients = _table(x=[("1", "u", "0"), ("2", "v", "1")], y=[("3", "u", "0"), ("4", "u", "1")])
    assert data_checks.findings(clients, "label") == []
    assert data_checks.findings({}) == []


def test_constant_columns_and_clients_of_one_label():
    clients = _table(x=[("1", "u", "0"), ("1", "v", "0")], y=[("1", "q", "0"), ("1", "w", "1")])
    constant, single = data_checks.findings(clients, "label")
    assert constant == "constant, and so of no use: a (1)"
    assert single.startswith("clients with one label only: 1 of 2 (x);")
    (alone,) = data_checks.findings(clients)
    assert alone == constant


def test_a_column_that_tells_the_label():
    rows = [("1", "u", "0"), ("2", "v", "1"), ("3", "u", "0")]
    (line,) = data_checks.findings(_table(x=rows), "label")
    assert line.startswith("column b tells the label outright")
    assert data_checks.findings(_table(x=[*rows, ("4", "v", "0")]), "label") == []
    lines = data_checks.findings(_table(x=[("1", "u", "0"), ("2", "u", "0")]), "label")
    assert not any("outright" in line for line in lines)


def test_equal_examples_in_a_client_and_in_several():
    once, other = ("1", "u", "0"), ("2", "v", "1")
    clients = _table(x=[once, once, other], y=[once, ("9", "w", "1")], z=[("8", "u", "0")])
    lines = data_checks.findings(clients)
    assert lines[0] == (
        "duplicated: 1 of 6 examples stand more than once in a client (x), and may be in what "
        "trains and in what evaluates"
    )
    assert lines[1].startswith("in several clients: 3 of 6 examples have an equal one in another")
    assert "(such as x, y)" in lines[1] and len(lines) == 2


def test_pictures_are_compared_whole():
    picture = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    clients = {"a": {"pixels": picture}, "b": {"pixels": picture.copy()}}
    assert "2 of 2 examples" in data_checks.findings(clients)[0]
    clients["b"]["pixels"][0, 1, 1, 2] += 1
    assert data_checks.findings(clients) == []


def test_ids_that_look_alike():
    clients = {i: {"a": np.array([i])} for i in ("Ann", "ann ", "007", "7", "0", "Bob")}
    (line,) = data_checks.findings(clients)
    assert line.endswith("'Ann' and 'ann ', '007' and '7'")
    assert data_checks.listed(list("abcde")) == "a, b, c and 2 more"


def test_a_tasks_examples_are_all_parts_of_all_clients():
    task = toy.scalar_task({"a": [1.0, 2.0]}, {"v": ([3.0], [4.0])})
    examples = data_checks.task_examples(task)
    assert list(examples) == ["a", "v"]
    assert next(iter(examples["v"].values())).tolist() == [3.0, 4.0]
    school = synthetic.task("school")
    sizes = {i: len(x["target"]) for i, x in data_checks.task_examples(school).items()}
    assert sizes == dict(school.train.sizes)
    assert set(school.train.fetch("school_000")) == {*splits.SPLITS}
