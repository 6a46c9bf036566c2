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


def _clients(num_clients=4, rows=10, **columns):
    """Returns a table's cells by client; columns are functions of (client, row of it)."""
    return {
        f"c{i}": {
            name: np.array([cell(i, j) for j in range(rows)], object)
            for name, cell in columns.items()
        }
        for i in range(num_clients)
    }


def test_columns_that_rarely_mean_anything():
    words = ("came back", "saw us today", "is well again")
    clients = _clients(
        y=lambda i, j: str(j % 2), age=lambda i, j: str(20 + (i * j * 7) % 11),
        visit=lambda i, j: str(j + 1), row=lambda i, j: str(10 * i + j),
        customer=lambda i, j: f"C{(i * 10 + j) * 7919 % 9973}", clinic=lambda i, j: f"Clinic {i}",
        note=lambda i, j: f"{words[j % 3]} {chr(97 + i)} {j}",
    )  # fmt: skip
    rows, identifiers, names, texts, flag = data_checks.columns_to_ignore(clients, "y", ("old",))
    assert rows.endswith(": visit, row") and identifiers.endswith(": customer")
    assert names.endswith(": clinic") and texts.endswith(": note")
    assert flag.endswith("--ignore_columns=old,visit,row,customer,clinic,note")


def test_columns_that_mean_something_are_not_mentioned():
    clients = _clients(
        y=lambda i, j: str(i * 10 + j), age=lambda i, j: str(20 + (i * j * 7) % 11),
        colour=lambda i, j: ("red", "light blue")[j % 2], price=lambda i, j: f"{i}.{j}",
        same=lambda i, j: "a",
    )  # fmt: skip
    assert data_checks.columns_to_ignore(clients, "y") == []
    few = _clients(2, 3, y=lambda i, j: "a", visit=lambda i, j: str(j))
    assert data_checks.columns_to_ignore(few, "y") == []


def test_how_many_there_are_of_each_class():
    clients = _clients(3, 4, y=lambda i, j: "rare" if i == j == 0 else "no")
    (line,) = data_checks.class_counts(clients, "y")
    assert line.endswith("no 11 (92%, in 3), rare 1 (8%, in 1)")
    numbers = {"a": {"label": np.array([0, 1, 1, -1])}}
    (line,) = data_checks.class_counts(numbers, "label", ("cat", "dog"))
    assert line.endswith("dog 2 (50%, in 1), cat 1 (25%, in 1), -1 1 (25%, in 1)")
    assert data_checks.class_counts({}, "y") == data_checks.class_counts(clients, None) == []
