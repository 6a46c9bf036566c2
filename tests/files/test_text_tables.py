from motley_tff.files import text_tables

TABLE = [("name", "x"), ("a|b", "1.5"), ("c", "")]


def test_aligned():
    assert list(text_tables.aligned(TABLE)) == ["name    x", "a|b   1.5", "c"]


def test_cells_that_would_move_a_cursor():
    table = [("name", "x"), ("\x1b[2J\ra\n", "1")]
    assert list(text_tables.aligned(table)) == ["name     x", " [2J a   1"]
    assert list(text_tables.markdown(table))[-1] == "|  [2J a  |   1 |"


def test_markdown():
    assert list(text_tables.markdown(TABLE)) == [
        "| name |   x |",
        "| ---- | --: |",
        r"| a\|b | 1.5 |",
        "| c    |     |",
    ]
