"""Tables as one Excel workbook: numbers as numbers, everything else as text, never as formulas.

A sheet is a plain range with a header that stays in sight, a row a record: what pivot tables take.
"""

import html
import io
import pathlib
from collections.abc import Iterable, Mapping
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
_WIDEST = 300  # In pixels.
# Text stays text, whatever it looks like.
_OPTIONS = {f"strings_to_{kind}": False for kind in ("formulas", "numbers", "urls")}


class Sheet(NamedTuple):
    """A sheet: cells are str, bool, numbers, or None where there is nothing.

    `source` is where the same rows are without a limit.
    """

    name: str
    rows: "pd.DataFrame"
    source: str


def write(path: pathlib.Path, sheets: Iterable[Sheet]) -> None:
    """Writes a workbook, whole or not at all; UserError if a sheet has more rows, columns or
    characters in a cell than Excel takes, or the disk is full.
    """
    import pandas as pd

    sheets = list(sheets)
    for sheet in sheets:
        _check(sheet)
    whole, options = io.BytesIO(), {"options": {**_OPTIONS, "in_memory": True}}
    with pd.ExcelWriter(whole, engine="xlsxwriter", engine_kwargs=options) as book:
        for name, rows, _ in sheets:
            rows.map(_cell).to_excel(
                book, sheet_name=name, index=False, float_format="%.9g", freeze_panes=(1, 0)
            )
            book.sheets[name].autofilter(0, 0, len(rows), max(0, len(rows.columns) - 1))
            book.sheets[name].autofit(_WIDEST)
    with csv_files.replacing(path, "wb") as file:
        file.write(whole.getbuffer())


def _check(sheet: Sheet) -> None:
    longest = sheet.rows.map(lambda cell: len(cell) if isinstance(cell, str) else 0).max()
    kinds = [
        (f"characters in a cell of column {n!r}", m, _MOST_CHARACTERS) for n, m in longest.items()
    ]
    for kind, size, most in (
        ("rows", len(sheet.rows), _MOST_ROWS - 1),
        ("columns", len(sheet.rows.columns), _MOST_COLUMNS),
        *kinds,
    ):
        if size > most:
            advice = f"choose fewer by --round and --splits, or use {sheet.source}"
            raise UserError(f"sheet {sheet.name}", f"{size} {kind}", f"at most {most}", advice)


def _cell(value: Any) -> Any:
    """Returns a cell: text that the library does not take for its own `<r>...</r>`, a number, or
    None.
    """
    if not isinstance(value, str):
        return None if value is None or not np.isfinite(value) else value + 0
    if value.startswith("<r>") and value.endswith("</r>"):
        return f'<r><t xml:space="preserve">{html.escape(value, quote=False)}</t></r>'
    return value


def of_table(name: str, table: ShownTable, source: str) -> Sheet:
    """Returns the sheet of a table that motley_metrics prints."""
    import pandas as pd

    rows = pd.DataFrame(list(table.rows), dtype=object)
    return Sheet(name, rows.reindex(columns=list(table.columns)), source)


def of_frames(name: str, frames: Mapping[pathlib.Path, "pd.DataFrame"]) -> Sheet:
    """Returns the rows of several files' frames in one sheet, of their columns together."""
    import pandas as pd

    rows = pd.concat([frame.astype(object) for frame in frames.values()], ignore_index=True)
    return Sheet(name, rows, f"the CSV, such as {next(iter(frames))}")
