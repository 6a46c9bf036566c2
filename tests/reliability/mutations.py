"""Random damage: to any bytes, and to what is inside archives, tables and databases.

Every function takes a generator of random choices and what is to be damaged, and returns it
damaged: the same generator, the same damage.
"""

import contextlib
import csv
import io
import json
import pathlib
import random
import re
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from typing import Any

Damage = Callable[[random.Random, bytes], bytes]

# What stands where a number, a name or a path should.
ODD = (
    "", " ", "nan", "-inf", "inf", "1e400", "-1e400", "1e-400", "-0", "0", "-1", "1", "2", "0.5",
    "1e30", "3.5e38", "-3.5e38", "1e308", "2147483648", "4294967296", "9007199254740993",
    "18446744073709551616", "9" * 400, "9" * 5000, "0x10", "1_0", "1,5", "1e", "１", "²", "٣", "é",
    "日本", "\U0001f600", "\ufeff", "\u202e", "\u2028", "a\nb", "a\rb", "\t", "\x1b[2J", "\x00",
    '"', '""', "'", ",", ";", "=", "=1+1", "+1", "@x", "-x", "%s", "{}", "[]", "[[]]", "null",
    "true", "None", "x" * 300, "~", "~nobody_here/x", "..", "../../x", "/", ".", "/dev/null", "*",
    "[", "a,b", "a:b", "1:0", ":", "validated:1e-30", "min_examples:" + "9" * 5000,
)  # fmt: skip


def any_bytes(rng: random.Random, data: bytes) -> bytes:
    """Damages bytes in one to four places, or lets a text's byte order or line ends differ."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(_ON_BYTES)(rng, data)
    return data


def _flip(rng, data):
    if not data:
        return data
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


def _cut(rng, data):
    return data[: rng.randrange(len(data) + 1)]


def _splice(rng, data):
    """Puts something else in the place of a piece, which may be empty."""
    start, other = (rng.randrange(len(data) + 1) for _ in range(2))
    stop = min(len(data), start + rng.choice((0, rng.randrange(1, 16), rng.randrange(1, 200))))
    piece = data[start:stop]
    new = rng.choice((
        b"", piece * rng.choice((2, 3, 51)), data[other : other + rng.randrange(1, 200)],
        rng.randbytes(rng.randrange(1, 9)), rng.choice(ODD).encode(), b"\xff\xfe",
        rng.choice((b"\x00", b"\xff", b"\x7f", b"\x80")) * len(piece),
    ))  # fmt: skip
    return data[:start] + new + data[stop:]


def _other_text(rng, data):
    text = data.decode("utf-8", "replace")
    kind = rng.choice(("utf-16", "utf-8-sig", "latin-1", "crlf", "cr", "nul"))
    if kind in ("crlf", "cr"):
        return data.replace(b"\n", b"\r\n" if kind == "crlf" else b"\r")
    return data + b"\0" if kind == "nul" else text.encode(kind, "replace")


_ON_BYTES: tuple[Damage, ...] = (_flip, _flip, _cut, *[_splice] * 5, _other_text)


# --- tables ---------------------------------------------------------------------------------------


def table(rng: random.Random, data: bytes, separator: str = ",") -> bytes:
    """Damages cells, rows or columns of a text table."""
    rows = list(csv.reader(io.StringIO(data.decode()), delimiter=separator))
    for _ in range(rng.choice((1, 1, 2, 5))):
        rng.choice(_ON_ROWS)(rng, rows)
    out = io.StringIO()
    quoting = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    csv.writer(out, delimiter=separator, lineterminator="\n", quoting=quoting).writerows(rows)
    return out.getvalue().encode("utf-8", "surrogatepass")


def _cell(rng, rows):
    row = rng.choice(rows) if rows else None
    if row:
        row[rng.randrange(len(row))] = rng.choice(ODD)


def _row(rng, rows):
    """Puts other rows in the place of none, of one or of all that follow."""
    if rows:
        place = rng.randrange(len(rows))
        new = rng.choice(([], [[]], [[""]], [rows[place]], [[*rows[place], "x"]]))
        rows[place : place + rng.choice((0, 1, len(rows)))] = new


def _column(rng, rows):
    """Puts other cells in the place of a column's, perhaps not in the header."""
    place, odd = rng.randrange(1 + max(map(len, rows), default=0)), rng.choice(ODD)
    new = rng.choice(([], [odd], [odd, odd]))
    for row in rows[rng.choice((0, 1)) :]:
        row[place : place + 1] = new


_ON_ROWS = (_cell, _cell, _cell, _row, _row, _column, _column)


# --- JSON and YAML --------------------------------------------------------------------------------


def json_text(rng: random.Random, data: bytes) -> bytes:
    """Damages a value somewhere in JSON, or nests it beyond all measure."""
    if rng.random() < 0.05:
        return b"[" * 100_000
    value = [json.loads(data)]
    owner: Any = value
    key: Any = 0
    while isinstance(owner[key], (dict, list)) and owner[key] and rng.random() < 0.8:
        owner = owner[key]
        key = rng.choice(list(owner)) if isinstance(owner, dict) else rng.randrange(len(owner))
    odd = (None, True, 0, -1, 1e308, 10**400, [], {}, [[]], {"": None}, *ODD)
    if isinstance(owner, dict) and rng.random() < 0.3:
        del owner[key]
    else:
        owner[key] = rng.choice(odd)
    return json.dumps(value[0] if value else None).encode()


def yaml_text(rng: random.Random, data: bytes) -> bytes:
    """Puts something odd in the place of a word, or nests beyond all measure."""
    if rng.random() < 0.02:
        return data + b"\nx: " + b"[" * 5000
    words = list(re.finditer(rb"[^\s:,\[\]{}#]+", data))
    word = rng.choice(words)
    odd = rng.choice((*ODD, "&a [*a]", "*a", "!!python/object:os.system x", "!!binary x", "{a: b}"))
    text = rng.choice((odd, json.dumps(odd), f"[{odd}]")).encode()
    return data[: word.start()] + text + data[word.end() :]


# --- archives and databases -----------------------------------------------------------------------


def archive(rng: random.Random, data: bytes) -> bytes:
    """Damages a member of a zip file, or its name, and packs it again."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        members = [(info.filename, old.read(info)) for info in old.infolist()]
    place = rng.randrange(len(members))
    name, content = members[place]
    if name.endswith(".npy") and rng.random() < 0.5:
        members[place] = name, _array_header(rng, content)
    else:
        members[place] = rng.choice((
            (name, any_bytes(rng, content)), (rng.choice(ODD).strip("\x00") or "x", content),
            (f"../{name}", content), (name.upper(), content), (name + "x", content),
        ))  # fmt: skip
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as new:
        for entry in members:
            new.writestr(*entry)
    return out.getvalue()


def _array_header(rng, content):
    """Declares another type, order or shape of an array."""
    length = struct.unpack("<H", content[8:10])[0]
    header = content[10 : 10 + length].decode()
    types = ("|O", "<f8", ">f4", "<f2", "|b1", "<U9", "|S3", "<M8[s]", "<c16", "|V8", "<u8", "|i1")
    shapes = ("()", "(0,)", "(1,)", "(-1,)", "(2, 2)", "(10**9,)", f"({2**62},)", f"({10**13}, 7)",
              "(1.5,)", "None", "(" * 300)  # fmt: skip
    field, value = rng.choice((("descr", rng.choice(types)), ("shape", rng.choice(shapes))))
    quoted = f"'{value}'" if field == "descr" else value
    pattern = r"'descr': [^,]*" if field == "descr" else r"'shape': \([^)]*\)"
    changed = re.sub(pattern, f"'{field}': {quoted}", header).encode()
    changed = changed.rstrip() + b"\n"
    return content[:8] + struct.pack("<H", len(changed)) + changed + content[10 + length :]


def database(rng: random.Random, path: pathlib.Path) -> None:
    """Damages a cell, a row, a table's name, or the bytes of an SQLite file, in place."""
    if rng.random() < 0.3:
        path.write_bytes(any_bytes(rng, path.read_bytes()))
        return
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master "
                 "WHERE type = 'table' ORDER BY name")]  # fmt: skip
        name = rng.choice(names)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        column = rng.choice(columns)
        rows = [row[0] for row in connection.execute(f"SELECT rowid FROM {name}")]
        value = rng.choice((None, b"\xff", b"", -1, 0, 10**18, 1.5, float("inf"), *ODD))
        where = "" if rng.random() < 0.2 or not rows else f" WHERE rowid = {rng.choice(rows)}"
        statement = rng.choice((
            (f"UPDATE {name} SET {column} = ?{where}", (value,)),
            (f"UPDATE {name} SET {column} = ?{where}", (value,)),
            (f"UPDATE {name} SET {column} = substr({column}, 2){where}", ()),
            (f"DELETE FROM {name}{where}", ()),
            (f"ALTER TABLE {name} RENAME TO other", ()),
            (f"ALTER TABLE {name} RENAME COLUMN {column} TO other", ()),
        ))  # fmt: skip
        with contextlib.suppress(sqlite3.IntegrityError, UnicodeEncodeError):
            connection.execute(*statement)
            connection.commit()
