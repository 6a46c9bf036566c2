"""The columns of summary.csv by hand on three clients, their laws, where they are undefined."""

import math

import numpy as np
import pytest
from scipy import stats

from motley_tff import metrics
from motley_tff.metrics import client_values


def _values(baseline, personalized, higher_is_better=True, sizes=None):
    count = len(baseline)
    return client_values.ClientValues(
        np.arange(count).astype(str),
        np.array(baseline, float),
        np.array(personalized, float),
        higher_is_better,
        None if sizes is None else np.array(sizes),
    )


def _of(name, values):
    return metrics.summarize(values)[name]


THREE = ([0.5, 0.5, 0.5], [0.9, 0.2, 0.4])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("baseline_mean", 0.5),
        ("personalized_mean", 0.5),
        ("personalized_std", math.sqrt((0.4**2 + 0.3**2 + 0.1**2) / 3)),
        ("baseline_variance", 0),
        ("personalized_variance", (0.4**2 + 0.3**2 + 0.1**2) / 3),
        ("personalized_min", 0.2),
        ("personalized_lower_quartile", 0.3),
        ("personalized_median", 0.4),
        ("personalized_upper_quartile", 0.65),
        ("personalized_max", 0.9),
        ("personalized_worst_10pct_mean", 0.2),
        ("personalized_best_10pct_mean", 0.9),
        ("personalized_example_weighted_mean", (1 * 0.9 + 2 * 0.2 + 7 * 0.4) / 10),
        ("baseline_example_weighted_mean", 0.5),
        ("delta_mean", 0),
        # Gains 0.4, -0.3, -0.1: rank sums 3 and 3, as even as can be.
        ("wilcoxon_p", 1),
        ("pct_clients_hurt", 200 / 3),
    ],
)
def test_three_clients(name, expected):
    assert _of(name, _values(*THREE, sizes=[1, 2, 7])) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("count", "tenth"), [(1, 1), (9, 1), (10, 1), (11, 2), (139, 14)])
def test_a_tenth_is_rounded_up(count, tenth):
    numbers = np.arange(count)[::-1] ** 2
    values = _values(np.zeros(count), numbers)
    assert _of("personalized_worst_10pct_mean", values) == np.mean(numbers[-tenth:])
    assert _of("personalized_best_10pct_mean", values) == np.mean(numbers[:tenth])


@pytest.mark.parametrize("count", [1, 3, 139])
def test_the_hurt_interval_is_exact(count):
    def interval(hurt):
        values = _values(np.ones(count), [0.0] * hurt + [1.0] * (count - hurt))
        names = ("pct_clients_hurt_low", "pct_clients_hurt_high")
        return [_of(name, values) / 100 for name in names]

    # No success in n trials has probability (1 - p)^n, one or more 1 - (1 - p)^n.
    assert interval(0) == pytest.approx([0, 1 - 0.025 ** (1 / count)], abs=1e-12)
    assert interval(count) == pytest.approx([0.025 ** (1 / count), 1], abs=1e-12)
    low, high = interval(1)
    assert 1 - (1 - low) ** count == pytest.approx(0.025)
    if count > 1:
        at_most_one = (1 - high) ** count + count * high * (1 - high) ** (count - 1)
        assert at_most_one == pytest.approx(0.025)


def test_gains_that_differ_by_rounding_are_equal():
    """Accuracies of ten examples in float32, all gains a tenth: as with gains of 1 and -1."""
    before = np.array([1, 2, 3, 4, 5, 6, 7, 8]) / np.float32(10)
    signs = np.array([1, 1, 1, -1, 1, 1, -1, 1])
    after = (np.rint(before * 10) + signs) / np.float32(10)
    p_value = _of("wilcoxon_p", _values(before, after))
    assert p_value == _of("wilcoxon_p", _values(0 * signs, signs)) == 74 / 256


def test_wilcoxon_by_hand():
    p_of = {
        # All three gain: of the 2^3 equally likely signs, all plus and all minus are that extreme.
        (0.1, 0.2, 0.4): 0.25,
        # Rank sums 4 and 2; 2 or less happens with {}, {1}, {2}: 3 of 8, on either side.
        (0.1, -0.2, 0.4): 0.75,
        # Who keeps the value counts for neither side.
        (0.1, -0.2, 0.4, 0, 0): 0.75,
        # Ties: all four gain as much, as extreme as all four losing, 2 of 2^4.
        (0.5, 0.5, 0.5, 0.5): 0.125,
        # Ranks 1.5, 1.5, 3, 4, plus at the ties: 3 or less happens with {}, {1}, {2}, {1, 2}, {3}.
        (0.5, 0.5, -0.75, -1): 2 * 5 / 16,
        # Ranks 1, 2.5, 2.5, 4: 3.5 or less happens with {}, {1}, {2}, {3}, {1, 2}, {1, 3}.
        (0.25, 0.5, -0.5, -1): 2 * 6 / 16,
    }
    for gains, p_value in p_of.items():
        assert _of("wilcoxon_p", _values([0] * len(gains), gains)) == p_value
    assert math.isnan(_of("wilcoxon_p", _values([0, 1], [0, 1])))


@pytest.mark.parametrize("count", [9, 50, 51, 139])
def test_wilcoxon_without_ties_is_the_libraries(count):
    gains = np.random.default_rng(count).normal(0.2, 1, count)
    expected = stats.wilcoxon(gains, method="exact" if count <= 50 else "approx").pvalue
    assert _of("wilcoxon_p", _values(np.zeros(count), gains)) == pytest.approx(expected, rel=1e-9)
    if count > 50:  # SciPy's normal distribution has ties, too.
        tied = np.sign(gains) * np.ceil(abs(gains))
        expected = stats.wilcoxon(tied, method="approx").pvalue
        assert _of("wilcoxon_p", _values(0 * tied, tied)) == pytest.approx(expected, rel=1e-9)


def test_ties_are_of_each_clients_own_rounding():
    def p_of(gains):
        return _of("wilcoxon_p", _values(np.zeros(len(gains)), gains))

    # From 0 to 0.1 is as from 0.7 to 0.6 and from 0.8 to 0.9: ranks 2, 2, 2, 4, 5.
    before, after = np.float32([0, 0.7, 0.8, 0, 0]), np.float32([0.1, 0.6, 0.9, 0.2, 0.3])
    assert _of("wilcoxon_p", _values(before, after)) == p_of([1, -1, 1, 2, 3]) == 8 / 32
    # Steps of 0.7 of what 1 may be off by: the third is not as the first; ranks 1.5, 1.5, 3, 4, 5.
    near = (1 + 0.7 * 2.0**-22 * np.arange(3)) * [1, 1, -1]
    assert p_of([*near, 3, 4]) == 10 / 32
    # Of a million a gain of 0.5 is uncertain by 0.24: it is as the nearest, and joins no two.
    with_large = _values([1e6, 0, 0, 0, 0], [1e6 + 0.5, 0.52, -0.6, 3, 4])
    assert _of("wilcoxon_p", with_large) == p_of([0.52, 0.52, -0.6, 3, 4]) == 10 / 32


def _direct_bootstrap(gains, resamples=4000):
    rng = np.random.default_rng(5)
    means = [rng.choice(gains, len(gains)).mean() for _ in range(resamples)]
    return np.quantile(means, [0.025, 0.975])


def _interval(gains):
    values = _values(np.zeros(len(gains)), gains)
    return np.array([_of("delta_mean_low", values), _of("delta_mean_high", values)])


@pytest.mark.parametrize("count", [2, 3, 14])
def test_the_interval_of_few_clients_is_students(count):
    gains = np.random.default_rng(count).normal(0.1, 1, count)
    expected = stats.t.interval(0.95, count - 1, gains.mean(), stats.sem(gains))
    np.testing.assert_allclose(_interval(gains), expected, rtol=1e-9)
    np.testing.assert_array_equal(_interval(np.full(count, 0.25)), 0.25)
    assert np.isnan(_interval(gains[:1])).all()


def test_the_bootstrap_interval():
    np.testing.assert_allclose(_interval([0.25] * 15), [0.25, 0.25], rtol=1e-12)
    # Of one client in fifteen: (14/15)^15 = 0.355 of the resamples lack it.
    assert _interval([0] * 14 + [15])[0] == 0
    # In blocks (above 1,024 clients), with a heavy tail, as drawn one client at a time.
    rng = np.random.default_rng(0)
    for gains in (rng.normal(0.1, 1, 500), rng.lognormal(0, 2, 5000)):
        expected = _direct_bootstrap(gains)
        width = expected[1] - expected[0]
        np.testing.assert_allclose(_interval(gains), expected, atol=0.08 * width)


@pytest.mark.parametrize("count", [1024, 1025, 5000, 100_000])
def test_a_few_who_gain_among_many_who_do_not(count):
    """How often k clients are drawn is as good as Poisson's; nobody loses, so no end is below 0."""
    for k in (1, 3, 40):
        expected = stats.poisson(k).ppf([0.025, 0.975])
        ends = _interval([0.0] * (count - k) + [1.0] * k) * count
        np.testing.assert_allclose(ends, expected, atol=1 if k < 40 else 2)
        # As many lose a thousandth; where none of those who gain is drawn, they alone count.
        low, _ = _interval([-0.001] * k + [0.0] * (count - 2 * k) + [1.0] * k) * count
        assert low > -0.01 if k < 4 else low > 0


@pytest.mark.parametrize("diverged", [np.nan, np.inf])
def test_whoever_diverged_is_in_no_mean_but_hurt_and_whoever_is_unscored_is_nowhere(diverged):
    values = _values(
        [0.5, 0.5, 0.6, diverged, np.nan], [0.4, diverged, 0.7, 0.9, np.nan], False, [1, 1, 1, 1, 9]
    )
    summary = metrics.summarize(values)
    counts = ("num_clients", "num_unscored", "num_diverged", "baseline_num_diverged")
    assert [summary[name] for name in counts] == [5, 1, 1, 1]
    assert summary["pct_clients_hurt"] == pytest.approx(100 * 2 / 4)
    # Without either, the same statistics of the others.
    others = {"baseline": [0.5, 0.5, 0.6], "personalized": [0.4, 0.7, 0.9], "delta": [0.1, -0.1]}
    for column, finite in others.items():
        alone = metrics.summarize(_values(finite, finite, False, [1] * len(finite)))
        for name in ("mean", "std", "variance", "median", "max", "worst_10pct_mean",
                     "example_weighted_mean"):  # fmt: skip
            if column != "delta":
                assert summary[f"{column}_{name}"] == alone[f"{column}_{name}"]
    assert summary["delta_mean"] == pytest.approx(np.mean(others["delta"]))

    both = metrics.summarize(_values([np.inf, 0.5], [np.inf, 0.25], False, [1, 1]))
    counts = ("num_diverged", "num_unscored", "pct_clients_hurt")
    assert [both[name] for name in counts] == [1, 0, 0]


def test_without_any_value_statistics_are_not_a_number():
    for sizes in (None, [0, 0, 0]):  # Examples that nobody counted.
        assert math.isnan(_of("baseline_example_weighted_mean", _values(*THREE, sizes=sizes)))
    summary = metrics.summarize(_values([np.nan] * 2, [np.nan] * 2, True, [0, 0]))
    assert {name for name, value in summary.items() if not np.isnan(value)} == {
        "num_clients", "num_unscored", "num_diverged", "baseline_num_diverged"
    }  # fmt: skip
