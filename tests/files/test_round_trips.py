"""What is written is read: CSV files and archives of arrays, whatever they hold."""

import csv

import numpy as np
import pytest
from hypothesis import given, strategies as st

from motley_tff.files import csv_files

# Any text, and what is special to CSV or to a spreadsheet more often than by chance. Not NUL, which
# `csv` of CPython 3.10 does not read.
TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8) | st.text(
    alphabet=",\"'\n\r\t ;=+-@1e.＝\ufeff\x85\u2028", max_size=8
)
SCALARS = (
    st.none() | TEXT | st.booleans() | st.integers() | st.floats()
    | st.floats(width=32).map(np.float32) | st.integers(-(2**63), 2**63 - 1).map(np.int64)
)  # fmt: skip


@st.composite
def tables(draw):
    """Returns (columns, rows)."""
    columns = draw(st.lists(TEXT, min_size=1, max_size=4, unique=True))
    row = st.fixed_dictionaries(dict.fromkeys(columns, SCALARS))
    return columns, draw(st.lists(row, max_size=6))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("round_trips") / "file"


def _as_text(rows):
    return [{name: csv_files.cell(value) for name, value in row.items()} for row in rows]


@given(table=tables())
def test_a_table_is_read_as_it_was_written(path, table):
    columns, rows = table
    csv_files.write(path, columns, rows)
    assert list(csv_files.read(path)) == _as_text(rows)
    with open(path, encoding="utf-8", newline="") as file:
        assert next(csv.reader(file, strict=True)) == columns
    # What was read and is written again is the same file.
    before = path.read_bytes()
    csv_files.write(path, columns, csv_files.read(path))
    assert path.read_bytes() == before


@given(table=tables(), cut=st.integers(0, 6))
def test_appending_is_writing_at_once(path, table, cut):
    columns, rows = table
    csv_files.write(path, columns, rows)
    whole = path.read_bytes()
    path.unlink()
    csv_files.append(path, columns, rows[:cut])
    csv_files.append(path, columns, rows[cut:])
    assert path.read_bytes() == whole


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), SCALARS), max_size=8),
    last=st.integers(0, 5),
)
def test_rounds_that_are_kept_are_those_up_to_the_last(path, rows, last):
    columns = ["round", "x"]
    table = [dict(zip(columns, row, strict=True)) for row in rows]
    csv_files.write(path, columns, [row for row in table if row["round"] <= last])
    expected = path.read_bytes()
    csv_files.write(path, columns, table)
    csv_files.keep_rounds(path, last)
    assert path.read_bytes() == expected
    assert csv_files.rounds(path) == {number for number, _ in rows if number <= last}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_nine_digits_of_a_number(number):
    # Half a unit of the ninth digit is at most 5e-9 of the number; 5e-324 is the smallest number.
    assert float(csv_files.cell(number)) == pytest.approx(number, rel=5.01e-9, abs=5e-324)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=20))
def test_a_float32_comes_back_exactly(bits):
    numbers = np.array(bits, np.uint32).view(np.float32)
    for number in numbers[np.isfinite(numbers)]:
        assert np.float32(float(csv_files.cell(number))) == number


@given(TEXT)
def test_no_text_is_a_formula_and_none_is_lost(text):
    safe = csv_files.formula_safe({"a": text})["a"]
    assert safe in (text, f"'{text}")
    if safe[:1] in tuple("=+-@\t\r\n＝＋－＠"):
        float(safe)  # A negative number.
        assert safe[0] == "-" and safe.isascii()
    assert csv_files.formula_safe({"a": safe}) == {"a": safe}
