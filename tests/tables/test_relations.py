"""The picture of Mocha's relations."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from motley_tff.files import csv_files
from motley_tff.tables import relations
from tests.errors import refused


@pytest.fixture
def table(tmp_path):
    ids = ["school:a", "school:b", "school:c"]
    matrix = [[4, 0, 2], [0, 1, 0], [2, 0, 4]]
    rows = [
        {"client_id": i, **dict(zip(ids, row, strict=True))}
        for i, row in zip(ids, matrix, strict=True)
    ]
    csv_files.write(tmp_path / "relations.csv", ("client_id", *ids), rows)
    return tmp_path / "relations.csv"


def test_related_silos_are_neighbours_and_scaled_to_a_diagonal_of_1(table, monkeypatch):
    drawn, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure,
        "savefig",
        lambda figure, *to, **options: (drawn.append(figure), save(figure, *to, **options)),
    )
    relations.save(table.parent / "relations.png", table)
    assert (table.parent / "relations.png").read_bytes().startswith(b"\x89PNG")
    axes = drawn[0].axes[0]
    place = {label.get_text(): i for i, label in enumerate(axes.get_yticklabels())}
    a, b, c = (place[name] for name in "abc")
    assert abs(a - c) == 1
    drawn_matrix = axes.images[0].get_array()[np.ix_([a, b, c], [a, b, c])]
    np.testing.assert_allclose(drawn_matrix, [[1, 0, 0.5], [0, 1, 0], [0.5, 0, 1]])


def test_a_damaged_table_is_one_line(table):
    for text in ("client_id,a,b\na,1,\nb,0,1\n", "client_id,a,b\na,1,0\n", ""):
        table.write_text(text)
        with refused("relations.csv"):
            relations.read(table)


def test_a_picture_that_is_cut_is_not_there(table, monkeypatch):
    """Half a picture would never be drawn again."""

    def cut(figure, file, **options):
        with open(file, "wb") if not hasattr(file, "write") else file as opened:
            opened.write(b"\x89PN")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", cut)
    with pytest.raises(KeyboardInterrupt):
        relations.save(table.parent / "relations.png", table)
    assert [path.name for path in table.parent.iterdir()] == ["relations.csv"]
