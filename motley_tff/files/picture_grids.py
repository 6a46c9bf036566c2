"""A grid of small pictures as one PNG, to be looked at."""

import io
import pathlib

import numpy as np

from motley_tff.files import csv_files

_MOST, _COLUMNS, _GAP = 100, 10, 2
_SHORTEST_SIDE = 56


def save(path: pathlib.Path, pictures: np.ndarray) -> None:
    """Writes the first 100 of pictures uint8 [n, height, width, 1 or 3], ten a row, small ones
    enlarged; a full disk is a UserError.
    """
    import PIL.Image

    shown = pictures[:_MOST]
    rows, (_, height, width, channels) = -(-len(shown) // _COLUMNS), shown.shape
    cell_height, cell_width = height + _GAP, width + _GAP
    grid = np.full(
        (rows * cell_height + _GAP, _COLUMNS * cell_width + _GAP, channels), 128, np.uint8
    )
    for i, picture in enumerate(shown):
        top, left = i // _COLUMNS * cell_height + _GAP, i % _COLUMNS * cell_width + _GAP
        grid[top : top + height, left : left + width] = picture
    scale = -(-_SHORTEST_SIDE // height)
    image = PIL.Image.fromarray(grid.squeeze())
    image = image.resize((image.width * scale, image.height * scale), PIL.Image.Resampling.NEAREST)
    content = io.BytesIO()
    image.save(content, "PNG")
    path.parent.mkdir(exist_ok=True)
    with csv_files.replacing(path, "wb") as file:
        file.write(content.getvalue())
