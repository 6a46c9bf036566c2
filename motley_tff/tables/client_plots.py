"""A run's test clients, drawn: what each gained with its own model, who is hurt first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from motley_tff.core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

# More names than this cannot be read.
_MAX_NAMES = 60
_HURT, _NOT_HURT = "#D55E00", "#0072B2"


def draw(clients: pd.DataFrame, split: str = "test", ax: Any = None) -> Any:
    """Draws a bar for each client of a split that has a value, those that lose most first.

    Args:
      clients: Rows of one evaluation in `clients.csv`.
      split: `test` or `valid`.
      ax: Matplotlib's axes to draw into; new ones if None.

    Returns:
      The axes.

    Raises:
      UserError: If no client of the split has a value under both models.
    """
    rows = clients[clients["split"] == split]
    drawn = rows[np.isfinite(rows["delta"].astype(float))].sort_values("delta", kind="stable")
    if drawn.empty:
        splits = ", ".join(sorted(set(clients["split"]))) or "none"
        raise UserError(f"split {split!r}", "no client with a value", f"one of {splits} with some")
    if ax is None:
        from matplotlib import pyplot  # Takes 0.5 s.

        _, ax = pyplot.subplots(figsize=(7, 3), layout="constrained")
    names = [client_id.partition(":")[2] for client_id in drawn["client_id"]]
    is_hurt = drawn["is_hurt"].astype(bool).to_numpy()
    for chosen, colour, words, hatch in (
        (is_hurt, _HURT, "worse off with their own model", "///"),
        (~is_hurt, _NOT_HURT, "not worse off", ""),
    ):
        places = np.flatnonzero(chosen)
        label = f"{words}: {len(places)} of {len(drawn)}"
        ax.bar(
            places, drawn["delta"].to_numpy(float)[places], color=colour, hatch=hatch, label=label
        )
    ax.axhline(0.0, color="black", linewidth=0.8)
    if len(names) <= _MAX_NAMES:
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
    else:
        ax.set_xticks([])
    metric, left_out = drawn["metric"].iloc[0], len(rows) - len(drawn)
    without = f"; {left_out} without a value" if left_out else ""
    ax.set(xlabel=f"{split} client{without}", ylabel=f"gain in {metric} (positive is better)")
    ax.legend(fontsize=7)
    return ax
