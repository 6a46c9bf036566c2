"""Who is truly hurt: by hand, where data leave no doubt, and in populations of known truth."""

import dataclasses

import numpy as np
import pytest

from motley_tff.metrics import hurt, true_effects
from motley_tff.metrics.client_values import ClientValues
from motley_tff.metrics.true_effects import Evidence

MARGIN = 0.01


def counted(gained, lost, num_examples, **columns):
    """Returns evidence of examples that are right or wrong."""
    gained, lost, sizes = (np.asarray(a, np.int64) for a in (gained, lost, num_examples))
    cells = {"delta": (gained - lost) / sizes, "delta_se": np.full(len(gained), np.nan)} | columns
    return Evidence(num_examples=sizes, num_gained=gained, num_lost=lost, **cells)


def measured(delta, error, num_examples):
    return Evidence(np.asarray(delta, float), np.asarray(error, float), np.asarray(num_examples))


def test_chance_by_hand():
    evidence = counted([0, 1, 1, 0, 2], [0, 0, 1, 3, 2], [9] * 5)
    # Of no change none, of one or three half, of two a quarter, of four (1 - 6 / 16) / 2.
    expected = [0, 1 / 2, 1 / 4, 1 / 2, 5 / 16]
    np.testing.assert_allclose(true_effects.hurt_by_chance(evidence), expected)
    np.testing.assert_equal(
        true_effects.hurt_by_chance(measured([0.0, -0.1, 0.2], [0, 1, 1], [3, 3, 3])), [0, 0.5, 0.5]
    )


def test_many_examples_leave_no_doubt():
    size = 100_000
    estimate = true_effects.estimate(
        counted([0, 5_000, 200, 9_000], [20_000, 5_000, 200, 1_000], [size] * 4), MARGIN
    )
    np.testing.assert_allclose(estimate.probability_hurt, [1, 0, 0, 0], atol=1e-6)
    assert estimate.share == pytest.approx(0.25, abs=1e-6)
    assert true_effects.surely_hurt(estimate.probability_hurt).tolist() == [True, *[False] * 3]
    # The effect itself lies between the grid's neighbours, a factor of sqrt(2) apart.
    assert estimate.posterior[0] @ estimate.effects == pytest.approx(-0.2, rel=0.3)


@pytest.mark.parametrize(
    "evidence",
    [
        counted([0, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]),
        measured([0.3, -0.2, 0.1, 0.4], [np.nan] * 4, [1] * 4),
    ],
    ids=["counted", "measured"],
)
def test_one_example_a_client_cannot_tell(evidence):
    estimate = true_effects.estimate(evidence, MARGIN)
    assert estimate.high - estimate.low > 0.9
    assert not true_effects.surely_hurt(estimate.probability_hurt).any()


def test_what_is_exact_and_what_diverged():
    """A standard error of 0 and a model that diverged leave no doubt; no score, nothing to say."""
    delta = [0.0, -0.5, -0.011, -np.inf, np.inf, np.nan]
    estimate = true_effects.estimate(measured(delta, [0, 0, 0, np.nan, np.nan, 0], [9] * 6), MARGIN)
    np.testing.assert_allclose(estimate.probability_hurt, [0, 1, 1, 1, 0, np.nan], atol=1e-9)
    assert estimate.share == pytest.approx(3 / 5)
    counts = counted([1, 0], [1, 0], [50, 50], delta=np.array([0.0, -np.inf]))
    assert true_effects.estimate(counts, MARGIN).probability_hurt[1] == pytest.approx(1)


def test_the_prior_is_the_likeliest():
    """Where the likelihood is largest, its slope is the same wherever there is mass."""
    rng = np.random.default_rng(0)
    likelihood, numbers = rng.uniform(size=(40, 5)), rng.integers(1, 9, 40)
    prior = true_effects._maximize(likelihood, numbers, np.full(5, 0.2))
    slope = likelihood.T @ (numbers / (likelihood @ prior))
    np.testing.assert_allclose(slope[prior > 0.01], numbers.sum(), rtol=1e-2)
    assert (slope <= 1.01 * numbers.sum()).all()


def test_clients_are_in_any_order():
    rng = np.random.default_rng(1)
    gained, lost = rng.binomial(30, 0.05, 50), rng.binomial(30, 0.1, 50)
    evidence, order = counted(gained, lost, [30] * 50), rng.permutation(50)
    one = true_effects.estimate(evidence, MARGIN)
    other = true_effects.estimate(counted(gained[order], lost[order], [30] * 50), MARGIN)
    np.testing.assert_allclose(other.probability_hurt, one.probability_hurt[order])
    assert (one.low, one.share, one.high) == pytest.approx((other.low, other.share, other.high))


def population(rng, kind, share, num_examples, num_clients=100):
    """Returns (evidence, true differences): some hurt, some better off, the others unchanged."""
    effects = np.zeros(num_clients)
    num_hurt, num_better = round(share * num_clients), round(0.4 * num_clients)
    effects[:num_hurt] = -0.15 * rng.uniform(0.5, 1.5, num_hurt)
    effects[num_hurt : num_hurt + num_better] = 0.15 * rng.uniform(0.5, 1.5, num_better)
    sizes = np.full(num_clients, num_examples)
    if kind == "measured":
        draws = effects[:, None] + 0.1 * rng.standard_normal((num_clients, num_examples))
        return measured(draws.mean(1), draws.std(1, ddof=1) / num_examples**0.5, sizes), effects
    changed = np.minimum(rng.beta(2, 48, num_clients) + np.abs(effects), 1)
    shares = np.stack([(changed + effects) / 2, (changed - effects) / 2, 1 - changed], axis=1)
    gained, lost, _ = np.array([rng.multinomial(num_examples, p) for p in shares]).T
    return counted(gained, lost, sizes), effects


@pytest.mark.parametrize("kind", ["counted", "measured"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_estimates_of_known_populations(kind, share):
    rng, inside, false, errors = np.random.default_rng(2), [], [], []
    for _ in range(5):
        evidence, effects = population(rng, kind, share, 100)
        estimate = true_effects.estimate(evidence, MARGIN)
        sure = true_effects.surely_hurt(estimate.probability_hurt)
        inside.append(estimate.low <= share <= estimate.high)
        false.append(np.mean(effects[sure] == 0.0) if sure.any() else 0.0)
        errors.append(estimate.share - share)
        assert estimate.high - estimate.low < 0.35
    assert sum(inside) >= 4
    assert np.mean(false) < 0.2
    assert abs(np.mean(errors)) < 0.05


def _values(**columns):
    fields = {
        "client_ids": np.array(["a", "b"]),
        "baseline": np.array([0.5, 0.4]),
        "personalized": np.array([0.4, 0.4]),
        "higher_is_better": True,
        "num_evaluation_examples": np.array([1000, 1000]),
        "delta_se": np.array([0.01, 0.01]),
        "num_gained": np.array([20.0, 5.0]),
        "num_lost": np.array([120.0, 5.0]),
        "hurt_margin": MARGIN,
    }
    return ClientValues(**(fields | columns))


def test_population_metrics():
    values = _values()
    assert hurt.pct_truly_hurt(values) == pytest.approx(50, abs=1)
    assert hurt.pct_truly_hurt_low(values) <= hurt.pct_truly_hurt(values)
    assert hurt.num_surely_hurt(values) == 1
    assert hurt.hurt_margin(values) == MARGIN
    assert np.isnan(hurt.pct_truly_hurt(dataclasses.replace(values, hurt_margin=None)))
    assert np.isnan(hurt.pct_hurt_by_chance(dataclasses.replace(values, delta_se=None)))
    # Without counts the standard errors decide.
    errors = _values(num_gained=np.full(2, np.nan), higher_is_better=False)
    assert hurt.pct_hurt_by_chance(errors) == pytest.approx(25)
    assert hurt.pct_truly_hurt(errors) < 50


def test_default_margins():
    assert hurt.margin(_values()) == 0.01
    assert hurt.margin(_values(higher_is_better=False)) == pytest.approx(0.0045)
    assert hurt.margin(_values(higher_is_better=False, baseline=np.zeros(2))) > 0
