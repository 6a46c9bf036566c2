r"""CSV files as the project writes them.

UTF-8, RFC 4180 with `\n`, header first, one scalar a cell, empty for not applicable (never `nan`),
9 significant digits. A file is always whole: it is written to a temporary name and renamed.
"""

import contextlib
import csv
import functools
import itertools
import math
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from motley_tff.core.errors import UserError

# What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
# Numbers as text are numbers.
_NEGATIVE = re.compile(r"-[0-9.]+(e[-+]?[0-9]+)?", re.ASCII)
# What, beside a comma, stands in quotes only.
_SPECIAL = re.compile(r'["\r\n]')
# How `cell` writes the usual types; numbers that are not finite are none of them.
_FORMATS: dict[type, str] = {
    **dict.fromkeys([float, np.float32, np.float64], "%.9g"),
    **dict.fromkeys([bool, int, np.bool_, np.int32, np.int64], "%d"),
    str: "%s",
    type(None): "%.0s",
}


def cell(value: Any) -> str:
    """Returns a scalar as the text of a cell; anything else is a TypeError."""
    # Text first, then fractions: most cells are.
    if isinstance(value, str):
        return value
    if isinstance(value, (float, np.floating)):
        return format(float(value), ".9g") if math.isfinite(value) else ""
    if value is None:
        return ""
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return str(int(value))
    raise TypeError(f"Expected a scalar for a cell, found {type(value).__name__}: {value!r}.")


def _line(values: tuple[Any, ...]) -> str:
    r"""Returns a row as RFC 4180 has it, but for `\n` at its end.

    `csv.writer` takes four times as long, and does not quote a cell with `\r` where rows end in
    `\n`. Rows of the same types share a template; rows that need quotes are written cell by cell.
    """
    template = _template(tuple(map(type, values)))
    line = template % values if template else ""
    if line and _is_plain(line) and line.count(",") == len(values) - 1:
        return f"{line}\n"
    cells = list(map(cell, values))
    line = ",".join(map(_quoted, cells))
    return f"{line}\n" if line else '""\n'  # An empty line would be no row.


def _is_plain(line: str) -> bool:
    """Returns whether no cell needs quotes but for a comma, and none may be `nan` or `inf`."""
    return line.isprintable() and '"' not in line and "nan" not in line and "inf" not in line


@functools.cache
def _template(types: tuple[type, ...]) -> str | None:
    """Returns a format of rows with cells of these types, None if one is another scalar's."""
    return ",".join(_FORMATS[kind] for kind in types) if _FORMATS.keys() >= set(types) else None


def _quoted(text: str) -> str:
    if "," not in text and not _SPECIAL.search(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def formula_safe(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row with a `'` before text that a spreadsheet would run; for others' text."""
    return {name: f"'{value}" if _is_formula(value) else value for name, value in row.items()}


def formula_undone(text: str) -> str:
    """Returns text without the `'` that `formula_safe` put before it."""
    stripped = text.removeprefix("'")
    return stripped if text != stripped and _is_formula(stripped) else text


def _is_formula(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_FORMULA) and not _NEGATIVE.fullmatch(value)


@contextlib.contextmanager
def replacing(path: pathlib.Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a temporary file that takes `path`'s place once it is whole.

    On any error the old file stays as it was and the temporary one is removed. A full disk, or a
    directory that cannot be written, is a UserError.
    """
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    name = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(name, mode.replace("w", "x"), **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if not isinstance(error, OSError):
            raise
        reason = str(error.strerror or error)
        advice = "free some space or choose another directory: what was written before is whole"
        raise UserError(f"cannot write {path}", reason, advice=advice) from error


def _write_rows(
    file: IO[bytes],
    columns: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    optional: Collection[str],
) -> None:
    known, needed = set(columns), set(columns).difference(optional)
    whole: set[tuple[str, ...]] = set()  # The names of rows that were checked.
    for row in rows:
        names = tuple(row)
        if names not in whole:
            if not needed <= row.keys() <= known:
                raise ValueError(
                    f"A row lacks {sorted(needed - row.keys())} and has "
                    f"{sorted(row.keys() - known)}, which are no columns of {list(columns)}."
                )
            whole.add(names)
        file.write(_line(tuple(map(row.get, columns))).encode())


def write(
    path: pathlib.Path,
    columns: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    optional: Collection[str] = (),
) -> None:
    """Writes a table anew: rows are `{column: scalar}`, None leaves a cell empty.

    Columns are in order; a row may leave out those that are `optional`: empty cells, too. One that
    lacks another or has a key that is no column is a ValueError.
    """
    header = dict(zip(columns, columns, strict=True))
    with replacing(path, "wb") as file:
        _write_rows(file, columns, itertools.chain([header], rows), optional)


def append(
    path: pathlib.Path,
    columns: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    optional: Collection[str] = (),
    later: Collection[str] = (),
) -> None:
    """Adds rows to a table, or starts it; the file is replaced whole. See `write`.

    Raises a UserError if the table that is there has other columns. If it lacks columns that are
    `later`, those of an earlier version's do, its rows get empty cells.
    """
    if not path.exists():
        write(path, columns, rows, optional)
        return
    header = _line(tuple(columns)).encode()
    with open(path, "rb") as old:
        is_same = old.read(len(header)) == header
        old.seek(0)
        names = old.readline().decode(errors="replace").strip().split(",")
    if not is_same and names == [name for name in columns if name in names or name not in later]:
        write(path, columns, itertools.chain(read(path), rows), [*optional, *later])
        return
    if not is_same:
        unlike = sorted(set(names) ^ set(columns)) or columns
        columns_of = f"columns that differ from this version's ({', '.join(unlike)})"
        advice = "go on with the version that began it, or begin again in another directory"
        raise UserError(str(path), columns_of, advice=advice)
    with replacing(path, "wb") as file:
        with open(path, "rb") as old:
            shutil.copyfileobj(old, file)
        _write_rows(file, columns, rows, optional)


def read(path: pathlib.Path) -> Iterator[dict[str, str]]:
    """Yields a table's rows as text; UserError if it is no UTF-8 CSV or a row's length differs."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            columns = next(reader, None)
            if not columns:
                raise UserError(str(path), "nothing", "a header line")
            for row in reader:
                if len(row) != len(columns):
                    place = f"{path} line {reader.line_num}"
                    raise UserError(place, f"{len(row)} cells", f"{len(columns)}")
                yield dict(zip(columns, row, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(str(path), str(error), "a CSV file in UTF-8") from error
    except OSError as error:
        raise UserError(str(path), error.strerror, "a CSV file that can be read") from error


def keep_rounds(path: pathlib.Path, last_round: int) -> None:
    """Drops the rows of rounds after `last_round`, where a resumed run goes on."""
    rows = read(path) if path.exists() else ()
    columns = next((list(row) for row in rows if _round(path, row) > last_round), None)
    if columns:
        write(path, columns, (row for row in read(path) if _round(path, row) <= last_round))


def rounds(path: pathlib.Path) -> set[int]:
    """Returns the rounds that a table has rows of."""
    return {_round(path, row) for row in read(path)} if path.exists() else set()


def _round(path: pathlib.Path, row: Mapping[str, str]) -> int:
    try:
        return int(row["round"])
    except (KeyError, ValueError) as error:
        problem, advice = repr(row.get("round")), "move the directory away"
        raise UserError(f"{path} round", problem, "a whole number", advice) from error
