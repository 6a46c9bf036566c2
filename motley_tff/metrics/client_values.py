"""The columns of the per-client table that population metrics are functions of.

Values that do not exist have one rule, here and in `core.candidates`:

- *Unscored* is a client with nothing to score: no example, no known word, examples of one class
  where a metric compares two. Its values are not-a-number. It is in no mean, choice or share.
- *Diverged* is a client of whose model an output, or the score, is not finite. The value is the
  worst infinity. It is in no mean, but it is hurt if the global model did not diverge for it.

Tables have an empty cell for both; there `is_hurt` is empty of an unscored client alone. Where one
model has a value, the other's empty cell or not-a-number is of a model that diverged.
"""

import dataclasses
import functools
from typing import Literal

import numpy as np

from motley_tff.metrics import true_effects

Column = Literal["baseline", "personalized", "delta"]


def gain(baseline: np.ndarray, personalized: np.ndarray, higher_is_better: bool) -> np.ndarray:
    """Returns what each client gained: positive is better, for errors too."""
    difference = personalized - baseline
    return difference if higher_is_better else -difference


def is_hurt(baseline: np.ndarray, personalized: np.ndarray, higher_is_better: bool) -> np.ndarray:
    """Returns whether each client is strictly worse off, bool: an unscored one is not."""
    with np.errstate(invalid="ignore"):  # Both diverged.
        return gain(baseline, personalized, higher_is_better) < 0


@dataclasses.dataclass(frozen=True)
class ClientValues:
    """One (round, split) of `clients.csv`, columns [num_clients], None where nobody knows.

    Attributes:
      baseline: The metric under the global model, float64; see above for what does not exist.
      personalized: The metric under each client's personalized model, float64.
      num_evaluation_examples: int64.
      clusters: The cluster of each client, int64.
      groups: The group that each is known to belong to, str.
      delta_se: The standard error of each client's difference, see `core.paired`.
      num_gained: Examples that only the personalized model has right.
      num_lost: Examples that only the baseline has right.
      hurt_margin: By how much a client must be worse off to be truly hurt, above 0, in units of the
        metric; None where that is not asked, as of the clients that chose the candidate.
    """

    client_ids: np.ndarray
    baseline: np.ndarray
    personalized: np.ndarray
    higher_is_better: bool
    num_evaluation_examples: np.ndarray | None
    clusters: np.ndarray | None = None
    groups: np.ndarray | None = None
    delta_se: np.ndarray | None = None
    num_gained: np.ndarray | None = None
    num_lost: np.ndarray | None = None
    hurt_margin: float | None = None

    def __post_init__(self):
        worst = -np.inf if self.higher_is_better else np.inf
        is_empty = {
            column: np.isnan(getattr(self, column)) for column in ("baseline", "personalized")
        }
        is_unscored = is_empty["baseline"] & is_empty["personalized"]
        for column, empty in is_empty.items():
            values = np.asarray(getattr(self, column), np.float64)
            has_diverged = np.isinf(values) | (empty & ~is_unscored)
            object.__setattr__(self, column, np.where(has_diverged, worst, values))

    @property
    def delta(self) -> np.ndarray:
        """What each client gained: positive is better, for errors too; infinite or not-a-number
        where one of the models, or both, diverged.
        """
        with np.errstate(invalid="ignore"):
            return gain(self.baseline, self.personalized, self.higher_is_better)

    @property
    def is_hurt(self) -> np.ndarray:
        """Whether each client is strictly worse off, bool: an unscored one is not."""
        return is_hurt(self.baseline, self.personalized, self.higher_is_better)

    @property
    def is_scored(self) -> np.ndarray:
        """Whether there is something to score each client on, bool."""
        return ~np.isnan(self.baseline)

    @functools.cached_property
    def evidence(self) -> true_effects.Evidence | None:
        """What the clients' differences rest on, if it is known and asked for."""
        if self.hurt_margin is None or self.delta_se is None:
            return None
        sizes = self.num_evaluation_examples
        if sizes is None or not self.is_scored.any():
            return None
        counts = [self.num_gained, self.num_lost]
        # Of metrics that are not right or wrong, and of models that diverged, the counts are empty.
        can_differ = np.isfinite(self.delta)
        if any(c is None or np.isnan(c[can_differ]).any() for c in counts) or not can_differ.any():
            return true_effects.Evidence(self.delta, self.delta_se, sizes)
        gained, lost = (np.nan_to_num(c).astype(np.int64) for c in counts if c is not None)
        return true_effects.Evidence(self.delta, self.delta_se, sizes, gained, lost)

    @functools.cached_property
    def true_effects(self) -> true_effects.Estimate | None:
        """Who is truly hurt, where there is evidence."""
        if self.evidence is None or self.hurt_margin is None:
            return None
        return true_effects.estimate(self.evidence, self.hurt_margin)

    def has_diverged(self, column: Column) -> np.ndarray:
        """Returns whether each client's model of this column diverged, bool."""
        return np.isinf(getattr(self, column))

    def is_finite(self, column: Column) -> np.ndarray:
        """Returns whether each client has a value in this column, bool."""
        return np.isfinite(getattr(self, column))

    def finite(self, column: Column) -> np.ndarray:
        """Returns the values of a column that exist, [clients that have one]."""
        return getattr(self, column)[self.is_finite(column)]
