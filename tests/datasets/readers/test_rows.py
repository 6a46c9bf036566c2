"""Tables as people have them, read as text or refused in a line."""

import bz2
import functools
import gzip
import importlib.util
import lzma

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from datasets.options import MISSING_WORDS, DataOptions
from datasets.readers import dates, rows, users_table
from motley_tff.core import options as options_lib
from tests.errors import refused


@pytest.fixture
def file(tmp_path):
    def write(content, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def _cells(frame):
    return [list(frame.columns), *frame.to_numpy().tolist()]


_EXPECTED = [["client", "x"], ["00511", "1.5"], ["b", ""]]


@pytest.mark.parametrize(
    "content",
    [
        "client,x\n00511,1.5\nb,\n",
        "client,x\r\n00511,1.5\r\nb,\r\n",
        "\ufeffclient,x\n00511,1.5\nb,\n",
        "client;x\n00511;1.5\nb;\n",
        "client\tx\n00511\t1.5\nb\t\n",
        "client|x\n00511|1.5\nb|\n",
        "sep=;\nclient;x\n00511;1.5\nb;\n",
        '"client","x"\n"00511","1.5"\n\nb,\n',
        'client, x\n"00511", "1.5"\nb,\n',
        "\n\r\nclient,x\n00511,1.5\nb,\n",
        "\nsep=|\nclient|x\n00511|1.5\nb|\n",
        "client\tx\n00511\t1.5\nb\t\n".encode("utf-16"),
    ],
)
def test_ways_to_write_a_table(file, content):
    assert _cells(rows.read(file(content))) == _EXPECTED


def test_quotes_hold_delimiters_and_line_breaks(file):
    frame = rows.read(file('"a;b","c"\n"1,2","x\ny"\n'))
    assert _cells(frame) == [["a;b", "c"], ["1,2", "x\ny"]]


def test_windows_letters_are_read_wherever_the_first_stands(file):
    for before in (0, 300_000):
        content = "client,x\n" + "a,1\n" * before + "Zoë,2\n"
        assert rows.read(file(content.encode("cp1252"))).client.iloc[-1] == "Zoë"


@pytest.fixture
def parquet(tmp_path):
    """Returns what writes a frame as Parquet, and reads it again: its names, then its rows."""

    def written(frame, **options):
        frame.to_parquet(tmp_path / "t.parquet", **options)
        return _cells(rows.read(tmp_path / "t.parquet"))

    return written


def test_parquet_is_the_csv(parquet):
    many = 2**60 + 1  # As a float, which a gap makes of it elsewhere, it would be 2**60.
    frame = pd.DataFrame({
        "client": ["00511", None], "x": [3.0, 1.5], "n": [1, 2], "is": [True, False],
        "k": pd.array([many, None], "Int64"), "when": pd.to_datetime(["2024-03-31", None]),
    })  # fmt: skip
    assert parquet(frame) == [
        ["client", "x", "n", "is", "k", "when"],
        ["00511", "3", "1", "True", str(many), "2024-03-31"],
        ["", "1.5", "2", "False", "", ""],
    ]


def test_a_named_index_of_parquet_is_a_column(parquet):
    frame = pd.DataFrame({"school": ["a", "b"], "age": [10, 11], "x": [1, 2]})
    plain = [["school", "age", "x"], ["a", "10", "1"], ["b", "11", "2"]]
    assert parquet(frame) == plain
    for turned in (frame[::-1], frame.take([1, 0])):  # The latter's index, 1 and 0, is stored.
        assert parquet(turned) == [plain[0], plain[2], plain[1]]
    for index in (["school"], ["x"], ["school", "x"], ["age", "school"]):
        text = parquet(frame.set_index(index))
        places = [text[0].index(name) for name in plain[0]]
        assert [[row[i] for i in places] for row in text] == plain
    assert parquet(frame[["x"]].rename_axis("row")) == [["x", "row"], ["1", "0"], ["2", "1"]]
    with refused("t.parquet", "several columns of the name 'age'"):
        parquet(frame.set_index("age", drop=False))
    with refused("t.parquet", "index without a name"):
        parquet(frame.set_index("school").rename_axis(None))


@pytest.mark.parametrize("indices", ["uint8", "uint32", "int32"])
def test_parquet_with_dictionaries(tmp_path, indices):
    """Polars writes categories with indices of no sign, which pandas does not take."""
    codes = pyarrow.array([1, None, 0], indices)
    words = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(["a", "b"], "large_string"))
    numbers = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array([2.0, 0.5]))
    pyarrow.parquet.write_table(pyarrow.table({"c": words, "x": numbers}), tmp_path / "t.parquet")
    cells = _cells(rows.read(tmp_path / "t.parquet"))
    assert cells == [["c", "x"], ["b", "0.5"], ["", ""], ["a", "2"]]


def test_parquet_without_pyarrow_is_a_line(file, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused("t.csv", "a Parquet file", "pyarrow", rows.PYARROW):
        rows.read(file(b"PAR1...PAR1"))
    monkeypatch.undo()
    with refused("t.csv", "ArrowInvalid", "a Parquet file"):
        rows.read(file(b"PAR1...PAR1"))


# As R's saveRDS begins, of version 3; save() packs it behind a line of its own.
_gzip = functools.partial(gzip.compress, mtime=0)  # Tests' names are of these bytes.
_R = b"X\n\0\0\0\x03\0\4\3\2\0\3\5\0" + bytes(50)


@pytest.mark.parametrize(
    ("content", "problem", "parts"),
    [
        ("", "an empty file", {}),
        ("a,b\n", "a header and no rows", {}),
        ("a,a\n1,2\n", "several columns of the name 'a'", {}),
        ("a,\n1,2\n", "no name", {"where": "t.csv column 2"}),
        ("a,b\n1,2\n3,4,5\n", "Expected 2 fields in line 3, saw 3", {}),
        ("a,b\n1,2,\n3,4,\n", "rows of 3 cells", {"expected": "2", "advice": "delimiter"}),
        ('a,b\n"1,2\n3,4\n', "EOF inside string", {"expected": "quotes"}),
        (b"a,b\n1,\0\n", "zero bytes", {}),
        (b"a,b\n" + b"x,1\n" * 100_000 + b"1,\0\n", "zero bytes", {}),
        (b"a,b\n\x81,1\n", "text neither in UTF-8 nor in cp1252", {}),
        (b"a,b\n" + b"x,1\n" * 100_000 + b"\x81,1\n", "text neither in UTF-8 nor in cp1252", {}),
        ("a\tb\n1\t2\n".encode("utf-16")[:-1], "text neither in UTF-8 nor in utf-16", {}),
        ("a,b,c\n1,2,3\n4,5\n", "2 cells", {"where": "t.csv line 3", "expected": "3"}),
        ('\na,b\n"1\n2",3\n\n4\n', "1 cells", {"where": "line 6", "expected": "2"}),
        ("a" * 300_000, "field larger than field limit", {}),
        (b"PK\x03\x04rest", "a workbook or a ZIP archive", {"advice": "save its sheet as CSV"}),
        (b"\x1f\x8brest", "gzip archive", {"advice": "unpack"}),
        (_gzip(b"a,b\n1,2\n"), "gzip archive", {}),
        *((pack(_R), "R's data", {"advice": "write.csv(x, 't.csv'"}) for pack in (bytes, _gzip)),
        *((pack(b"RDX3\n" + _R), "R's data", {}) for pack in (bz2.compress, lzma.compress)),
        ("A\n3\n262402\n197888\n5\nUTF-8\n", "R's data", {}),
        (
            '{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n',
            "JSON Lines",
            {"advice": "pandas.read_json('t.csv', lines=True).to_csv('t.csv'"},
        ),
        ('\ufeff[{"a": 1},\n {"a": 2}]', "a list in JSON", {"advice": "read_json('t.csv')"}),
        ('[\n  {"a": 1}\n]\n', "a list in JSON", {}),
        ("<?xml version='1.0'?>\n<a/>\n", "XML", {}),
        ("<!DOCTYPE html>\n<p>x</p>\n", "a web page", {}),
    ],
)
def test_what_is_no_table(file, content, problem, parts):
    path = file(content)
    with refused(finding=problem, **parts) as caught:
        rows.read(path)
    assert str(caught.value).count(str(path)) == 1


@pytest.mark.parametrize("name", ["t.csv", "t.json"])
def test_a_table_that_does_not_fit_is_not_read(file, name, monkeypatch):
    path = file("a,b\n1,2\n", name)
    monkeypatch.setattr(rows, "_MEMORY_FACTOR", 10**15)
    with refused(name, "GB", "GB", "give fewer"):
        users_table.read(path)


def _numbers(*cells, decimal=None):
    return rows.numbers(pd.Series(cells, name="x"), MISSING_WORDS, decimal)


def test_numbers_and_what_stands_for_none():
    missing = ("", " ", "NA", "n/a", "NaN", "null", "None", "?", "-")
    numbers = _numbers("1", " -2.5 ", "1e3", *missing)
    np.testing.assert_array_equal(numbers, [1.0, -2.5, 1000.0, *[np.nan] * len(missing)])
    assert _numbers("1", "red") is None and _numbers("2024-01-31") is None


@pytest.mark.parametrize("decimal", [None, ".", ","])
def test_numbers_that_are_not_plain(decimal):
    grouped = ("1.234,5", "1,234.5", "1\u00a0234 567", "1'234.5", "1.234.567")
    others = {None: ("3.5 €",), ".": ("1,5", "0,234"), ",": ("1.5", "0.234")}[decimal]
    for text in (*grouped, "12%", "$3", *others):
        with refused("column 'x'", repr(text), f"the decimal mark {decimal or '.'}"):
            _numbers(text, "5", decimal=decimal)
    assert _numbers("1.234", "192.168.1.1", decimal=decimal) is None


@pytest.mark.parametrize(
    ("cells", "decimal", "expected"),
    [
        (("1,5", "2", "-0,25", ""), None, [1.5, 2, -0.25, np.nan]),
        (("1,234", "0,5"), None, [1.234, 0.5]),
        (("0,123", "0,456"), None, [0.123, 0.456]),
        (("0.234", "999,5"), None, [0.234, 999.5]),
        (("1,234", "5"), ",", [1.234, 5]),
        (("1,5e3", "n.a."), ",", [1500, np.nan]),
        (("1.234", "5"), ".", [1.234, 5]),
    ],
)
def test_decimal_marks(cells, decimal, expected):
    values = rows.numbers(pd.Series(cells), {*MISSING_WORDS, "n.a."}, decimal)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("cells", [("1,234", "5"), ("1.234", "999,5", "2.000")])
def test_numbers_that_can_be_read_in_two_ways(cells):
    with refused("column 'x'", f"{cells[0]}, which is thousands", advice="decimal"):
        _numbers(*cells)


def test_a_delimiter_that_is_given(file):
    for mark, name in (("~", "~"), (":", ":"), (" ", " "), ("\t", "tab"), (",", ",")):
        path = file(f"client{mark}x;|\n00511{mark}1.5\nb{mark}\n")
        assert _cells(rows.read(path, name))[0] == ["client", "x;|"]
    assert _cells(rows.read(file("sep=;\na,b;c\n1,2;3\n"), ",")) == [["a", "b;c"], ["1", "2;3"]]
    with refused("delimiter", "';'", "'client,x'"):
        rows.read(file("client,x\n1,2\n"), ";")
    for name in ("a", ";;", '"', "\n"):
        with refused("delimiter", repr(name), "one character"):
            options_lib.checked(DataOptions("table", delimiter=name))
    pd.DataFrame({"a": [1]}).to_parquet(path)
    for name, kind in (("t.csv", "Parquet"), ("t.json", "JSON")):
        with refused("delimiter", "','", kind):
            users_table.read(path.with_name(name), ",")


def test_infinite_numbers_and_formulas_are_refused():
    with refused("column 'x'", "row 3"):
        _numbers("1", "inf")
    for formula in ("=A1+1", "@SUM(A1)", "+cmd|' /C calc'!A0"):
        with refused("column 'x'", f"formulas, such as {formula!r}"):
            _numbers("1", formula)
    for text in ("@ann", "+a", "-old", "=="):
        assert _numbers("1", text, "x") is None


def test_clients_are_text_without_blanks_around():
    frame = pd.DataFrame({"c": ["00511", " a ", "a"]})
    assert rows.client_ids(frame, "c", MISSING_WORDS).tolist() == ["00511", "a", "a"]
    frame.loc[1, "c"] = "  "
    with refused("column 'c'", "1 of 3 rows, the first in row 3"):
        rows.client_ids(frame, "c", MISSING_WORDS)
    frame.loc[1, "c"] = "NULL"  # All rows of nobody are not those of one client.
    with refused("column 'c'", "'NULL'", advice="missing_values"):
        rows.client_ids(frame, "c", MISSING_WORDS)


def _times(*cells):
    return dates.times(pd.Series(cells, name="when"), MISSING_WORDS)


def test_times_are_numbers_or_iso_dates():
    assert _times("3", "1", "2").tolist() == [3.0, 1.0, 2.0]
    times = _times("2024-03-31", "2024-03-31T12:00:00", "2023-12-31T23:59:59+02:00")
    assert np.argsort(times).tolist() == [2, 0, 1]
    with refused("column 'when'", "'31.3.2024' in row 3", "2024-03-31"):
        _times("2024-03-31", "31.3.2024")
    with refused("column 'when'", "1 of 2 rows, the first in row 2", advice="time_column"):
        _times("", "1")


def test_rows_by_client_as_they_stand_or_by_time():
    ids = pd.Series(["b", "a", "b", "a", "b"])
    owned = {client: r.tolist() for client, r in rows.by_client(ids)}
    assert owned == {"b": [0, 2, 4], "a": [1, 3]} and list(owned) == ["b", "a"]
    by_time = rows.by_client(ids, np.array([5.0, 1.0, 3.0, 0.0, 5.0]))
    assert {client: r.tolist() for client, r in by_time} == {"b": [2, 0, 4], "a": [3, 1]}


@pytest.mark.parametrize(
    ("named", "name", "expected", "advice"),
    [
        ({"label_column": "scor"}, "scor", "a column", "did you mean 'score'"),
        ({"label_column": "zzz"}, "zzz", "a column", "school, score"),
        ({"feature_columns": ("score", "score")}, "score", "feature_columns", ""),
        ({"label_column": "score", "client_column": "score"}, "score", "client_column", ""),
        ({"text_column": None}, "", "a column of the table", ""),
    ],
)
def test_columns_that_are_not_there_and_two_roles(named, name, expected, advice):
    with refused(next(iter(named)), name, expected, advice):
        rows.check_columns(["school", "score"], DataOptions("table", **named), *named)
