"""The one selection rule: which candidate a client's personalized model is.

Choices use validation values only; test values never enter this file's functions. Clients without
a score (`metrics.client_values`) have no say, and a model that diverged gives way to any other.
"""

import math
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
      validation_values: The metric, [num_clients, num_candidates]; candidate 0 is the baseline. A
        client whose values are all not-a-number is unscored and left out; any other value that is
        not finite is of a candidate that diverged for that client.
      tuning: `global` takes the candidate of best *unweighted mean over validation clients* and
        returns one number; `per_client` takes each client's own best and returns [num_clients].
      include_baseline: Whether the baseline may be chosen (it is when it is the only candidate).

    Returns:
      int array, [] for `global` or [num_clients] for `per_client`. Ties, to float32's precision,
      go to the lower index (the smaller epoch). Of candidates that diverged for some client those
      are left that diverged for fewest; a client that chooses for itself takes the first if all
      diverged for it.

    Raises:
      ValueError: If the array is not two-dimensional or empty.
    """
    values = np.asarray(validation_values, np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"Expected [clients >= 1, candidates >= 1], found {values.shape}.")
    first = 0 if include_baseline or values.shape[1] == 1 else 1
    scores = values[:, first:] if higher_is_better else -values[:, first:]
    if tuning == "global":
        scores = _mean_scores(scores)
    chosen = first + _first_best(np.where(np.isfinite(scores), scores, -np.inf))
    return chosen if tuning == "per_client" else chosen[0]


def diverged_for(validation_values: np.ndarray) -> np.ndarray:
    """Returns for how many clients each candidate diverged: [clients, candidates] -> [candidates].
    Arguments are those of `choose`.
    """
    is_scored = ~np.isnan(validation_values).all(axis=1)
    return np.sum(~np.isfinite(validation_values[is_scored]), axis=0)


def _mean_scores(scores: np.ndarray) -> np.ndarray:
    """Returns candidates' mean scores, [1, candidates], of those that diverged for fewest clients;
    of the others, and where nobody has a score, -inf. An unscored client has a value nowhere, and
    so makes no difference.
    """
    is_finite = np.isfinite(scores)
    counts = is_finite.sum(axis=0)
    sums = np.where(is_finite, scores, 0.0).sum(axis=0)
    means = np.divide(sums, counts, out=np.full(len(counts), -np.inf), where=counts > 0)
    return np.where(counts == counts.max(), means, -np.inf)[None]


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


def best_round(
    rows: Sequence[Mapping[str, str]], higher_is_better: bool, metric: str | None = None
) -> str:
    """Returns the round of best validation mean, the first of equals; the last if there is none.
    Rounds after which fewest clients' models diverged come before all others.

    Args:
      rows: Those of `summary.csv`: `round`, `split`, `personalized_mean` and `num_diverged` (not in
        tables of earlier versions), as text; of another metric than the reported one
        `personalized_<metric>_mean` and `num_diverged_<metric>`.
      metric: The other metric.
    """
    valid = _ranks(rows, higher_is_better, metric)
    return max(valid, key=lambda row: row[1])[0] if valid else rows[-1]["round"]


def evaluations_since_better(
    rows: Sequence[Mapping[str, str]],
    higher_is_better: bool,
    metric: str | None,
    min_improvement: float,
) -> int:
    """Returns how many evaluations there were since the last one that was better than all before by
    more than `min_improvement`, by what `best_round` chooses by. One without a score counts as
    worse; the others' arguments are those of `best_round`.
    """
    ranks = dict(_ranks(rows, higher_is_better, metric))
    best, since = (-math.inf, -math.inf), 0
    for number in dict.fromkeys(row["round"] for row in rows):
        diverged, score = ranks.get(number, (-math.inf, -math.inf))
        is_better = diverged > best[0] or (
            diverged == best[0] and score - best[1] > min_improvement
        )
        best, since = ((diverged, score), 0) if is_better else (best, since + 1)
    return since


def _ranks(
    rows: Sequence[Mapping[str, str]], higher_is_better: bool, metric: str | None
) -> list[tuple[str, tuple[float, float]]]:
    """Returns the rounds that have a validation mean, each with what is larger if it is better."""
    mean, number = "personalized_mean", "num_diverged"
    if metric is not None:
        mean, number = f"personalized_{metric}_mean", f"num_diverged_{metric}"
    sign = 1 if higher_is_better else -1
    return [
        (row["round"], (-int(row.get(number) or 0), sign * float(row[mean])))
        for row in rows
        if row["split"] == "valid" and row[mean]
    ]
