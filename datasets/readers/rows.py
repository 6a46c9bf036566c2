"""Reads a user's table, CSV or Parquet, as text; what columns mean is said elsewhere.

Understood: commas, semicolons, tabs or bars between cells; UTF-8 with and without a mark, UTF-16 as
Excel writes "Unicode text", Windows's cp1252; a first line `sep=;`; line breaks inside quotes. What
is refused is refused in one line.
"""

import bz2
import codecs
import contextlib
import csv
import difflib
import gzip
import importlib.util
import io
import lzma
import re
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from datasets.options import DELIMITER_NAMES, MISSING_WORDS, DataOptions
from datasets.readers import files
from motley_tff.core import errors
from motley_tff.core.errors import UserError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_DELIMITERS = (",", ";", "\t", "|")
_HEAD_BYTES = 2**18
# Cells are text in memory: so many times the file's size.
_MEMORY_FACTOR = 8
# What reads Parquet; setup.py and launch/developers.in have it, too.
PYARROW = "pyarrow==20.0.0"
_COLUMN_OPTIONS = (
    "client_column", "text_column", "label_column", "time_column", "group_column",
    "feature_columns", "ignore_columns", "categorical_columns",
)  # fmt: skip
LARGEST_WHOLE = 1e15  # Below it a float64 stands for one whole number, and is written as that.
_DECIMAL_COMMA = r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?"
_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:,\d{3})+"
_POINTED_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+"
# With separators of thousands, or both kinds of mark: 1.234,5 or 1,234.5 or 1 234 or 1.234.567.
_SEPARATED = r"[+-]?\d{1,3}(?:(?:[.,'\u00a0\u202f ]\d{3})+[.,]\d+|(?:[.,'\u00a0\u202f ]\d{3})+)"
_SIGNED = r"[+-]?[$€£]\s?\d+(?:[.,]\d+)*|[+-]?\d+(?:[.,]\d+)*\s?[%$€£]"
# Beginnings of files that are no text, what they are, and what to do.
SIGNATURES = {
    b"PK\x03\x04": ("a workbook or a ZIP archive", "save its sheet as CSV"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook", "save its sheet as CSV"),
    b"\x1f\x8b": ("a gzip archive", "unpack it first"),
    b"BZh": ("a bzip2 archive", "unpack it first"),
    b"\xfd7zXZ": ("an xz archive", "unpack it first"),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", "unpack it first"),
    b"%PDF": ("a PDF", "save its table as CSV"),
    b"SQLite format 3": ("an SQLite database", "export its table as CSV"),
    b"\x93NUMPY": ("a NumPy array", "save a table as CSV"),
    b"<?xml": ("XML", "save its table as CSV"),
    b"<html": ("a web page", "save its table as CSV"),
    b"<!DOCTYPE": ("a web page", "save its table as CSV"),
}
_PACKED: Mapping[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
# R's own, of one object or several, binary or text.
_R = re.compile(rb"(RD[AX]\d\n)?(X\n\0\0|A\n\d\n\d{5,}\n)")
_AS_CSV = "save it as CSV, as {}.to_csv('t.csv', index=False) does"
_AS_CSV_IN_R = "save its table as CSV, as write.csv(x, 't.csv', row.names=FALSE, na='') does in R"
_A_TABLE, _HEADER_AND_ROWS = "a table of text", "a header line and rows"
_PLAIN = "write them without separators of thousands, signs and units"
_SWAPPED = str.maketrans(",.", ".,")
_FORMULA = r"=[^=].*|@[A-Za-z.]+\(.*|[+-][A-Za-z(].*[(|!*/+-].*"


class Format(NamedTuple):
    """How a text file is written."""

    encoding: str
    delimiter: str
    first_line: int  # How many lines are before the header.
    columns: tuple[str, ...]


def read(path: Path, delimiter: str | None = None) -> pd.DataFrame:
    """Returns a file's cells as text, `""` where one is missing, columns by their names. What
    `delimiter` is not given is found out.

    UserError if it is no table, has columns without a name or two of the same, a row of more or
    fewer cells than the header, or would not fit in memory.
    """
    with errors.at(path), files.readable_as("a table", OSError):
        head = _head(path)
        if not head.strip():
            raise UserError("", "an empty file", _HEADER_AND_ROWS)
        check_file_size([path], "give fewer rows or columns")
        if head.startswith(b"PAR1"):
            check_has_no_delimiter("Parquet", delimiter)
            return _checked(_parquet(path))
        check_kind(path)
        form = _format(head, _encoding(path, head), delimiter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pd.errors.ParserWarning)
            frame = _checked(_csv(path, form))
        if (frame.iloc[:, -1] == "").any():  # Pandas fills short rows with empty cells.
            _check_no_short_rows(path, form)
        return frame


def check_has_no_delimiter(kind: str, delimiter: str | None) -> None:
    """Raises UserError if a delimiter is given beside a file whose cells have none."""
    if delimiter:
        expected = f"a file of text, and this is {kind}"
        raise UserError(errors.name("delimiter"), repr(delimiter), expected, "leave it out")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def check_kind(path: Path) -> None:
    """Raises UserError if a file begins as none of a table's text does, and says what to do."""
    head = _head(path)
    lines = [line.strip() for line in head.removeprefix(_BYTE_ORDER_MARK).splitlines()]
    first, second = ([line for line in lines if line] + [b"", b""])[:2]
    reading = f"pandas.read_json({path.name!r}{', lines=True' if first.startswith(b'{') else ''})"
    if first == b"[" or first.startswith((b"[{", b"[[")):
        raise UserError("", "a list in JSON", _A_TABLE, _AS_CSV.format(reading))
    if first.startswith(b"{") and first.endswith(b"}") and second.startswith(b"{"):
        raise UserError("", "JSON Lines", _A_TABLE, _AS_CSV.format(reading))
    for signature, (kind, advice) in SIGNATURES.items():
        if head.startswith(signature):
            head = _unpacked_head(path, signature)
            if not _R.match(head):
                raise UserError("", kind, _A_TABLE, advice)
    if _R.match(head):
        raise UserError("", "R's data", _A_TABLE, _AS_CSV_IN_R)


def _unpacked_head(path: Path, signature: bytes) -> bytes:
    """Returns how an archive's content begins, nothing of what is none."""
    if (opener := _PACKED.get(signature)) is not None:
        errors = (OSError, EOFError, zlib.error, lzma.LZMAError)
        with contextlib.suppress(*errors), opener(path) as file:
            return file.read(64)
    return b""


def _encoding(path: Path, head: bytes) -> str:
    """Returns how text is encoded: as its mark says, else in UTF-8, or cp1252 where it is not."""
    if head.startswith(_UTF16_MARKS):
        return "utf-16"
    encoding, decoder = "utf-8-sig", codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        while True:
            chunk = file.read(2**24)
            if b"\0" in chunk:
                raise UserError("", "zero bytes", "text", "save the table as CSV in UTF-8")
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError:
                encoding = "cp1252"
            if not chunk:
                return encoding


def check_file_size(paths: Iterable[Path], advice: str) -> None:
    """UserError if the cells of files would not fit in memory as text."""
    size = sum(path.stat().st_size for path in paths)
    check_memory(f"{size / 1e9:.1f} GB", _MEMORY_FACTOR * size, advice)


def check_memory(amount: str, needed: int, advice: str) -> None:
    """UserError, with an `amount` of something and an `advice`, if it needs more bytes than are
    free.
    """
    import psutil

    available = psutil.virtual_memory().available
    if needed > available:
        amount = f"{amount}, for which {needed / 1e9:.1f} GB of memory are needed"
        raise UserError("", amount, f"at most {available / 1e9:.1f} GB, which are free", advice)


def _format(head: bytes, encoding: str, delimiter: str | None) -> Format:
    whole = head.decode(encoding, "ignore").lstrip("\ufeff")
    text = whole.lstrip("\r\n")  # Empty lines before the header.
    first_line = whole[: len(whole) - len(text)].count("\n")
    line, _, rest = text.partition("\n")
    mark = DELIMITER_NAMES.get(delimiter or "", delimiter)
    if match := re.fullmatch(r"sep=(.)\r?", line.strip('"')):
        first_line, mark, text = first_line + 1, mark or match[1], rest
    header = re.sub(r'"[^"]*"', "", text.partition("\n")[0])
    if delimiter and mark and mark not in header:
        expected = f"the character between the columns of the header {header.strip()[:80]!r}"
        raise UserError(errors.name("delimiter"), repr(delimiter), expected)
    mark = mark or max(_DELIMITERS, key=header.count)
    with files.readable_as(_A_TABLE, csv.Error):
        columns: list[str] = next(_cells_of(io.StringIO(text, newline=""), mark), [])
    return Format(encoding, mark, first_line, tuple(name.strip() for name in columns))


def _cells_of(lines: Iterable[str], delimiter: str) -> Any:
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def _check_no_short_rows(path: Path, form: Format) -> None:
    number = form.first_line  # Of the line before.
    with path.open(encoding=form.encoding, newline="") as file:
        for _ in range(form.first_line):
            file.readline()
        reader = _cells_of(file, form.delimiter)
        with files.readable_as(_A_TABLE, csv.Error):
            for cells in reader:
                if cells and len(cells) < len(form.columns):
                    expected = f"{len(form.columns)} as in the header"
                    problem, advice = f"{len(cells)} cells", "fill the row, or take it out"
                    raise UserError(f"line {number + 1}", problem, expected, advice)
                number = form.first_line + reader.line_num


def _csv(path: Path, form: Format) -> pd.DataFrame:
    try:
        frame = pd.read_csv(
            path,
            sep=form.delimiter,
            encoding=form.encoding,
            header=None,
            names=list(range(len(form.columns))),
            skiprows=form.first_line + 1,
            dtype=str,
            na_filter=False,
            skipinitialspace=True,
            index_col=None,
            engine="c",
        )
    except UnicodeDecodeError:
        problem = f"text neither in UTF-8 nor in {form.encoding}"
        raise UserError("", problem, advice="save it as UTF-8") from None
    except pd.errors.EmptyDataError:
        raise UserError("", "a header and no rows", _HEADER_AND_ROWS) from None
    except pd.errors.ParserError as error:
        reason = re.sub(r".*C error: ", "", files.one_line(error))
        expected = "as many cells in each row as in the header, with quotes that close"
        raise UserError("", f"no table ({reason})", expected) from error
    if not isinstance(frame.index, pd.RangeIndex):
        problem = f"rows of {len(form.columns) + frame.index.nlevels} cells"
        advice = "take out the delimiter at the end of each row"
        raise UserError("", problem, f"{len(form.columns)} as in the header", advice)
    return frame.set_axis(list(form.columns), axis=1)


def _parquet(path: Path) -> pd.DataFrame:
    if importlib.util.find_spec("pyarrow") is None:
        advice = (
            f"put a line {PYARROW} into plugins.txt beside requirements.txt, and the next "
            "launch/run installs it, or save the table as CSV"
        )
        raise UserError("", "a Parquet file", "pyarrow, which reads it", advice)
    with files.readable_as("a Parquet file", Exception):
        from pyarrow import Table, parquet, types  # Takes 0.1 s.

        with parquet.ParquetFile(path) as file:
            stored = file.read()
        # Pandas takes some of the indices of dictionaries only.
        columns = [
            column.cast(column.type.value_type) if types.is_dictionary(column.type) else column
            for column in stored.columns
        ]
        frame = Table.from_arrays(columns, schema=None, names=stored.column_names)
        frame = frame.replace_schema_metadata(stored.schema.metadata)
        # As floats large whole numbers beside gaps would be others.
        frame = frame.to_pandas(integer_object_nulls=True)
        return _text_of(frame)


def of_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a DataFrame's cells as `read` does those of a file it was written to; UserError if it
    has no rows, or columns without a name or two of the same.
    """
    return _checked(_text_of(frame.rename(columns=str)))


def _text_of(frame: pd.DataFrame) -> pd.DataFrame:
    parts = [frame.reset_index(drop=True), _index(frame.index)]
    return pd.concat(parts, axis=1).apply(_as_text)


def _index(index: pd.Index) -> pd.DataFrame:
    """Returns a frame's index as columns; none if it has no name and merely counts rows."""
    frame = index.to_frame(index=False)
    if index.names == [None] and not pd.api.types.is_integer_dtype(index):
        expected = "one with a name, which is a column"
        advice = "name it, or write without it"
        raise UserError("", f"an index without a name, such as {index[0]!r}", expected, advice)
    return frame[[name for name in index.names if name is not None]]


def _as_text(cells: pd.Series) -> pd.Series:
    """Returns cells as a CSV would have them: 3, not 3.0."""
    text = cells.astype(str)
    if pd.api.types.is_float_dtype(cells):
        whole = cells.notna() & (cells % 1 == 0) & (cells.abs() < LARGEST_WHOLE)
        text = text.where(~whole, cells.where(whole, 0).astype("int64").astype(str))
    return text.where(cells.notna(), "")


def _checked(frame: pd.DataFrame) -> pd.DataFrame:
    names = list(frame.columns)
    if twice := sorted({name for name in names if names.count(name) > 1 and name}):
        raise UserError(
            "", f"several columns of the name {twice[0]!r}", advice="rename all but one"
        )
    if "" in names:
        place = f"column {names.index('') + 1}"
        raise UserError(place, "no name in the header", advice="give it one")
    if not len(frame):
        raise UserError("", "a header and no rows", _HEADER_AND_ROWS)
    return frame


def check_columns(columns: Iterable[str], options: DataOptions, *required: str) -> None:
    """UserError if a column that options name is not among `columns`, or has two roles; so are
    options that are `required` and name none.
    """
    present, taken = list(columns), dict[str, str]()
    for field in _COLUMN_OPTIONS:
        value = getattr(options, field) or ("" if field in required else ())
        for name in (value,) if isinstance(value, str) else value:
            if name not in present:
                near = difflib.get_close_matches(name, present, n=1)
                listed = ", ".join(present[:12]) + (", ..." if len(present) > 12 else "")
                advice = f"did you mean {near[0]!r}?" if near else f"give one of {listed}"
                raise UserError(errors.name(field), name, "a column of the table", advice)
            if name in taken and field != "categorical_columns":
                expected = f"a column that {errors.name(taken[name])} does not name already"
                raise UserError(errors.name(field), name, expected, "leave one out")
            taken[name] = field


def column_error(
    column: pd.Series, problem: str, expected: str = "", advice: str = ""
) -> UserError:
    """Returns the error that something is found in a table's column."""
    return UserError(f"column {column.name!r}", problem, expected, advice)


def client_ids(frame: pd.DataFrame, column: str, words: Collection[str]) -> pd.Series:
    """Returns whose each row is, without blanks around; UserError if a row says nothing, or one of
    the `words` of `is_missing`.
    """
    ids = frame[column].str.strip()
    if (missing := is_missing(ids, words)).any():
        first = ids[missing].iloc[0]
        kind = f"{first!r} in place of a client" if first else "no client"
        other = f", or give {errors.name('missing_values')} without it if it is a client"
        problem = f"{kind} in {counted(missing)} (the header is row 1)"
        advice = f"fill the column, or take those rows out{other if first else ''}"
        raise column_error(ids, problem, advice=advice)
    return ids


def groups_of(clients: Any, groups: Any) -> dict[str, str]:
    """Returns `{client: group}` of each row's client and group; UserError if one has several."""
    pairs = pd.DataFrame({"client": clients, "group": groups}).drop_duplicates()
    several = pairs[pairs.client.duplicated(keep=False)]
    if len(several):
        first = several.client.iloc[0]
        both = ", ".join(several[several.client == first].group[:3])
        raise UserError(f"client {first}", f"several groups ({both})", "one")
    return dict(zip(pairs.client, pairs.group, strict=True))


def group_facts(frame: pd.DataFrame, options: DataOptions) -> dict[str, dict[str, str]]:
    """Returns as a fact each client's group, if options name a column of groups; UserError if a row
    has none, or a client has several.
    """
    if options.group_column is None:
        return {}
    groups, words = frame[options.group_column].str.strip(), options.missing_cells
    if (missing := is_missing(groups, words)).any():
        advice = f"fill the column, or leave {errors.name('group_column')} out"
        raise column_error(groups, f"no group in {counted(missing)}", advice=advice)
    with errors.at(f"column {options.group_column!r}"):
        clients = client_ids(frame, options.client_column or "", words)
        return {"client_groups": groups_of(clients, groups)}


def examples(
    frame: pd.DataFrame, options: DataOptions, names: Iterable[str]
) -> dict[str, dict[str, np.ndarray]]:
    """Returns `{client id: {column: its cells as they stand}}` of some columns."""
    cells = {name: frame[name].to_numpy() for name in names}
    ids = client_ids(frame, options.client_column or "", options.missing_cells)
    return {
        client_id: {name: values[rows] for name, values in cells.items()}
        for client_id, rows in by_client(ids)
    }


def counted(is_there: pd.Series) -> str:
    """Returns in words how many values are true, and the row in a spreadsheet of the first."""
    number, first = int(is_there.sum()), row_number(is_there)
    return f"{number:,} of {len(is_there):,} rows, the first in row {first}"


def row_number(is_there: pd.Series) -> int:
    """Returns the row in a spreadsheet of the first true value, the header being row 1."""
    return int(np.argmax(is_there.to_numpy())) + 2


def is_missing(column: pd.Series, words: Collection[str]) -> pd.Series:
    """Returns where a cell has no value: empty, or one of the words, which are in small letters."""
    codes, values = pd.factorize(column)
    known = np.array([value.strip().lower() in ("", *words) for value in values], bool)
    return pd.Series(known[codes], column.index)


def label_notes(labels: pd.Series) -> list[str]:
    """Returns a line for each class that is called as cells of other columns that have no value."""
    texts = labels.str.strip()
    named = texts[is_missing(texts, MISSING_WORDS)]
    return [
        f"{count:,} of {len(labels):,} rows have the label {word!r}, which is a class as others; "
        f"if they have no label, give --missing_values={word}"
        for word, count in named.value_counts().items()
    ]


def row_number_notes(frame: pd.DataFrame, ignored: Sequence[str] = ()) -> list[str]:
    """Returns a line for each column that counts the rows of the file; some columns are `ignored`
    already.
    """
    first, last = frame.iloc[0], frame.iloc[-1]
    # Most columns are told by their ends.
    ends = zip(*(pd.to_numeric(row, errors="coerce") for row in (first, last)), strict=True)
    likely = [end - start == len(frame) - 1 for start, end in ends]
    return [
        f"column {name!r} numbers the rows, and rows in order may follow the label; if it means "
        f"nothing, give --ignore_columns={','.join([*ignored, name])}"
        for name in frame.columns[likely]
        if len(frame) > 2 and (pd.to_numeric(frame[name], errors="coerce").diff()[1:] == 1).all()
    ]


def numbers(
    column: pd.Series, words: Collection[str], decimal: str | None = None
) -> np.ndarray | None:
    """Returns a column's values, float64 with not-a-number where missing, as `is_missing` says by
    `words`; None if some are no numbers. UserError if they are formulas, infinite, or, unless the
    `decimal` mark is given, could be read in two ways.
    """
    codes, distinct = pd.factorize(column)
    texts = pd.Series(distinct, dtype=str).str.strip()
    missing = is_missing(texts, words)
    plain = texts.str.translate(_SWAPPED) if decimal == "," else texts
    values = pd.to_numeric(plain.where(~missing, "nan"), errors="coerce")
    odd = values.isna() & ~missing
    if decimal is None and odd.any() and texts[odd].str.fullmatch(_DECIMAL_COMMA).all():
        unclear = texts[~odd & texts.str.fullmatch(_POINTED_THOUSANDS)]
        if texts[odd].str.fullmatch(_THOUSANDS).all():
            unclear = texts[odd]
        if len(unclear):
            problem = f"{unclear.iloc[0]}, which is thousands or has a fraction"
            raise column_error(column, problem, advice=f"give {errors.name('decimal')}=, or .")
        values = pd.to_numeric(texts.str.replace(",", ".").where(~missing, "nan"), errors="coerce")
        odd = values.isna() & ~missing
    others = texts[odd]
    formulas = others[others.str.fullmatch(_FORMULA)]
    if len(formulas) and len(formulas) >= len(others) / 2:
        problem = f"formulas, such as {formulas.iloc[0][:40]!r}"
        raise column_error(column, problem, advice="save their values")
    if len(others):
        if plain[odd].str.fullmatch(f"{_SEPARATED}|{_DECIMAL_COMMA}|{_SIGNED}").all():
            expected = f"plain numbers with the decimal mark {decimal or '.'}"
            raise column_error(column, repr(others.iloc[0]), expected, _PLAIN)
        return None
    if np.isinf(values).any():
        row = row_number(pd.Series(np.isinf(values.to_numpy())[codes]))
        advice = "leave the cell empty or give a number"
        raise column_error(column, f"an infinite number in row {row}", advice=advice)
    return values.to_numpy(np.float64)[codes]


def by_client(ids: pd.Series, order: np.ndarray | None = None) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each client and its rows' numbers, clients as they first appear, rows as they stand or
    by `order` [n], the least first.
    """
    codes, names = pd.factorize(ids)
    keys = (codes,) if order is None else (order, codes)
    rows = np.lexsort(keys)  # Stable; its last key comes first.
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    return zip(map(str, names), np.split(rows, ends[:-1]), strict=True)
