"""Reads tables strictly: what is wrong is one line with the file, the line and the column.

Lines are counted as spreadsheets do: the header is line 1.
"""

import csv
import io
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.tables import columns

if TYPE_CHECKING:
    import pandas as pd  # Takes 0.3 s.

# Up to here float64 tells whole numbers apart.
_MOST = 2.0**53
_CSV = "a CSV file in UTF-8, with a header line"


class CsvFile(NamedTuple):
    """A CSV file: its bytes, without the last line's end, and the names in its first line."""

    path: pathlib.Path
    data: bytes
    header: list[str]


def open_file(path: str | os.PathLike[str]) -> CsvFile:
    """Opens a CSV file; a UserError if it is empty or no UTF-8 text, or a name stands twice."""
    path = pathlib.Path(path)
    with errors.at(path):
        try:
            data = path.read_bytes().rstrip(b"\r\n")
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}") from error
        if b"\0" in data:
            raise UserError("", "NUL bytes", _CSV)
        header = next(_rows(data), None)
        if not header:
            raise UserError("", "no header line", _CSV)
        if twice := [name for name in header if header.count(name) > 1]:
            raise UserError("", f"two columns {twice[0]!r}", "each name once")
    return CsvFile(path, data, header)


def require(
    file: CsvFile, names: Iterable[str], advice: str = "give a table that a run wrote"
) -> None:
    """Raises a UserError unless the header has some names; `advice` says what to do."""
    missing = [name for name in names if name not in file.header]
    if missing and len(file.header) == 1 and (separator := re.search(r"[;\t|]", file.header[0])):
        raise UserError(str(file.path), f"cells separated by {separator[0]!r}", "commas")
    if missing:
        header, lacking = ", ".join(file.header), ", ".join(missing)
        raise UserError(str(file.path), f"columns {header}", f"columns {lacking}, too", advice)


def read(
    file: CsvFile,
    table: str,
    names: Mapping[str, str] | None = None,
    guess: bool = False,
    with_cell: str | None = None,
) -> "pd.DataFrame":
    """Returns a table whose cells are what `columns` says: float64 or text, "" where there is none.

    Args:
      table: Which table of `columns.TABLES` it is.
      names: `{our name: the file's}` of the columns to read; by default all, under their names.
      guess: Whether a column that is none of the table's has numbers unless all cells are words;
        else it is text.
      with_cell: A column: rows in which its cell is empty are left out.

    Raises:
      UserError: If a line has more or fewer cells than the header, or a cell is not what it should
        be.
    """
    # A column without a name is pandas's index.
    names = {name: name for name in file.header if name} if names is None else dict(names)
    known_columns = {name: columns.find(table, name) for name in names}
    numeric = [name for name, column in known_columns.items() if column and column.kind != "text"]
    with errors.at(file.path):
        counts = [max(1, len(row)) for row in _rows(file.data)]  # A blank line is an empty cell.
        for line, count in enumerate(counts, 1):
            if count != counts[0]:
                raise UserError(f"line {line}", f"{count} cells", str(counts[0]))
        try:
            frame = _parse(file, names, numeric)
        except ValueError:
            frame = _parse(file, names, [])
            for name in numeric:
                frame[name] = _numbers(names[name], frame[name])
        frame = frame if with_cell is None else frame[frame[with_cell].notna()]
        frame.attrs["names"] = names
        for name in [name for name, column in known_columns.items() if guess and not column]:
            if not all(text and not _is_number(text) for text in frame[name]):
                frame[name] = _numbers(names[name], frame[name])
                numeric.append(name)
        for name in numeric:
            refuse(frame, name, np.isinf(frame[name]), "a finite number")
            _check_kind(frame, name, known_columns[name])
    return frame


def refuse_no_rows(frame: "pd.DataFrame") -> None:
    """Raises a UserError if a table has no rows."""
    if frame.empty:
        raise UserError("", "a header and no rows", "a row per client")


def refuse(frame: "pd.DataFrame", name: str, bad: Any, expected: str, advice: str = "") -> None:
    """Raises a UserError for the first row where `bad` holds: bool [rows]."""
    for i in np.flatnonzero(bad):
        value, column = frame[name].iloc[i], frame.attrs["names"][name]
        text = "an empty cell" if value == "" or value != value else f"{value:g}"
        raise UserError(f"line {frame.index[i] + 2}, column {column!r}", text, expected, advice)


def _check_kind(frame: "pd.DataFrame", name: str, column: columns.Column | None) -> None:
    cells = frame[name]
    if column and column.kind == "binary":
        bad, expected = ~cells.isin((0, 1)), "0 or 1"
    elif column and column.kind == "count":
        bad = ~((cells >= 0) & (cells % 1 == 0) & (cells <= _MOST))
        expected = "a whole number, 0 or more (to 2^53)"
    else:
        return
    if column.can_be_empty:
        bad, expected = bad & cells.notna(), f"{expected}, or nothing"
    refuse(frame, name, bad, expected)


def _rows(data: bytes) -> Iterator[list[str]]:
    """Yields rows as csv reads them, slowly."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
    try:
        yield from csv.reader(text, strict=True)
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError("", str(error), _CSV) from error


def _parse(file: CsvFile, names: Mapping[str, str], numeric: Sequence[str]) -> "pd.DataFrame":
    import pandas as pd  # Takes 0.3 s.

    types = {header: float if name in numeric else str for name, header in names.items()}
    frame = pd.read_csv(
        io.BytesIO(file.data), usecols=list(types), dtype=types, keep_default_na=False,
        na_values={names[name]: [""] for name in numeric}, index_col=False, encoding="utf-8-sig",
        skip_blank_lines=False, float_precision="round_trip",
    )  # fmt: skip
    return frame.rename(columns={header: name for name, header in names.items()})


def _is_number(text: str) -> bool:
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False


def _numbers(name: str, cells: "pd.Series") -> "pd.Series":
    """Returns cells of text as numbers, or says which one is none."""
    import pandas as pd  # Takes 0.3 s.

    numbers = pd.to_numeric(cells, errors="coerce").astype(np.float64)
    for i in np.flatnonzero(numbers.isna() & (cells != "")):
        raise UserError(f"line {i + 2}, column {name!r}", repr(cells[i]), "a number")
    return numbers
