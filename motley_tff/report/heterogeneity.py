"""How clients' labels differ, drawn: a row a client, a column a label (Motley's Figure 10)."""

import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Longer ones would leave no room for the picture.
_MAX_NAME = 28


def draw(ax: Axes, client_ids: Sequence[str], labels: Sequence[str], shares: np.ndarray) -> Axes:
    """Draws shares [clients, labels] as a heat map and returns the axes."""
    image = ax.imshow(shares, aspect="auto", cmap="viridis", vmin=0.0, interpolation="nearest")
    # Names may hold a dollar sign, which would begin a formula.
    ax.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7, parse_math=False)
    names = [name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…" for name in client_ids]
    ax.set_yticks(range(len(names)), names, fontsize=7, parse_math=False)
    ax.set_xlabel("label")
    ax.set_ylabel("client")
    assert ax.figure is not None
    ax.figure.colorbar(image, ax=ax, label="share of the client's labels")
    return ax


def save(
    path: pathlib.Path,
    title: str,
    client_ids: Sequence[str],
    labels: Sequence[str],
    shares: np.ndarray,
) -> None:
    """Writes the heat map as a picture; the suffix says which kind."""
    figure = Figure(figsize=(7.5, 1.5 + 0.22 * len(client_ids)), layout="constrained")
    draw(figure.add_subplot(), client_ids, labels, shares).set_title(title)
    figure.savefig(path, dpi=150)
