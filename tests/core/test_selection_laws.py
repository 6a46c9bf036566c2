"""Laws of selection: the chosen candidate is the first of the best on validation data."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from motley_tff.core import candidates

# Multiples of 1/64, of which means of 1, 2, 4 or 8 clients have no rounding.
FINITE = st.integers(-8, 8).map(lambda n: n / 64)
ANY = FINITE | st.sampled_from([math.nan, math.inf, -math.inf])


@st.composite
def tables(draw, numbers=FINITE):
    """Returns values [num_clients, num_candidates]."""
    num_clients, num_candidates = draw(st.sampled_from([1, 2, 4, 8])), draw(st.integers(1, 6))
    row = st.lists(numbers, min_size=num_candidates, max_size=num_candidates)
    return np.array(draw(st.lists(row, min_size=num_clients, max_size=num_clients)))


def choose(values, higher_is_better=True, tuning="global", include_baseline=True):
    with np.errstate(invalid="ignore"):
        return candidates.choose(values, higher_is_better, tuning, include_baseline)


def _first_best(columns):
    """The rule in words: of the candidates that diverged for fewest clients the first whose mean
    over the others none is above.
    """
    fewest = min(sum(not math.isfinite(v) for v in column) for column in columns)
    means = {}
    for i, column in enumerate(columns):
        finite = [v for v in column if math.isfinite(v)]
        if finite and len(column) - len(finite) == fewest:
            means[i] = sum(finite) / len(finite)
    return next((i for i in means if math.isclose(means[i], max(means.values()))), 0)


@given(tables(ANY), st.booleans(), st.booleans())
def test_the_first_of_the_best_is_chosen(values, higher_is_better, include_baseline):
    first = 0 if include_baseline or values.shape[1] == 1 else 1
    sign = 1 if higher_is_better else -1
    scored = [sign * row[first:] for row in values if not all(math.isnan(v) for v in row)]
    chosen = choose(values, higher_is_better, "global", include_baseline)
    assert chosen == first + (_first_best(list(zip(*scored, strict=True))) if scored else 0)
    own = choose(values, higher_is_better, "per_client", include_baseline)
    each = [[[v] if math.isfinite(v) else [] for v in sign * row[first:]] for row in values]
    assert list(own) == [
        first + (_first_best([v or [math.nan] for v in row]) if any(row) else 0) for row in each
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from(["valid", "test"]), st.none() | FINITE, st.integers(0, 2)),
        min_size=1,
    ),
    st.booleans(),
)
def test_the_best_round_is_the_first_of_the_best_validation_means(evaluations, higher_is_better):
    rows = [
        {
            "round": str(i), "split": split, "num_diverged": str(number) if number else "",
            "personalized_mean": "" if v is None else f"{v:.9g}",
        }
        for i, (split, v, number) in enumerate(evaluations)
    ]  # fmt: skip
    best = candidates.best_round(rows, higher_is_better)
    sign = 1 if higher_is_better else -1
    known = [
        (number, -sign * v, i)
        for i, (split, v, number) in enumerate(evaluations)
        if split == "valid" and v is not None
    ]
    assert best == str(min(known)[2] if known else len(evaluations) - 1)


def _rows(*evaluations):
    """Returns rows of `summary.csv` of (mean, how many diverged), and a test row beside each."""
    return [
        {"round": str(i), "split": split, "personalized_mean": mean, "num_diverged": str(number)}
        for i, (mean, number) in enumerate(evaluations)
        for split, mean in (("valid", mean), ("test", "99"))
    ]


@pytest.mark.parametrize(
    ("evaluations", "higher_is_better", "least", "since"),
    [
        ([("3", 0)], True, 0.0, 0),
        ([("3", 0), ("2", 0), ("4", 0), ("4", 0), ("3.5", 0)], True, 0.0, 2),
        ([("3", 0), ("2", 0), ("4", 0)], False, 0.0, 1),
        # Not by more than 1: slow progress does not add up, until it is more than 1 in all.
        ([("3", 0), ("4", 0)], True, 1.0, 1),
        ([("3", 0), ("3.5", 0), ("4.25", 0), ("5", 0)], True, 1.0, 1),
        # No score is no progress; fewer diverged clients are, whatever the mean.
        ([("", 0), ("", 0)], True, 0.0, 2),
        ([("", 0), ("1", 0), ("", 0)], True, 0.0, 1),
        ([("3", 2), ("1", 1), ("9", 2)], True, 0.5, 1),
    ],
)
def test_evaluations_since_a_better_one(evaluations, higher_is_better, least, since):
    rows = _rows(*evaluations)
    found = candidates.evaluations_since_better(rows, higher_is_better, None, least)
    assert found == since


@given(st.lists(FINITE, min_size=1, max_size=8), st.booleans())
def test_the_best_round_is_the_last_better_one(means, higher_is_better):
    rows = _rows(*((f"{mean:.9g}", 0) for mean in means))
    since = candidates.evaluations_since_better(rows, higher_is_better, None, 0.0)
    assert candidates.best_round(rows, higher_is_better) == str(len(means) - 1 - since)
