"""How clients differ: pictures, and the numbers beside them, which a report reads back."""

import numpy as np

from launch.report import heterogeneity, style
from tests.errors import refused


def test_the_table_beside_the_picture_says_the_same(tmp_path):
    path = tmp_path / "heterogeneity_toy.png"
    # Neither clients nor labels are in the order of their names.
    shares = np.array([[0.25, 0.75, 0.0], [0.5, 0.25, 0.25]])
    heterogeneity.save(path, "toy", ["b", "'a"], ["10", "9", "=x"], shares)
    assert path.read_bytes().startswith(b"\x89PNG")
    clients, labels, read = heterogeneity.read(path.with_suffix(".csv"))
    assert (clients, labels) == (["b", "'a"], ["10", "9", "=x"])
    assert np.array_equal(read, shares)
    assert "b,'=x,0" in path.with_suffix(".csv").read_text().splitlines()


def test_another_table_is_refused(tmp_path):
    path = tmp_path / "heterogeneity_toy.csv"
    path.write_text("client_id,share\na,1\n")
    with refused("heterogeneity_toy.csv", "client_id, share", "label"):
        heterogeneity.read(path)


def test_sizes_are_drawn_and_written(tmp_path):
    path = tmp_path / "sizes_toy.png"
    heterogeneity.save_sizes(path, "toy", {"train": {"a": 3, "=b": 9}, "test": {"c": 1}})
    assert path.read_bytes().startswith(b"\x89PNG")
    lines = path.with_suffix(".csv").read_text().splitlines()
    assert lines == ["split,client_id,num_examples", "train,a,3", "train,'=b,9", "test,c,1"]


def test_images_have_a_row_a_client_with_its_name(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(style, "save_picture", lambda figure, *_, **options: drawn.append(figure))
    rng = np.random.default_rng(0)
    images = [rng.random((n, 2, 2, 1)) for n in (2, 3)]
    heterogeneity.save_images(tmp_path / "sheet.png", "title", ["a$b$", "c"], images)
    (ax,) = drawn[0].axes
    sheet = np.ones((4, 6))  # What a client has no image for stays white.
    for i, row in enumerate(images):
        for j, image in enumerate(row):
            sheet[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] = image[..., 0]
    np.testing.assert_array_equal(ax.images[0].get_array(), sheet)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a$b$", "c"]
    assert list(ax.get_yticks()) == [1.0, 3.0], "the middle of each row"
