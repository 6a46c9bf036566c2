"""Contact sheets: a row of images a client."""

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from motley_tff.report import heterogeneity


def test_a_row_a_client_with_its_name(tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.random((n, 2, 2, 1)) for n in (2, 3)]
    ax = heterogeneity.draw_images(Figure().add_subplot(), ["a$b$", "c"], images)
    sheet = np.ones((4, 6))  # What a client has no image for stays white.
    for i, row in enumerate(images):
        for j, image in enumerate(row):
            sheet[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] = image[..., 0]
    np.testing.assert_array_equal(ax.images[0].get_array(), sheet)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a$b$", "c"]
    assert list(ax.get_yticks()) == [1.0, 3.0], "the middle of each row"
    heterogeneity.save_images(tmp_path / "sheet.png", "title", ["a", "c"], images)
    with Image.open(tmp_path / "sheet.png") as picture:
        assert picture.size[0] > 300 and len(picture.getcolors(2**24)) > 10
