"""Sentences about runs, on numbers made by hand."""

import numpy as np
import pytest

from motley_tff.report import deltas, findings
from motley_tff.report.findings import Measured


class _Run:
    def __init__(self, **values):
        ids, numbers = list(values), np.array(list(values.values()))
        self.values = type("Values", (), {"client_ids": ids, "personalized": numbers})


class _Series:
    def __init__(self, *runs):
        self.label, self.runs = "A", runs


def test_who_leads():
    near = [Measured("A", 0.5, 0.1), Measured("B", 0.6, 0.1), Measured("C", np.nan, 0.0)]
    assert findings.leading(near, True) == (
        "B leads with 0.6, before A (0.5); their 95% intervals over clients overlap. "
        "No finite mean: C."
    )
    far = [Measured("A", 0.5, 0.04), Measured("B", 0.6, 0.05)]
    assert findings.leading(far, False) == (
        "A leads with 0.5, before B (0.6); their 95% intervals over clients do not overlap."
    )
    # Client by client: differences of .1, .2 and .3, a standard error of .1 / sqrt(3), t = 4.303.
    pairs = [
        Measured("A", 0.5, 0.1, {"a": 0.4, "b": 0.5, "c": 0.6}),
        Measured("B", 0.3, 0.1, {"c": 0.3, "b": 0.3, "a": 0.3, "d": 9.0}),
    ]
    assert findings.leading(pairs, True).endswith(
        "overlap, and client by client they differ by 0.2 (95%: -0.0484 to 0.448)."
    )
    unknown = [Measured("A", 0.5), Measured("B", 0.6, 0.05)]
    assert findings.leading(unknown, True) == "B leads with 0.6, before A (0.5)."
    tied = [Measured("A", 0.5, 0.1), Measured("B", 0.5, 0.1), Measured("C", 0.4, 0.1)]
    assert findings.leading(tied, True) == "A; B lead with 0.5."
    assert findings.leading(tied[:1], True) == "A: 0.5 on average."
    assert findings.leading([Measured("A", np.nan)], True) == "No mean is finite."


def test_a_client_of_two_seeds_counts_once():
    found = findings.of_clients(_Series(_Run(a=0.2, b=0.6), _Run(a=0.4, c=0.9)))
    means = [0.3, 0.6, 0.9]
    assert found.mean == pytest.approx(0.6)
    assert found.half_width == pytest.approx(4.302653 * np.std(means, ddof=1) / np.sqrt(3))
    many = findings.of_clients(_Series(_Run(**{f"c{i}": float(i) for i in range(15)})))
    assert many.half_width == pytest.approx(1.96 * np.sqrt(20) / np.sqrt(15))
    assert np.isnan(findings.of_clients(_Series(_Run(a=0.5))).half_width)


def test_who_hurts():
    shares = [("A", 12.04), ("B", 3.0), ("C", 5.0)]
    assert findings.hurt(shares) == "B hurts the fewest clients (3.0%), A the most (12.0%)."
    assert findings.hurt(shares[:1]) == "A hurts 12.0% of the clients."
    ties = [("A", 0.0), ("B", 0.0), ("C", 5.0)]
    assert findings.hurt(ties) == "A; B hurt the fewest clients (0.0%), C the most (5.0%)."
    assert findings.hurt([*ties[1:], ("D", 5.0)]) == (
        "B hurts the fewest clients (0.0%), C; D the most (5.0%)."
    )
    assert findings.hurt([("A", 5.0), ("B", 5.0)]) == "Each hurts 5.0% of the clients."


@pytest.mark.parametrize(
    "sizes, expected",
    [
        # The second is hurt: it counts wherever it stands among those that tie.
        ([1, 1, 1, 2, 3, 4],
         "Hurt in the third of the clients (and those tied) with fewest personalization examples, "
         "and with most: A 33.3% and 0.0%."),
        ([4, 3, 3, 1, 2, 1], "A 0.0% and 33.3%."),
        ([1, 2, 2, 2, 2, 3], "Clients are too few to compare"),
        ([1, 2, 3], "A 0.0% and 0.0%."),
        ([1, 1, 1, 1, 1, 1], "Clients are too few to compare, or too many"),
        ([1, 2], "Clients are too few to compare"),
    ],
)  # fmt: skip
def test_clients_of_one_size_are_in_one_third(sizes, expected):
    x, hurt = np.array(sizes, float), np.arange(len(sizes)) == 1
    for order in (np.arange(len(x)), np.arange(len(x))[::-1]):
        panel = deltas.Deltas("A", x[order], x[order], hurt[order])
        data = deltas.Data([panel], "personalization examples", False)
        assert expected in deltas.caption(data, None)


def test_long_lists_are_cut():
    assert findings.listed([*"abcdef"]) == "a; b; c; d; and 2 more"
