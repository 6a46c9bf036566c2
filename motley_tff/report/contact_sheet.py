"""Clients' images side by side: a row a client."""

import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from motley_tff.files import csv_files


def draw(ax: Axes, client_ids: Sequence[str], images: Sequence[np.ndarray]) -> Axes:
    """Draws rows of images and returns the axes.

    A row is an array [n, height, width, channels], values 0..1; n may differ.
    """
    height, width, channels = images[0].shape[1:]
    columns = max(len(row) for row in images)
    sheet = np.ones((len(images) * height, columns * width, channels))
    for i, row in enumerate(images):
        for j, image in enumerate(row):
            sheet[i * height : (i + 1) * height, j * width : (j + 1) * width] = image
    ax.imshow(np.clip(sheet.squeeze(), 0.0, 1.0), cmap="gray", vmin=0.0, vmax=1.0)
    ax.set_yticks((np.arange(len(images)) + 0.5) * height, client_ids, fontsize=7, parse_math=False)
    ax.set_xticks([])
    return ax


def save(
    path: pathlib.Path, title: str, client_ids: Sequence[str], images: Sequence[np.ndarray]
) -> None:
    """Writes the sheet as a picture; the suffix says which kind."""
    figure = Figure(figsize=(9, 1 + 0.45 * len(images)), layout="constrained")
    draw(figure.add_subplot(), client_ids, images).set_title(title)
    with csv_files.replacing(path, "wb") as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150, bbox_inches="tight")
