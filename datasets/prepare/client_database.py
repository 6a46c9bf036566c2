"""The SQLite form in which TFF keeps clients, as the preparations write it."""

import collections
import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from motley_tff.core import errors
from motley_tff.core.errors import UserError

_TABLES = (
    "CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL, "
    "serialized_example_proto BLOB NOT NULL)",
    "CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL, "
    "num_examples INTEGER NOT NULL)",
)
_OUTPUT = errors.name("output")

# Reasons why something was skipped, and how often.
Skipped = collections.Counter[str]


class Unusable(Exception):
    """Something that is skipped; the message is the reason it is counted under."""


def check_output(output: Path, suffix: str) -> None:
    """Checks that an output is named as its loader expects, and makes its folder."""
    if output.suffix != suffix or output.is_dir():
        raise UserError(_OUTPUT, str(output), f"the name of a file that ends in {suffix}")
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)


def listed(counts: Mapping[str, int]) -> str:
    """Returns `3 of this, 1 of that`."""
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nothing"


@contextlib.contextmanager
def writing(output: Path) -> Iterator[None]:
    """Has errors of the file system and the database say that an output cannot be written."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        expected = f"what can be written ({getattr(error, 'strerror', None) or error})"
        advice = "make room or name another place"
        raise UserError(_OUTPUT, str(output), expected, advice) from error


@contextlib.contextmanager
def create(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a new database with TFF's tables, committed at the end; `scratch` is another that
    SQLite deletes. Nobody else may see the file before.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "ATTACH '' AS scratch",
            "PRAGMA scratch.journal_mode = OFF",
            "BEGIN",
            *_TABLES,
        ):
            connection.execute(statement)
        yield connection
        connection.execute("COMMIT")


def insert(
    connection: sqlite3.Connection,
    split: str,
    client_id: str,
    examples: Iterable[Mapping[str, str | int]],
) -> None:
    """Adds examples of a client: the fields of each."""
    rows = ((split, client_id, _serialized(fields)) for fields in examples)
    connection.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)


def finish(connection: sqlite3.Connection) -> None:
    """Makes the index that a client is read by, and counts the clients' examples."""
    connection.execute("CREATE INDEX examples_of_client ON examples (split_name, client_id)")
    connection.execute(
        "INSERT INTO client_metadata SELECT client_id, split_name, COUNT(*) FROM examples "
        "GROUP BY split_name, client_id"
    )


def _serialized(fields: Mapping[str, str | int]) -> bytes:
    """Returns a `tf.train.Example`."""
    # Here and not above: a wrong flag should not wait for TensorFlow.
    from tensorflow.core.example import example_pb2, feature_pb2

    def feature(value: str | int) -> feature_pb2.Feature:
        if isinstance(value, int):
            return feature_pb2.Feature(int64_list=feature_pb2.Int64List(value=[value]))
        return feature_pb2.Feature(bytes_list=feature_pb2.BytesList(value=[value.encode()]))

    features = feature_pb2.Features(feature={name: feature(v) for name, v in fields.items()})
    return example_pb2.Example(features=features).SerializeToString(deterministic=True)
