"""Rules of acceptance."""

import numpy as np
import pytest

from motley_tff.core import task
from motley_tff.evaluation import acceptance
from tests.errors import refused

# Three clients: better, the same, worse; the second has nothing to validate on in `loss`.
_METRIC = task.Metric("error", lambda labels, outputs: (labels, outputs), False)
_SIZES = np.array([3, 5, 8])
_HELD_OUT = {
    "error": np.array([[0.5, 0.4], [0.5, 0.5], [0.5, 0.6]]),
    "loss": np.array([[1.0, 1.1], [np.nan, np.nan], [1.0, 0.9]]),
}


@pytest.mark.parametrize(
    "text, expected",
    [
        ("always", [1, 1, 1]),
        ("min_examples:0", [1, 1, 1]),
        ("min_examples:5", [0, 1, 1]),
        ("min_examples:9", [0, 0, 0]),
        ("validated", [1, 0, 0]),
        ("validated:0.5", [1, 0, 0]),
        ("validated_loss", [0, 0, 1]),
    ],
)
def test_rules(text, expected):
    rule = acceptance.parse(text, is_silo=False)
    assert rule.validates == text.startswith("validated")
    held_out = _HELD_OUT if rule.validates else None
    accepted = acceptance.accepts(rule, _METRIC, _SIZES, held_out, np.array([1, 1, 1]))
    assert accepted.tolist() == expected


def test_a_metric_of_which_more_is_better():
    rule = acceptance.parse("validated", is_silo=False)
    metric = _METRIC._replace(higher_is_better=True)
    accepted = acceptance.accepts(rule, metric, _SIZES, _HELD_OUT, np.array([1, 1, 1]))
    assert accepted.tolist() == [False, False, True]
    accepted = acceptance.accepts(rule, metric, _SIZES, _HELD_OUT, np.array([1, 1, 0]))
    assert not accepted.any(), "the baseline is no better than itself"


def test_fractions():
    assert acceptance.parse("validated", is_silo=False).value == 0.2
    assert acceptance.parse("validated_loss:0.5", is_silo=False).value == 0.5
    assert acceptance.parse("validated", is_silo=True).value is None
    with refused("acceptance", "validated_loss:0.2", "silos"):
        acceptance.parse("validated_loss:0.2", is_silo=True)


@pytest.mark.parametrize(
    "text",
    ["", "Always", "always:1", "min_examples", "min_examples:-1", "min_examples:1.5", "never",
     "validated:0", "validated:1", "validated:nan", "validated:x", "validated:", "min_examples:²"],
)  # fmt: skip
def test_what_is_no_rule(text):
    with refused("acceptance", text, "min_examples:N"):
        acceptance.parse(text, is_silo=False)
