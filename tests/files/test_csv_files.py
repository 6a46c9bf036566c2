"""CSV files: cells, whole files, resumed files."""

import csv
import io
import os

import numpy as np
import pandas as pd
import pytest

from motley_tff.files import csv_files
from tests.errors import refused
from tests.reliability import bench


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "1"),
        (np.bool_(False), "0"),
        (np.int64(7), "7"),
        (0.1, "0.1"),
        (np.float32(1 / 3), "0.333333343"),
        (1e-12, "1e-12"),
        (float("nan"), ""),
        (np.inf, ""),
        ("emnist:007", "emnist:007"),
    ],
)
def test_cells(value, text):
    assert csv_files.cell(value) == text


def test_lists_are_no_cells():
    with pytest.raises(TypeError, match="scalar"):
        csv_files.cell([1, 2])


def test_text_that_a_spreadsheet_would_run_is_text():
    row = {"a": "=1+1", "b": "-x", "c": -1.5, "d": "a=1", "e": None, "f": "\t=1"}
    assert csv_files.formula_safe(row) == {**row, "a": "'=1+1", "b": "'-x", "f": "'\t=1"}
    assert csv_files.formula_undone("'quoted'") == "'quoted'"
    for text in ("-1", "-0.5", "-1.5e-07", "-2e+10", "'=1", "a\n=1", ""):
        assert csv_files.formula_safe({"a": text}) == {"a": text}
    for text in ("+1", "-1-1", "-1 ", "@a", "\n=1", "\r=1", "＝1", "－1＋1", "-inf", "-１"):
        assert csv_files.formula_safe({"a": text}) == {"a": f"'{text}"}
        assert csv_files.formula_undone(f"'{text}") == text == csv_files.formula_undone(text)


_CELLS = (None, True, np.bool_(False), 7, np.int64(-7), np.uint8(7), 0.1, np.float32(1 / 3), 1e-12)
_CELLS += (1e300, float("nan"), -np.inf, np.float64("inf"), "", "nan", "a,b", 'a"b', "é\n", "%s")


def test_rows_are_their_cells(tmp_path):
    """However many kinds a table's rows are of."""
    rows = [{"a": a, "b": b, "c": "x"} for a in _CELLS for b in _CELLS]
    csv_files.write(tmp_path / "t.csv", ("a", "b", "c"), rows)
    cells = [[csv_files.cell(row[name]) for name in "abc"] for row in rows]
    expected = "".join(map(_line, [["a", "b", "c"], *cells]))
    assert (tmp_path / "t.csv").read_bytes() == expected.encode()


def _line(texts):
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(texts)
    return line.getvalue().removesuffix("\r\n") + "\n"


def test_written_tables_are_rfc_4180_and_load_in_pandas(tmp_path):
    path = tmp_path / "t.csv"
    rows = [{"id": 'a "b", c', "x": 1.5}, {"id": "school:00511299", "x": None}]
    csv_files.write(path, ["id", "x"], rows)
    csv_files.append(path, ["id", "x"], [{"id": "é\nz", "x": 2}])
    assert path.read_bytes() == (b'id,x\n"a ""b"", c",1.5\nschool:00511299,\n"\xc3\xa9\nz",2\n')
    frame = pd.read_csv(path)
    assert list(frame.x.fillna(-1)) == [1.5, -1.0, 2.0]
    assert frame.id[1] == "school:00511299"
    assert [row["id"] for row in csv_files.read(path)] == ['a "b", c', "school:00511299", "é\nz"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": 1, "x": 2, "y": 3, "z": 4}, r"lacks \[\] and has \['z'\]"),
        ({"id": 1, "y": 3}, r"lacks \['x'\] and has \[\]"),
        ({"id": 1, "xx": 2}, r"lacks \['x'\] and has \['xx'\]"),
    ],
)
def test_a_row_has_its_tables_keys(tmp_path, row, words):
    path = tmp_path / "t.csv"
    columns = ("id", "x", "y")
    for write in (csv_files.write, csv_files.append):
        with pytest.raises(ValueError, match=words):
            write(path, columns, [{"id": 0, "x": None}, row], optional=["y"])
        assert not path.exists()
    csv_files.write(path, columns, [{"id": 0, "x": 1}], optional=["y"])
    before = path.read_bytes()
    with pytest.raises(ValueError, match=words):
        csv_files.append(path, columns, [row], optional=["y"])
    assert path.read_bytes() == before == b"id,x,y\n0,1,\n"


def test_other_columns_are_not_added_to(tmp_path):
    path = tmp_path / "t.csv"
    csv_files.write(path, ["id", "x"], [{"id": "a", "x": 1}])
    for columns in (["id", "x", "y"], ["x", "id"]):
        with refused("t.csv", "columns that differ"):
            csv_files.append(path, columns, [{"id": "b", "x": 2, "y": 3}], optional=["y"])
    assert path.read_text() == "id,x\na,1\n"


def test_append_starts_a_table_with_its_header(tmp_path):
    csv_files.append(tmp_path / "t.csv", ["round"], [])
    assert (tmp_path / "t.csv").read_text() == "round\n"


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "t.csv"
    csv_files.write(path, ["x"], [{"x": 1}])

    def broken():
        yield {"x": 2}
        raise RuntimeError("cut")

    with pytest.raises(RuntimeError):
        csv_files.write(path, ["x"], broken())
    assert os.listdir(tmp_path) == ["t.csv"]
    assert path.read_text() == "x\n1\n"


def test_a_full_disk_is_one_line_and_the_file_stays_whole(tmp_path):
    path = tmp_path / "disk" / "t.csv"
    try:
        with bench.small_disk(path.parent, 64):
            csv_files.write(path, ["x"], [{"x": i} for i in range(1000)])
            before = path.read_bytes()
            with refused("cannot write", "No space left"):
                csv_files.append(path, ["x"], [{"x": i} for i in range(20_000)])
            assert path.read_bytes() == before
            assert os.listdir(path.parent) == ["t.csv"]
    except bench.UnavailableError as error:
        pytest.skip(str(error))


def test_bad_files_are_named(tmp_path):
    path = tmp_path / "t.csv"
    for content, *parts in (
        (b"", "t.csv", "nothing", "header"),
        (b"a,b\n1\n", "t.csv line 2", "1 cells", "2"),
        (b"a,b\n\xff,1\n", "t.csv", "0xff", "UTF-8"),
    ):
        path.write_bytes(content)
        with refused(*parts):
            list(csv_files.read(path))
