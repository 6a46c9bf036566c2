"""The one selection rule: which candidate a client's personalized model is.

Choices use validation values only; test values never enter this file's functions.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

# Scores are float32: sums in another order may differ by this much.
_ROUNDING = 1e-7

Tuning = Literal["global", "per_client"]


def choose(
    validation_values: np.ndarray,
    higher_is_better: bool,
    tuning: Tuning = "global",
    include_baseline: bool = True,
) -> np.ndarray:
    """Returns the chosen candidate of each client, or of all clients alike.

    Args:
      validation_values: The metric, [num_clients, num_candidates]; candidate 0 is the baseline.
      tuning: `global` takes the candidate of best *unweighted mean over validation clients* and
        returns one number; `per_client` takes each client's own best and returns [num_clients].
      include_baseline: Whether the baseline may be chosen (it is when it is the only candidate).

    Returns:
      int array, [] for `global` or [num_clients] for `per_client`. Ties, to float32's precision,
      go to the lower index (the smaller epoch). A candidate with a value that is not finite
      (diverged) is never taken while another is left.

    Raises:
      ValueError: If the array is not two-dimensional or empty.
    """
    values = np.asarray(validation_values, np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"Expected [clients >= 1, candidates >= 1], found {values.shape}.")
    first = 0 if include_baseline or values.shape[1] == 1 else 1
    scores = values if tuning == "per_client" else values.mean(axis=0, keepdims=True)
    scores = scores[:, first:] if higher_is_better else -scores[:, first:]
    chosen = first + _first_best(np.where(np.isfinite(scores), scores, -np.inf))
    return chosen if tuning == "per_client" else chosen[0]


def _first_best(scores: np.ndarray) -> np.ndarray:
    """Returns each row's first column within rounding of the row's maximum."""
    best = scores.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # -inf - -inf, where every candidate diverged.
        is_best = (scores == best) | (best - scores <= _ROUNDING * np.abs(best))
    return np.argmax(is_best, axis=1)


def take(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns each client's value at its chosen candidate: [num_clients, C] -> [num_clients]."""
    rows = np.arange(len(values))
    return values[rows, np.broadcast_to(chosen, rows.shape)]


def best_round(rows: Sequence[Mapping[str, str]], higher_is_better: bool) -> str:
    """Returns the round of best validation mean, the first of equals; the last if there is none.

    `rows` are those of `summary.csv`: `round`, `split` and `personalized_mean`, as text.
    """
    valid = [row for row in rows if row["split"] == "valid" and row["personalized_mean"]]
    if not valid:
        return rows[-1]["round"]
    sign = 1 if higher_is_better else -1
    return max(valid, key=lambda row: sign * float(row["personalized_mean"]))["round"]
