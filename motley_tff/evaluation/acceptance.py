"""Which clients accept their personalized model; the others keep the global one.

Motley leaves such rules open (section 3.1, "Acceptance criteria and robust personalization"). They
look at a client's own data, never at what it is evaluated on:

- `always`: as the paper's tables.
- `min_examples:N`: with at least N personalization examples.
- `validated[:fraction]`: if the model that is personalized on the rest of the personalization set
  has the better metric on this fraction of it (by default a fifth). What is accepted is the model
  that is personalized on all of it. Silos have a validation part of their own for this.
- `validated_loss[:fraction]`: the same with the loss, which tells more of few examples.

A tie, or nothing to validate on, keeps the global model.
"""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from motley_tff.core import candidates, errors
from motley_tff.core.errors import UserError
from motley_tff.core.task import Metric

_DEFAULT_FRACTION = 0.2
_VALIDATE = ("validated", "validated_loss")
_NAME = errors.name("acceptance")
_EXPECTED = (
    "always, min_examples:N, validated[:fraction] or validated_loss[:fraction], N a whole number "
    "of 0 or more, the fraction between 0 and 1"
)


class Rule(NamedTuple):
    """A rule.

    Attributes:
      kind: `always`, `min_examples`, `validated` or `validated_loss`.
      value: N or the fraction; None where a silo's validation part serves.
    """

    text: str
    kind: str
    value: float | None = None

    @property
    def validates(self) -> bool:
        """Whether it looks at scores on examples that were held out."""
        return self.kind in _VALIDATE


def parse(text: str, is_silo: bool = False) -> Rule:
    """Returns the rule that a text describes, or raises a UserError; silos hold nothing out."""
    kind, colon, number = text.partition(":")
    if kind == "always" and not colon:
        return Rule(text, kind)
    if kind == "min_examples" and number.isascii() and number.isdigit():
        return Rule(text, kind, float(number))
    if kind in _VALIDATE:
        if is_silo and not colon:
            return Rule(text, kind)
        if is_silo:
            raise UserError(_NAME, text, f"{kind}: silos are validated on their validation part")
        with contextlib.suppress(ValueError):  # No number.
            fraction = float(number) if colon else _DEFAULT_FRACTION
            if 0.0 < fraction < 1.0:
                return Rule(text, kind, fraction)
    raise UserError(_NAME, text, _EXPECTED)


def accepts(
    rule: Rule,
    metric: Metric,
    num_personalization_examples: np.ndarray,
    held_out: Mapping[str, np.ndarray] | None,
    chosen: np.ndarray,
) -> np.ndarray:
    """Returns which clients accept their candidate, bool [num_clients].

    Args:
      held_out: `ClientScores.values` on held-out examples, where the rule validates.
      chosen: The candidate of each client, int [num_clients].
    """
    if rule.kind == "always":
        return np.ones(len(num_personalization_examples), bool)
    if held_out is None:
        return num_personalization_examples >= rule.value
    name = "loss" if rule.kind == "validated_loss" else metric.name
    values = held_out[name]
    baseline, personalized = values[:, 0], candidates.take(values, chosen)
    # Comparisons with not-a-number are false: nothing held out, or a model that diverged.
    if name == metric.name and metric.higher_is_better:
        return personalized > baseline
    return personalized < baseline
