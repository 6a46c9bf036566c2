"""Tables as text, CSV, Markdown and LaTeX, in which no foreign cell is more than a cell."""

import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from motley_tff.core import errors
from motley_tff.core.errors import UserError, printable
from motley_tff.files import csv_files, text_tables

SUFFIXES = (".csv", ".md", ".tex")
_OUTPUT = errors.name("output")
_MARKDOWN = re.compile(r"[\\`*\[\]<>&~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "\"": r"\textquotedbl{}",
    **{character: rf"\{character}" for character in "&%$#_{}"},
}  # fmt: skip


class ShownTable(NamedTuple):
    """Rows of scalars by column (None, nan or nothing where there is none), and notes, a line each.

    Only the columns named are shown, in their order.
    """

    columns: Sequence[str]
    rows: Iterable[dict[str, Any]]
    notes: Sequence[str] = ()


def check_output(path: str, suffixes: Sequence[str] = SUFFIXES) -> None:
    """Raises a UserError, early, if the suffix says nothing or the file cannot be written."""
    file = pathlib.Path(os.path.expanduser(path))
    if file.suffix not in suffixes:
        raise UserError(_OUTPUT, path, f"a name that ends in {', '.join(suffixes)}")
    folder = file.absolute().parent
    if file.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError(_OUTPUT, path, "a file in a directory that can be written")


def write(path: str, table: ShownTable) -> None:
    """Writes a table in the form that the file's suffix names."""
    file = pathlib.Path(os.path.expanduser(path))
    if file.suffix == ".csv":
        # Rows know more of their evaluations than a table shows, and some less.
        shown = ({name: row.get(name) for name in table.columns} for row in table.rows)
        csv_files.write(file, table.columns, map(csv_files.formula_safe, shown))
        return
    lines = markdown(table) if file.suffix == ".md" else latex(table)
    with csv_files.replacing(file) as opened:
        opened.writelines(f"{line}\n" for line in lines)


def text(table: ShownTable) -> Iterator[str]:
    """Yields the lines of an aligned table and its notes."""
    yield from text_tables.aligned(_cells(table))
    yield from ["", *map(_shown, table.notes)] if table.notes else []


def markdown(table: ShownTable) -> Iterator[str]:
    """Yields the lines of a Markdown table and its notes."""
    escaped = [[_MARKDOWN.sub(r"\\\g<0>", cell) for cell in row] for row in _cells(table)]
    yield from text_tables.markdown(escaped)
    for note in table.notes:
        yield from ("", _MARKDOWN.sub(r"\\\g<0>", _shown(note)))


def latex(table: ShownTable) -> Iterator[str]:
    """Yields the lines of a LaTeX `tabular` with booktabs' rules and its notes as comments."""
    escaped = [["".join(_LATEX.get(c, c) for c in cell) for cell in row] for row in _cells(table)]
    yield rf"\begin{{tabular}}{{l{'r' * (len(escaped[0]) - 1)}}}"
    for i, row in enumerate(escaped):
        yield from [r"\toprule"] if i == 0 else [r"\midrule"] if i == 1 else []
        yield " & ".join(row) + r" \\"
    yield from (r"\bottomrule", r"\end{tabular}")
    yield from (f"% {_shown(note)}" for note in table.notes)


def _cells(table: ShownTable) -> list[list[str]]:
    """Returns a header and rows as text, columns without a value left out.

    What is wider than long is turned on its side: a row per column, a column per row.
    """
    rows = list(table.rows)
    filled = [
        [name, *column]
        for name in table.columns
        if any(column := [_shown(row.get(name)) for row in rows])
    ]
    is_wide = len(filled) > len(rows) + 1
    return filled if is_wide else [list(row) for row in zip(*filled, strict=True)]


def _shown(value: Any) -> str:
    """Returns a cell for reading: five digits, nothing that moves a terminal's cursor."""
    cell = csv_files.cell(value)
    if isinstance(value, float):  # NumPy's float64 is one.
        return format(value, ".5g") if cell else ""
    return printable(cell)
