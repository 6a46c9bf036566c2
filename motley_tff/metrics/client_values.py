"""The columns of the per-client table that population metrics are functions of."""

import dataclasses
from typing import Literal

import numpy as np

Column = Literal["baseline", "personalized", "delta"]


def gain(baseline: np.ndarray, personalized: np.ndarray, higher_is_better: bool) -> np.ndarray:
    """Returns what each client gained: positive is better, for errors too."""
    difference = personalized - baseline
    return difference if higher_is_better else -difference


def is_hurt(baseline: np.ndarray, personalized: np.ndarray, higher_is_better: bool) -> np.ndarray:
    """Returns whether each client is strictly worse off; a diverged personalized model hurts."""
    diverged = ~np.isfinite(personalized) & np.isfinite(baseline)
    return (gain(baseline, personalized, higher_is_better) < 0) | diverged


@dataclasses.dataclass(frozen=True)
class ClientValues:
    """One (round, split) of `clients.csv`, columns [num_clients], None where nobody knows.

    Attributes:
      baseline: The metric under the global model, float64.
      personalized: The metric under each client's personalized model, float64.
      num_evaluation_examples: int64.
      clusters: The cluster of each client, int64.
      groups: The group that each is known to belong to, str.
    """

    client_ids: np.ndarray
    baseline: np.ndarray
    personalized: np.ndarray
    higher_is_better: bool
    num_evaluation_examples: np.ndarray | None
    clusters: np.ndarray | None = None
    groups: np.ndarray | None = None

    @property
    def delta(self) -> np.ndarray:
        """What each client gained: positive is better, for errors too."""
        return gain(self.baseline, self.personalized, self.higher_is_better)

    @property
    def is_hurt(self) -> np.ndarray:
        """Whether each client is strictly worse off; a diverged personalized model hurts."""
        return is_hurt(self.baseline, self.personalized, self.higher_is_better)

    def finite(self, column: Column) -> np.ndarray:
        """Returns a column if all of it is finite, else not-a-number throughout, [num_clients].

        An infinite value is an empty cell in the CSV, so both have to mean the same.
        """
        values = getattr(self, column)
        return values if np.isfinite(values).all() else np.full(len(values), np.nan)
