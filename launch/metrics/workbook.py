"""Tables as one Excel workbook: numbers as numbers, everything else as text, never as formulas.

A sheet is a plain range with a header that stays in sight, a row a record: what pivot tables take.
"""

import html
import io
import pathlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from launch.metrics.output import ShownTable
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

if TYPE_CHECKING:
    import pandas as pd

SUFFIX = ".xlsx"
# Excel's own; the header is one of the rows.
_MOST_ROWS, _MOST_COLUMNS, _MOST_CHARACTERS = 1_048_576, 16_384, 32_767
_WIDEST, _SAMPLED = 40, 200


class Sheet(NamedTuple):
    """A sheet: cells are str, bool, numbers, or None where there is nothing.

    `source` is where the same rows are without a limit.
    """

    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    source: str


def write(path: pathlib.Path, sheets: Iterable[Sheet]) -> None:
    """Writes a workbook, whole or not at all; UserError if a sheet has more rows, columns or
    characters in a cell than Excel takes, or the disk is full.
    """
    import xlsxwriter

    sheets = list(sheets)
    for sheet in sheets:
        fewer = "choose fewer by --round and --splits, or "
        _check(sheet, len(sheet.rows), "rows", _MOST_ROWS - 1, fewer)
        _check(sheet, len(sheet.header), "columns", _MOST_COLUMNS)
    whole = io.BytesIO()  # Of a file on a full disk, the library would try to close more than once.
    with (
        csv_files.replacing(path, "wb") as file,
        tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder,
    ):
        book = xlsxwriter.Workbook(whole, {"constant_memory": True, "tmpdir": folder})
        header = book.add_format({"bold": True, "bottom": 1})
        for sheet in sheets:
            _write(book.add_worksheet(sheet.name), sheet, header)
        book.close()
        file.write(whole.getbuffer())


def _check(sheet: Sheet, size: int, kind: str, most: int, advice: str = "") -> None:
    if size > most:
        advice = f"{advice}use {sheet.source}"
        raise UserError(f"sheet {sheet.name}", f"{size} {kind}", f"at most {most}", advice)


def _write(worksheet: Any, sheet: Sheet, header_format: Any) -> None:
    worksheet.freeze_panes(1, 0)
    if sheet.header:
        worksheet.autofilter(0, 0, len(sheet.rows), len(sheet.header) - 1)
    for c, name in enumerate(sheet.header):
        cells = (row[c] for row in sheet.rows[:_SAMPLED])
        texts = [cell if isinstance(cell, str) else f"{cell or 0:.9g}" for cell in cells]
        worksheet.set_column(c, c, min(_WIDEST, 2 + max(map(len, [name, *texts]))))
        worksheet.write_string(0, c, name, header_format)
    for r, row in enumerate(sheet.rows, 1):
        for c, cell in enumerate(row):
            if isinstance(cell, str):
                if len(cell) > _MOST_CHARACTERS:
                    kind = f"characters in a cell of column {sheet.header[c]!r}"
                    _check(sheet, len(cell), kind, _MOST_CHARACTERS)
                worksheet.write_string(r, c, _plain(cell))
            elif cell is not None:
                worksheet.write_number(r, c, cell)


def _plain(text: str) -> str:
    """Returns what the library writes as this text: `<r>...</r>` it takes for markup of its own."""
    if text.startswith("<r>") and text.endswith("</r>"):
        return f'<r><t xml:space="preserve">{html.escape(text, quote=False)}</t></r>'
    return text


def of_table(name: str, table: ShownTable, source: str) -> Sheet:
    """Returns the sheet of a table that motley_metrics prints."""
    rows = [[_cell(row.get(column)) for column in table.columns] for row in table.rows]
    return Sheet(name, list(table.columns), rows, source)


def of_frames(name: str, frames: Mapping[pathlib.Path, "pd.DataFrame"]) -> Sheet:
    """Returns the rows of several files' frames in one sheet, of their columns together."""
    header = list(dict.fromkeys(column for frame in frames.values() for column in frame.columns))
    rows = [
        [_cell(cell) for cell in row]
        for frame in frames.values()
        for row in frame.reindex(columns=header).itertuples(index=False, name=None)
    ]
    return Sheet(name, header, rows, f"the CSV, such as {next(iter(frames))}")


def _cell(value: Any) -> Any:
    """Returns what a cell holds: str, int, float of as many digits as in a CSV, or None."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, bool | np.bool_):
        return int(value)
    number = float(value)
    if not np.isfinite(number):
        return None
    if number.is_integer() and abs(number) < 2**53:
        return int(number)
    return float(csv_files.cell(number))
