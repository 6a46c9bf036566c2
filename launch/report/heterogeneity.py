"""How clients' data differ, drawn, a row a client: labels (Motley's Figure 10) and images."""

import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from launch.report import style
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

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
    style.save_picture(figure, path)
    pairs = itertools.product(client_ids, labels)
    rows = [(*pair, share) for pair, share in zip(pairs, shares.flat, strict=True)]
    _write(path, ("client_id", "label", "share"), rows)


def read(path: pathlib.Path) -> tuple[list[str], list[str], np.ndarray]:
    """Returns (client ids, labels, shares [clients, labels]) of a table that `save` wrote."""
    from launch.report import runs

    table = runs.read(path, ("client_id", "label", "share"))
    if table.empty:
        raise UserError(str(path), "no rows", "what motley_doctor writes")
    wide = table.pivot_table(index="client_id", columns="label", values="share", sort=False)
    ids, labels = ([csv_files.formula_undone(str(name)) for name in axis] for axis in wide.axes)
    return ids, labels, wide.to_numpy(float)


def drawn(path: pathlib.Path) -> Iterator[style.Drawn]:
    """Yields the heat map of a table that `save` wrote, and the share of the commonest label."""
    clients, labels, shares = read(path)
    figure, [[ax]] = style.panels(1, height=1.2 + 0.14 * len(clients))
    draw(ax, clients, labels, shares)
    most = 100.0 * float(np.nanmax(shares, axis=1).mean())
    row = {"clients": len(clients), "labels": len(labels), "most frequent label, mean (%)": most}
    yield style.Drawn("labels", figure, [row])


def save_sizes(path: pathlib.Path, title: str, sizes: Mapping[str, Mapping[str, int]]) -> None:
    """Writes a picture of `{split: {client id: number of examples}}`, the largest client first, and
    the numbers as CSV.
    """
    figure = Figure(figsize=(5, 3), layout="constrained")
    ax = figure.add_subplot()
    for split, look in style.styles(list(sizes)).items():
        counts = np.sort(list(sizes[split].values()))[::-1]
        style.line(ax, f"{split}: {len(counts):,} clients", np.arange(len(counts)), counts, look)
    ax.set(xlabel="client, the largest first", ylabel="examples", ylim=(0, None), title=title)
    ax.legend()
    style.save_picture(figure, path)
    rows = [(split, i, count) for split, counts in sizes.items() for i, count in counts.items()]
    _write(path, ("split", "client_id", "num_examples"), rows)


def save_images(
    path: pathlib.Path, title: str, client_ids: Sequence[str], images: Sequence[np.ndarray]
) -> None:
    """Writes a picture with a row a client: images [n, height, width, channels] each, values 0..1;
    the suffix says which kind.
    """
    height, width, channels = images[0].shape[1:]
    columns = max(len(row) for row in images)
    sheet = np.ones((len(images) * height, columns * width, channels))
    for i, row in enumerate(images):
        sheet[i * height : (i + 1) * height, : len(row) * width] = np.concatenate([*row], axis=1)
    figure = Figure(figsize=(9, 1 + 0.45 * len(images)), layout="constrained")
    ax = figure.add_subplot(title=title, xticks=[])
    ax.imshow(np.clip(sheet.squeeze(), 0.0, 1.0), cmap="gray", vmin=0.0, vmax=1.0)
    ax.set_yticks((np.arange(len(images)) + 0.5) * height, client_ids, fontsize=7, parse_math=False)
    style.save_picture(figure, path, bbox_inches="tight")


def _write(path: pathlib.Path, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes a table beside a picture."""
    table = (csv_files.formula_safe(dict(zip(names, row, strict=True))) for row in rows)
    csv_files.write(path.with_suffix(".csv"), names, table)
