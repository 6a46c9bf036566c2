"""How clients' data differ, drawn, a row a client: labels (Motley's Figure 10) and images."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from motley_tff.core.errors import UserError
from motley_tff.files import csv_files
from motley_tff.report import style

# Longer ones would leave no room for the picture.
_MAX_NAME = 28
_LABEL_INCHES, _NAMES_AND_BAR_INCHES = 0.13, 2.4


def draw(ax: Axes, client_ids: Sequence[str], labels: Sequence[str], shares: np.ndarray) -> Axes:
    """Draws shares [clients, labels] as a heat map and returns the axes."""
    image = ax.imshow(shares, aspect="auto", cmap="viridis", vmin=0.0, interpolation="nearest")
    figure = ax.get_figure(root=True)
    assert figure is not None
    # Of many labels every second, third, ... has room for its name.
    room = max(2, int((figure.get_figwidth() - _NAMES_AND_BAR_INCHES) / _LABEL_INCHES))
    places = range(0, len(labels), -(-len(labels) // room))
    # Names may hold a dollar sign, which would begin a formula.
    ax.set_xticks(places, [labels[i] for i in places], rotation=90, fontsize=7, parse_math=False)
    names = [name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…" for name in client_ids]
    ax.set_yticks(range(len(names)), names, fontsize=7, parse_math=False)
    ax.set(xlabel="label", ylabel="client")
    figure.colorbar(image, ax=ax, label="share of the client's labels")
    return ax


def save(
    path: pathlib.Path,
    title: str,
    client_ids: Sequence[str],
    labels: Sequence[str],
    shares: np.ndarray,
) -> None:
    """Writes the heat map as a picture, whose suffix says which kind, and its numbers as CSV."""
    figure = Figure(figsize=(7.5, 1.5 + 0.22 * len(client_ids)), layout="constrained")
    draw(figure.add_subplot(), client_ids, labels, shares).set_title(title)
    with csv_files.replacing(path, "wb") as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150)
    rows = (
        csv_files.formula_safe({"client_id": client_id, "label": label, "share": shares[i, j]})
        for i, client_id in enumerate(client_ids)
        for j, label in enumerate(labels)
    )
    csv_files.write(path.with_suffix(".csv"), ("client_id", "label", "share"), rows)


def read(path: pathlib.Path) -> tuple[list[str], list[str], np.ndarray]:
    """Returns (client ids, labels, shares [clients, labels]) of a table that `save` wrote."""
    from motley_tff.report import runs

    table = runs.read(path, ("client_id", "label", "share"))
    if table.empty:
        raise UserError(str(path), "no rows", "what motley_doctor writes")
    wide = table.pivot_table(index="client_id", columns="label", values="share", sort=False)
    ids, labels = (
        [csv_files.formula_undone(str(name)) for name in axis]
        for axis in (wide.index, wide.columns)
    )
    return ids, labels, wide.to_numpy(float)


def draw_sizes(ax: Axes, sizes: Mapping[str, Sequence[int]]) -> Axes:
    """Draws the numbers of examples of each split's clients, the largest client first."""
    for split, look in style.styles(list(sizes)).items():
        counts = np.sort(sizes[split])[::-1]
        every = max(1, len(counts) // 20)
        label = f"{split}: {len(counts):,} clients"
        ax.plot(counts, label=label, markevery=every, markersize=4, **look.options)
    ax.set(xlabel="client, the largest first", ylabel="examples", ylim=(0, None))
    ax.legend()
    return ax


def save_sizes(path: pathlib.Path, title: str, sizes: Mapping[str, Mapping[str, int]]) -> None:
    """Writes a picture of `{split: {client id: number of examples}}` and the numbers as CSV."""
    figure = Figure(figsize=(5, 3), layout="constrained")
    counts = {split: list(by_client.values()) for split, by_client in sizes.items()}
    draw_sizes(figure.add_subplot(), counts).set_title(title)
    with csv_files.replacing(path, "wb") as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150)
    rows = (
        csv_files.formula_safe({"split": split, "client_id": client_id, "num_examples": count})
        for split, by_client in sizes.items()
        for client_id, count in by_client.items()
    )
    csv_files.write(path.with_suffix(".csv"), ("split", "client_id", "num_examples"), rows)


def draw_images(ax: Axes, client_ids: Sequence[str], images: Sequence[np.ndarray]) -> Axes:
    """Draws rows of images, [n, height, width, channels] each, values 0..1; returns the axes."""
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


def save_images(
    path: pathlib.Path, title: str, client_ids: Sequence[str], images: Sequence[np.ndarray]
) -> None:
    """Writes the sheet as a picture; the suffix says which kind."""
    figure = Figure(figsize=(9, 1 + 0.45 * len(images)), layout="constrained")
    draw_images(figure.add_subplot(), client_ids, images).set_title(title)
    with csv_files.replacing(path, "wb") as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150, bbox_inches="tight")
