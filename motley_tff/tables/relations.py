"""How silos are related, drawn: Mocha's matrix as a heat map."""

import pathlib

import numpy as np
from matplotlib.figure import Figure
from scipy.cluster import hierarchy

from motley_tff.core.errors import UserError
from motley_tff.files import csv_files
from motley_tff.tables import reading

# More names than this cannot be read.
_MAX_NAMES = 60


def read(path: pathlib.Path) -> tuple[list[str], np.ndarray]:
    """Returns (client ids, matrix [clients, clients]) of a `relations.csv`."""
    file = reading.open_file(path)
    reading.require(file, ["client_id"])
    ids = file.header[1:]
    frame = reading.read(file, "relations", guess=True)
    matrix = frame[ids].to_numpy()
    if matrix.dtype != float or matrix.shape != (len(ids), len(ids)) or np.isnan(matrix).any():
        expected = "a finite number for each pair of silos, as the trainer wrote them"
        raise UserError(str(path), f"{len(matrix)} rows of {len(ids)} cells", expected)
    return ids, matrix


def update(path: pathlib.Path, table: pathlib.Path) -> None:
    """Draws a `relations.csv` if the picture is not there, or older."""
    if not path.exists() or path.stat().st_mtime < table.stat().st_mtime:
        path.parent.mkdir(exist_ok=True)
        save(path, table)


def save(path: pathlib.Path, table: pathlib.Path) -> None:
    """Draws a `relations.csv`; the suffix of `path` says which kind of picture.

    Silos are put in an order in which related ones are neighbours. Each entry is divided by the
    root of its two diagonal ones, as a correlation is, so that silos with large models do not
    outshine the others.
    """
    ids, matrix = read(table)
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-12))
    correlation = matrix / scale[:, None] / scale[None, :]
    order = np.arange(len(ids))
    if len(ids) > 2:
        linkage = hierarchy.linkage(correlation, method="average", optimal_ordering=True)
        order = hierarchy.leaves_list(linkage)
    names = [ids[i].partition(":")[2] for i in order]
    figure = Figure(figsize=(6.5, 5.5), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(correlation[np.ix_(order, order)], cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    figure.colorbar(image, ax=axes, label="relation, scaled to a diagonal of 1")
    if len(names) <= _MAX_NAMES:
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
        axes.set_yticks(range(len(names)), names, fontsize=6)
    axes.set(xlabel="silo", ylabel="silo", title="Relations between silos")
    with csv_files.replacing(path, "wb") as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150)
