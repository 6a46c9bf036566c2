"""motley_metrics --output=results.xlsx, read back by another library than wrote it."""

import numpy as np
import openpyxl
import pandas as pd
import pytest

from launch.metrics import output, workbook
from motley_tff.files import csv_files
from motley_tff.tables import columns
from tests.errors import refused
from tests.launch import commands
from tests.launch.report import written


@pytest.fixture(scope="module")
def metrics():
    with commands.opened("launch.metrics.command", "PATH...") as run:
        yield run


@pytest.fixture
def runs(tmp_path):
    for name, algorithm in (("one", "ditto"), ("=two", "mocha")):
        clients = {"007": (0.5, 0.75), "=1+1": (0.25, 0.125), "@a": (0.375, 0.5)}
        written.run(tmp_path / "runs", name, algorithm, clients)
    (tmp_path / "runs" / "one" / "candidates.csv").write_text(
        "run_id,round,split,client_id,candidate,accuracy,loss\n"
        "one,10,test,toy:007,0,0.5,\none,10,test,toy:007,1,0.75,1.25\none,5,test,toy:007,0,0.1,1\n"
    )
    return tmp_path / "runs"


def _sheets(path):
    book = openpyxl.load_workbook(path)
    return {sheet.title: [[cell.value for cell in row] for row in sheet] for sheet in book}, book


def test_every_row_as_the_csvs_have_it(metrics, runs, tmp_path):
    metrics(runs, f"--output={tmp_path / 'x.xlsx'}")
    sheets, book = _sheets(tmp_path / "x.xlsx")
    assert list(sheets) == ["summary", "clients", "candidates"]
    header, *rows = sheets["clients"]
    expected = commands.rows(runs / "one" / "clients.csv")
    ours = [dict(zip(header, row, strict=True)) for row in rows]
    own = [row for row in ours if row["run_id"] == "one"]
    assert len(own) == len(expected) == 5 and len(ours) == 10
    metrics(runs, f"--output={tmp_path / 'x.csv'}")
    printed = commands.rows(tmp_path / "x.csv")
    header, *rows = sheets["summary"]
    summary = [dict(zip(header, row, strict=True)) for row in rows]
    assert header == list(printed[0])
    # The clients' rows are those of their file, the summary is the printed table.
    for row, same in zip([*own, *summary], [*expected, *printed], strict=True):
        for name, text in same.items():
            if isinstance(row[name], int | float):
                assert float(text) == pytest.approx(row[name], rel=1e-8), name
            else:
                assert csv_files.formula_undone(text) == (row[name] or ""), name
    # Numbers are numbers, names and keys are text; nothing is a formula.
    assert isinstance(own[0]["baseline"], float)
    assert isinstance(own[0]["num_evaluation_examples"], int)
    assert {row["client_id"] for row in own} == {"v0", "v1", "007", "=1+1", "@a"}
    assert all(isinstance(row["base_random_seed"], str) for row in own)
    kinds = {cell.data_type for sheet in book for row in sheet for cell in row}
    assert kinds <= {"s", "n"}
    for sheet in book:
        assert sheet.freeze_panes == "A2" and sheet.auto_filter.ref == sheet.dimensions
        assert all(cell.font.bold for cell in sheet[1])
    # The last round only, as in the table.
    assert [row[4] for row in sheets["candidates"][1:]] == ["0", "1"]
    assert sheets["candidates"][1][-1] is None


@pytest.mark.parametrize("name", ["mine.csv", "clients.csv"])
def test_foreign_ids_stay_text(metrics, tmp_path, name):
    path = tmp_path / name
    path.write_text("user,score,note\n001,0.5,x\n<r><t>x</r>,0.25,\n<r>a&b</r>,1,\n")
    (tmp_path / "candidates.csv").write_text("a table of another kind\n1\n")
    flags = ("--columns=client=user,baseline=score", "--higher_is_better", "--metric=accuracy")
    metrics(path, *flags, f"--output={tmp_path / 'x.xlsx'}")
    header, *rows = _sheets(tmp_path / "x.xlsx")[0]["clients"]
    cells = [dict(zip(header, row, strict=True)) for row in rows]
    expected = [("001", 0.5), ("<r><t>x</r>", 0.25), ("<r>a&b</r>", 1)]
    assert [(row["client_id"], row["baseline"]) for row in cells] == expected


def test_runs_of_one_name_are_told_apart(metrics, tmp_path):
    roots = [tmp_path / "s0", tmp_path / "s1"]
    for root in roots:
        written.run(root, "same", "ditto", {"a": (0.5, 0.75)})
    metrics(*roots, "--splits=test", f"--output={tmp_path / 'x.xlsx'}")
    sheets = _sheets(tmp_path / "x.xlsx")[0]
    expected = [str(root / "same") for root in roots]
    assert [row[0] for row in sheets["clients"][1:]] == expected
    assert [row[0] for row in sheets["summary"][1:]] == expected


def test_scores_have_sheets_of_clients_and_of_examples(metrics, tmp_path):
    path = tmp_path / "scores.csv"
    keys = "r,toy,fedavg,0,5,test"
    lines = [f"{keys},toy:{c},'=a,{i % 2},{i / 7:.3f},{i / 9:.3f}" for c in "ab" for i in range(4)]
    path.write_text("\n".join([",".join(columns.names("scores")), *lines]) + "\n")
    metrics(path, f"--output={tmp_path / 'x.xlsx'}")
    sheets, _ = _sheets(tmp_path / "x.xlsx")
    assert list(sheets) == ["summary", "clients", "scores"]
    assert "rounds 5.0 and splits test" in metrics.refused(path, "--round=99")
    assert [len(rows) for rows in sheets.values()] == [3, 5, 9]
    assert "roc_auc" in sheets["clients"][0]
    # A class's name is its name again: no cell of a workbook is a formula.
    assert sheets["scores"][1][sheets["scores"][0].index("class")] == "=a"


def test_what_excel_cannot_hold_is_one_line(tmp_path):
    path = tmp_path / "x.xlsx"
    for rows, content, expected in (
        (pd.DataFrame({"a": np.zeros(1_048_576)}), "1048576 rows", "1048575"),
        (pd.DataFrame(columns=range(16_385)), "16385 columns", "16384"),
        (pd.DataFrame({"a": ["x" * 40_000]}), "40000 char", "32767"),
    ):
        with refused("clients", content, expected, "a/clients.csv"):
            workbook.write(path, [workbook.Sheet("clients", rows, "a/clients.csv")])
    assert not list(tmp_path.iterdir())
    workbook.write(
        path, [workbook.of_table("summary", output.ShownTable(["a"], [{"a": "=1+1"}]), "f")]
    )
    assert _sheets(path)[0] == {"summary": [["a"], ["=1+1"]]}
