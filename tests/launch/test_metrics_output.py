"""Tables as text, CSV, Markdown and LaTeX."""

from launch.metrics import output as metrics_output
from tests.errors import refused

TABLE = metrics_output.ShownTable(
    ("name", "x", "empty", "number"),
    [
        {"name": "=a_b|c\\", "x": 1 / 3, "empty": float("nan"), "number": 400000},
        {"name": "50%_\x1b[2J<b>", "x": -0.5, "number": None},
        {"name": "_c_", "x": 1e-12, "empty": None},
    ],
    ["a note\non two_lines 5%"],
)


def test_text():
    assert list(metrics_output.text(TABLE)) == [
        "name               x  number",
        "=a_b|c\\      0.33333  400000",
        "50%_ [2J<b>     -0.5",
        "_c_            1e-12",
        "",
        "a note on two_lines 5%",
    ]


def test_markdown():
    assert list(metrics_output.markdown(TABLE)) == [
        "| name            |       x | number |",
        "| --------------- | ------: | -----: |",
        "| =a_b\\|c\\\\       | 0.33333 | 400000 |",
        "| 50%\\_ \\[2J\\<b\\> |    -0.5 |        |",
        "| \\_c\\_           |   1e-12 |        |",
        "",
        "a note on two_lines 5%",
    ]


def test_latex():
    assert list(metrics_output.latex(TABLE)) == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"name & x & number \\",
        r"\midrule",
        r"=a\_b\textbar{}c\textbackslash{} & 0.33333 & 400000 \\",
        r"50\%\_ [2J\textless{}b\textgreater{} & -0.5 &  \\",
        r"\_c\_ & 1e-12 &  \\",
        r"\bottomrule",
        r"\end{tabular}",
        "% a note on two_lines 5%",
    ]


def test_csv(tmp_path):
    path = tmp_path / "x.csv"
    metrics_output.write(str(path), TABLE)
    assert path.read_text().splitlines()[:2] == [
        "name,x,empty,number", "'=a_b|c\\,0.333333333,,400000",
    ]  # fmt: skip
    # A negative number is a number, a text that looks like one is not.
    assert ",-0.5,," in path.read_text()


def test_where_output_may_go(tmp_path):
    metrics_output.check_output(str(tmp_path / "x.md"))
    (tmp_path / "y.csv").mkdir()
    for wrong in ("x.txt", "nowhere/x.csv", "y.csv"):
        with refused("output", str(tmp_path / wrong)):
            metrics_output.check_output(str(tmp_path / wrong))
