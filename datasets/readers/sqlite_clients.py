"""Clients in TFF's SQLite form, read one at a time from an id inside a graph.

Errors do not say the path: a data set puts it before them, with `errors.at`.
"""

import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from datasets.readers import files
from motley_tff.core.errors import UserError

_MAGIC = b"SQLite format 3\x00"
_TABLES = {
    "client_metadata": "client_id, split_name, num_examples",
    "examples": "client_id, split_name, serialized_example_proto",
}
# More than any client has (StackOverflow's largest: 194,167); a batch may be larger than its data.
_MAX_EXAMPLES = 2**20


class SqliteSplit(NamedTuple):
    """One split of a database."""

    sizes: dict[str, int]  # {client id: number of examples} as the database says, ids sorted.
    # string scalar -> string [n], a client's serialized `tf.train.Example`s in the database's
    # order; TensorFlow ops only, n at least 1.
    load_serialized: Callable[[tf.Tensor], tf.Tensor]

    def load_texts(
        self, client_id: tf.Tensor, *fields: str, limit: int | None = None
    ) -> list[tf.Tensor]:
        """Returns the string [n] of each field of a client's first examples."""
        spec = {field: tf.io.FixedLenFeature([], tf.string) for field in fields}
        parsed = tf.io.parse_example(self.load_serialized(client_id)[:limit], spec)
        return [parsed[field] for field in fields]


def open_split(path: Path, split_name: str) -> SqliteSplit:
    """Opens one split, such as `all_train`, of a database of TFF's form; UserError if the file is
    truncated, not SQLite, lacks TFF's tables or has no such split.
    """
    check_split(path, split_name)
    sizes = _client_sizes(path, split_name)
    # Only here: a run on other data should not wait for this import.
    from motley_tff.core.lazy import tff

    create_dataset = tff.simulation.datasets.SqlClientData(
        str(path), split_name
    ).serializable_dataset_fn

    def load_serialized(client_id: tf.Tensor) -> tf.Tensor:
        # The id becomes part of an SQL string, in which a quote is written twice.
        quoted = tf.strings.regex_replace(client_id, "'", "''")
        return create_dataset(quoted).batch(_MAX_EXAMPLES).get_single_element()

    return SqliteSplit(sizes, load_serialized)


def check_split(path: Path, split_name: str) -> None:
    """Checks what `open_split` does of a split."""
    names = split_names(path)
    if split_name not in names:
        raise UserError("", f"splits {names}", repr(split_name))


def texts(
    path: Path, split_name: str, field: str, only: Container[str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yields (client id, its texts) of all clients of a split, or those wanted, outside of graphs;
    UserError if an example is broken, lacks the field or has no UTF-8 in it.
    """
    with reading(path) as connection:
        rows = connection.execute(
            "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? "
            "ORDER BY client_id, rowid",
            (split_name,),
        )
        for client_id, of_client in itertools.groupby(rows, key=lambda row: row[0]):
            if only is None or client_id in only:
                yield client_id, [_text(serialized, field) for _, serialized in of_client]


def _text(serialized: bytes, field: str) -> str:
    try:
        example = tf.train.Example.FromString(serialized)
        return example.features.feature[field].bytes_list.value[0].decode()
    except Exception as error:  # protobuf's own, and what a missing or broken string raises
        problem = f"an example that is broken or has no {field} ({files.one_line(error)})"
        raise UserError("", problem) from error


def split_names(path: Path) -> list[str]:
    """Returns the splits of a database of TFF's form, sorted; UserError as `open_split`."""
    _check_whole(path)
    with reading(path) as connection:
        names = connection.execute("SELECT DISTINCT split_name FROM client_metadata").fetchall()
    return sorted(str(name) for (name,) in names)


def _check_whole(path: Path) -> None:
    """Checks that a file is a SQLite database with TFF's tables, as long as its header says."""
    with path.open("rb") as file:
        header = file.read(100)
    if not header.startswith(_MAGIC):
        raise UserError("", f"{header[:15]!r} at the start", "a SQLite database")
    page_bytes = int.from_bytes(header[16:18], "big")
    # Page size 65,536 does not fit in two bytes and is written as 1.
    expected = (65536 if page_bytes == 1 else page_bytes) * int.from_bytes(header[28:32], "big")
    size = path.stat().st_size
    if size < expected:
        advice = "delete it and copy or download it again, as it is truncated"
        raise UserError("", f"{size} bytes", f"{expected}", advice)
    with reading(path) as connection:
        for table, columns in _TABLES.items():
            connection.execute(f"SELECT {columns} FROM {table} LIMIT 0")  # Else it says which.


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database read-only; SQLite's errors become one line."""
    with files.readable_as("a TFF client database", sqlite3.Error):
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        with contextlib.closing(connection):
            yield connection


def _client_sizes(path: Path, split_name: str) -> dict[str, int]:
    with reading(path) as connection:
        rows = connection.execute(
            "SELECT client_id, SUM(num_examples) FROM client_metadata WHERE split_name = ? "
            "GROUP BY client_id ORDER BY client_id",
            (split_name,),
        ).fetchall()
    for client_id, size in rows:  # SQLite lets a column hold anything.
        if not isinstance(client_id, str) or not isinstance(size, int) or size < 0:
            problem = f"{size!r} examples of client {client_id!r}"
            raise UserError("table client_metadata", problem, "text and a whole number")
    # Sorted as TFF sorts them, by Python and not by the database: the client split depends on it.
    return dict(sorted(rows))
