"""Rules of acceptance."""

import numpy as np
import pytest

from motley_tff.experiment import acceptance
from tests.errors import refused

# Three clients: better, the same, worse; the second has nothing to validate on in `loss`.
_EVIDENCE = acceptance.Evidence(
    np.array([3, 5, 8]),
    {"metric": np.array([0.5, 0.5, 0.5]), "loss": np.array([1.0, np.nan, 1.0])},
    {"metric": np.array([0.4, 0.5, 0.6]), "loss": np.array([1.1, np.nan, 0.9])},
)


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
    np.testing.assert_array_equal(acceptance.accepts(rule, _EVIDENCE), np.array(expected, bool))


def test_which_rules_look_at_held_out_scores():
    texts = ("always", "min_examples:3", "validated", "validated_loss:0.5")
    rules = [acceptance.parse(text, is_silo=False) for text in texts]
    assert [rule.validates for rule in rules] == [False, False, True, True]


def test_fractions():
    assert acceptance.parse("validated", is_silo=False).value == 0.2
    assert acceptance.parse("validated_loss:0.5", is_silo=False).value == 0.5
    assert acceptance.parse("validated", is_silo=True).value is None


@pytest.mark.parametrize(
    "text",
    ["", "Always", "always:1", "min_examples", "min_examples:-1", "min_examples:1.5", "never",
     "validated:0", "validated:1", "validated:nan", "validated:x", "validated:", "min_examples:²"],
)  # fmt: skip
def test_what_is_no_rule(text):
    with refused("acceptance", text, "min_examples:N"):
        acceptance.parse(text, is_silo=False)


def test_silos_hold_nothing_out():
    with refused("acceptance", "validated_loss:0.2", "silos"):
        acceptance.parse("validated_loss:0.2", is_silo=True)
