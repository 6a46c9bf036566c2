from motley_tff.files import text_tables

TABLE = [("name", "x"), ("a|b", "1.5"), ("c", "")]


def test_aligned():
    assert list(text_tables.aligned(TABLE)) == ["name    x", "a|b   1.5", "c"]


def test_markdown():
    assert list(text_tables.markdown(TABLE)) == [
        "| name |   x |",
        "| ---- | --: |",
        r"| a\|b | 1.5 |",
        "| c    |     |",
    ]
