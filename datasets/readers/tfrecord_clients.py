"""Clients as TFRecord files, one file a client, read from an id inside a graph."""

import concurrent.futures
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from motley_tff.core.errors import UserError

# A record is its length (8 bytes), a checksum of that (4), the data, and their checksum (4).
_LENGTH_BYTES, _FRAME_BYTES = 8, 16
# Waiting for the disk, not computing: more than there are cores.
_THREADS = 16
# More than any client has; a batch may be larger than its data.
_MAX_RECORDS = 2**20


class RecordFolder(NamedTuple):
    """A folder of clients, whose ids are file names."""

    sizes: dict[str, int]  # {client id: number of records}, sorted as TFF sorts them.
    num_bytes: int  # Of all files.
    ignored: list[str]  # Names that are no client's: hidden files and folders.
    # string scalar -> string [n], a client's records in order; TensorFlow ops only, n at least 1.
    load_serialized: Callable[[tf.Tensor], tf.Tensor]


def open_folder(folder: Path) -> RecordFolder:
    """Opens a folder with one TFRecord file a client, counting records by their headers, one small
    read a record. UserError names a file that is not a whole number of records.
    """
    entries = sorted(folder.iterdir(), key=lambda path: path.name)
    paths = [path for path in entries if path.is_file() and not path.name.startswith(".")]
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        sizes = dict(zip((p.name for p in paths), pool.map(count_records, paths), strict=True))
    prefix = f"{folder.resolve()}/"

    def load_serialized(client_id: tf.Tensor) -> tf.Tensor:
        records = tf.data.TFRecordDataset(tf.strings.join([prefix, client_id]))
        return records.batch(_MAX_RECORDS).get_single_element()

    return RecordFolder(
        sizes,
        sum(path.stat().st_size for path in paths),
        [path.name for path in entries if path.name not in sizes],
        load_serialized,
    )


def count_records(path: Path) -> int:
    """Returns a file's number of records, by their lengths; UserError if they do not fill it."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        position = count = 0
        while position < size:
            length = int.from_bytes(os.pread(file.fileno(), _LENGTH_BYTES, position), "little")
            end = position + _FRAME_BYTES + length
            if end > size:
                expected = f"at least {end} by the header of TFRecord {count}"
                advice = "delete it and write it again"
                raise UserError(str(path), f"{size} bytes", expected, advice)
            position, count = end, count + 1
    return count
