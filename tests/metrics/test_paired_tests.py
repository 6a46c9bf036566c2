"""Paired tests against hand-derived numbers and SciPy, and what must never happen."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from motley_tff.metrics import paired_tests

NAN, INF = math.nan, math.inf


def table(**methods):
    """`table(a={1: {"x": 0.5}})`: methods' values by seed and client."""
    return {
        name: {(seed, client): v for seed, row in seeds.items() for client, v in row.items()}
        for name, seeds in methods.items()
    }


def test_t_by_hand():
    # Of 1, 2, 3: mean 2, s 1, error 1 / sqrt(3); with 2 degrees of freedom the distribution of t
    # is known: P(|T| > t) = 1 - t / sqrt(t^2 + 2), and t = 4.302653 has 5%.
    test = paired_tests.t_test(np.array([3.0, 1.0, 2.0]))
    t = 2.0 * math.sqrt(3.0)
    assert test.difference == 2.0 and test.num == 3 and test.degrees_of_freedom == 2
    assert test.p == pytest.approx(1.0 - t / math.sqrt(t**2 + 2.0))
    assert (test.low, test.high) == pytest.approx(
        (2.0 - 4.302653 / math.sqrt(3.0), 2.0 + 4.302653 / math.sqrt(3.0)), rel=1e-6
    )
    assert not test.is_identical


@pytest.mark.parametrize("count", [2, 5, 41, 300])
def test_t_as_scipy_has_it(count):
    gains = np.random.default_rng(count).normal(0.1, 0.3, count)
    test, theirs = paired_tests.t_test(gains), stats.ttest_1samp(gains, 0.0)
    assert test.p == pytest.approx(theirs.pvalue, rel=1e-9)
    interval = stats.t.interval(0.95, count - 1, gains.mean(), stats.sem(gains))
    assert (test.low, test.high) == pytest.approx(interval, rel=1e-9)
    # A gain and a loss of the same size are as likely.
    mirrored = paired_tests.t_test(-gains)
    assert mirrored.p == test.p and (mirrored.low, mirrored.high) == (-test.high, -test.low)


def test_over_clients_and_over_seeds_by_hand():
    values = table(
        new={1: {"x": 0.9, "y": 0.5}, 2: {"x": 0.7, "y": 0.5}},
        old={1: {"x": 0.5, "y": 0.5}, 2: {"x": 0.5, "y": 0.3}},
    )
    aligned = paired_tests.align(values)
    # x gains 0.4 and 0.2, y 0 and 0.2: clients 0.3 and 0.1, seeds 0.2 and 0.2.
    clients = paired_tests.over_clients(aligned, "new", "old", True)
    seeds = paired_tests.over_seeds(aligned, "new", "old", True)
    assert clients.difference == pytest.approx(0.2) and seeds.difference == pytest.approx(0.2)
    # With one degree of freedom t is Cauchy's: P = 1 - 2 atan(t) / pi, t = 0.2 / 0.1.
    assert clients.p == pytest.approx(1.0 - 2.0 * math.atan(2.0) / math.pi)
    assert (clients.num, seeds.num) == (2, 2)
    # Both seeds say the same: no spread, and two of them are half of nothing.
    assert seeds.p == 0.5 and math.isnan(seeds.low)
    # Of errors a smaller value is a gain.
    errors = paired_tests.over_clients(aligned, "new", "old", False)
    assert errors.difference == pytest.approx(-0.2) and errors.p == clients.p
    assert paired_tests.client_means(aligned, "new") == pytest.approx([0.8, 0.5])
    assert paired_tests.seed_means(aligned, "new") == pytest.approx([0.7, 0.6])


def test_a_client_that_some_seeds_do_not_test_is_averaged_over_the_others():
    values = table(
        new={1: {"x": 0.9, "y": 0.5}, 2: {"y": 0.7, "z": 0.2}},
        old={1: {"x": 0.5, "y": 0.5}, 2: {"y": 0.5, "z": 0.2}},
    )
    aligned = paired_tests.align(values)
    assert aligned.num_clients == 3 and aligned.left_out == {"new": [], "old": []}
    gains = [0.4, (0.0 + 0.2) / 2, 0.0]
    test = paired_tests.over_clients(aligned, "new", "old", True)
    assert test.p == pytest.approx(stats.ttest_1samp(gains, 0.0).pvalue)
    assert test.difference == pytest.approx(np.mean(gains))


@pytest.mark.parametrize("missing", [NAN, INF, -INF, None])
def test_what_has_no_value_reaches_no_test(missing):
    rng = np.random.default_rng(0)
    new = {f"c{i}": 0.5 + 0.01 * rng.normal() for i in range(8)}
    old = {f"c{i}": 0.5 + 0.01 * rng.normal() for i in range(8)}
    seven = {c: v for c, v in new.items() if c != "c3"}
    values = table(new={1: seven if missing is None else {**new, "c3": missing}}, old={1: old})
    aligned = paired_tests.align(values)
    assert aligned.left_out == {"new": [(1, "c3")], "old": []}
    test = paired_tests.over_clients(aligned, "new", "old", True)
    theirs = stats.ttest_rel(list(seven.values()), [old[c] for c in seven])
    assert test.num == 7 and test.p == pytest.approx(theirs.pvalue)
    with pytest.raises(ValueError, match="finite"):
        paired_tests.t_test(np.array([0.1, NAN]))


def test_no_order_changes_a_bit():
    rng = np.random.default_rng(1)
    pairs = [(seed, f"c{i}") for seed in (100, 1100, 2100) for i in range(11)]
    values = {name: {pair: float(rng.normal()) for pair in pairs} for name in ("a", "b", "c")}
    first = None
    for names in itertools.permutations(values):
        order = rng.permutation(len(pairs))
        shuffled = {name: {pairs[i]: values[name][pairs[i]] for i in order} for name in names}
        aligned = paired_tests.align(shuffled)
        tests = [
            function(aligned, "a", "b", True)
            for function in (paired_tests.over_clients, paired_tests.over_seeds)
        ]
        first = first or tests
        assert tests == first


def test_identical_runs_are_identical():
    values = {(1, f"c{i}"): 0.1 * i for i in range(4)}
    # What two float32 may be off by is nothing.
    near = {pair: value * (1 + 1e-8) for pair, value in values.items()}
    for other in (values, near):
        aligned = paired_tests.align({"a": values, "b": other})
        for test in (paired_tests.over_clients, paired_tests.over_seeds):
            result = test(aligned, "a", "b", True)
            assert result.is_identical and result.p == 1.0
            assert (result.difference, result.low, result.high) == (0.0, 0.0, 0.0)


def test_gains_without_spread_are_not_surely_a_gain():
    for count in (2, 3, 8):
        values = {(1, f"c{i}"): 0.1 * i for i in range(count)}
        aligned = paired_tests.align({"a": {p: v + 0.3 for p, v in values.items()}, "b": values})
        test = paired_tests.over_clients(aligned, "a", "b", True)
        assert test.p == 2.0 ** (1 - count) and test.difference == pytest.approx(0.3)
        assert math.isnan(test.low) and not test.is_identical
    # Each client's gain under one seed is its loss under the other.
    up, down = {(1, "x"): 1.0, (2, "x"): 0.0, (1, "y"): 1.0, (2, "y"): 0.0}, {}
    down = {(3 - seed, client): value for (seed, client), value in up.items()}
    test = paired_tests.over_clients(paired_tests.align({"a": up, "b": down}), "a", "b", True)
    assert (test.difference, test.p, test.is_identical) == (0.0, 1.0, False)


def test_few_clients():
    one = paired_tests.t_test(np.array([0.3]))
    assert one.difference == 0.3 and math.isnan(one.p) and one.degrees_of_freedom == 0
    none = paired_tests.over_clients(paired_tests.align({"a": {}, "b": {}}), "a", "b", True)
    assert none.num == 0 and math.isnan(none.difference) and math.isnan(none.p)


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.5: times 4, 3, 2, 1, and none below the one before.
    assert paired_tests.holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert paired_tests.holm([0.4, NAN, 0.9]) == pytest.approx([0.8, NAN, 0.9], nan_ok=True)
    assert paired_tests.holm([]) == []
    assert paired_tests.holm([0.04, 0.03]) == pytest.approx([0.06, 0.06])


def test_three_seeds_call_a_twentieth_of_nulls_significant():
    # Clients differ by seed alone: the seeds are the units.
    rng = np.random.default_rng(2)
    seeds = rng.normal(size=(4000, 3))
    rates = [paired_tests.t_test(row).p < 0.05 for row in seeds]
    assert np.mean(rates) == pytest.approx(0.05, abs=0.012)
