"""Epsilon beside closed forms, quadrature, a Monte Carlo and published values."""

import math
import re

import dp_accounting
import numpy as np
import pytest
from scipy import optimize
from scipy.stats import norm

from motley_tff.core import private_mean
from motley_tff.core.privacy import Mechanism, noise_for
from tests.errors import refused


def _of_gaussian(mu, delta):
    """Balle and Wang (2018), Theorem 8, solved for epsilon."""

    def excess(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return optimize.brentq(excess, 0, 200, xtol=1e-13)


@pytest.mark.parametrize(
    ("noise", "clients", "rounds", "delta"),
    [(5, 10, 100, 1e-5), (1, 139, 1, 1e-3), (13, 139, 500, 139**-1.1), (80, 1000, 10, 1e-6)],
)
def test_all_clients_in_every_round_are_a_gaussian_mechanism(noise, clients, rounds, delta):
    expected = _of_gaussian(2 * math.sqrt(rounds) / noise, delta)
    assert Mechanism(noise, clients, clients, delta).epsilon(rounds) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize(
    ("mu", "within", "printed", "digits"),
    [
        # 15 epochs of MNIST in batches of 256, noise 1.3: compute_epsP in their code's README.
        (256 / 6e4 * math.sqrt(15 * 6e4 / 256 * math.expm1(1.3**-2)), 0, 0.8345, 4),
        # 20 and 70 epochs, noise 1.3 and 0.7: Figure 4, which has two digits of mu.
        (0.35, 0.005, 1.34, 2),
        (1.78, 0.005, 8.68, 2),
    ],
)
def test_published_values(mu, within, printed, digits):
    """Of Bu, Dong, Long and Su (2020), "Deep learning with Gaussian differential privacy"; delta is
    1e-5.
    """
    low, high = (Mechanism(2 / (mu + by), 9, 9, 1e-5).epsilon(1) for by in (-within, within))
    half = 0.5 * 10**-digits
    assert low - half <= printed <= high + half


def _losses(q, mu, shape, rng):
    """Draws losses of the pair that dominates a round: those above 0 of P = (1 - q) N(0) + q N(mu)
    against Q = N(0), those below of Q against P, all else 0.
    """

    def loss(x):
        return np.log1p(-q + q * np.exp(mu * x - mu * mu / 2))

    of_p = loss(rng.standard_normal(shape) + mu * (rng.random(shape) < q))
    # Of what is not above 0 under P, as much is below 0 as is above it under Q.
    share = norm.sf(mu / 2) / (1 - (1 - q) * norm.sf(mu / 2) - q * norm.cdf(mu / 2))
    beyond = norm.isf(norm.sf(mu / 2) * (1 - rng.random(shape)))
    rest = np.where(rng.random(shape) < share, -loss(beyond), 0.0)
    return np.where(of_p > 0, of_p, rest)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "cohort", "rounds", "delta"), [(1, 5, 4, 1e-2), (2.5, 50, 8, 1e-3), (4, 90, 6, 1e-3)]
)
def test_cohorts_beside_a_monte_carlo(noise, cohort, rounds, delta):
    """10^6 draws of the losses of 100 clients' rounds."""
    epsilon = Mechanism(noise, cohort, 100, delta).epsilon(rounds)
    rng = np.random.default_rng(0)
    losses = sum(_losses(cohort / 100, 2 / noise, 10**6, rng) for _ in range(rounds))
    parts = np.maximum(-np.expm1(epsilon - losses), 0)
    assert np.mean(parts) == pytest.approx(delta, abs=4 * np.std(parts) / 1e3)
    assert np.std(parts) < 20 * delta * 1e3 / 4  # The bound above says something.


def test_one_round_beside_the_exact_sum():
    """10 of 1,000 clients, noise 1: all send -1, or one of them 1."""
    x = np.linspace(-30, 30, 600_001)
    alike = norm.pdf(x, -10)
    other = 0.99 * alike + 0.01 * norm.pdf(x, -8)

    def delta(epsilon):
        return np.maximum(other - math.exp(epsilon) * alike, 0).sum() * (x[1] - x[0])

    exact = optimize.brentq(lambda e: delta(e) - 1e-5, 0, 20)
    assert exact == pytest.approx(3.025, abs=5e-4)
    assert exact <= Mechanism(1, 10, 1000, 1e-5).epsilon(1) <= exact + 1e-4


def _of_library(accountant, event, noise, rounds, delta):
    gaussian = dp_accounting.GaussianDpEvent(noise / 2)
    accountant.compose(dp_accounting.SelfComposedDpEvent(event(gaussian), rounds))
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize(
    ("noise", "cohort", "clients", "rounds"), [(1, 10, 1000, 100), (3, 50, 100, 20)]
)
def test_between_the_librarys_bounds(noise, cohort, clients, rounds):
    """Above Poisson samples at half the noise (one pair of data sets has that), below Renyi's."""
    replace = dp_accounting.NeighboringRelation.REPLACE_ONE
    poisson = _of_library(
        dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3),
        lambda event: dp_accounting.PoissonSampledDpEvent(cohort / clients, event),
        noise, rounds, 1e-5,
    )  # fmt: skip
    renyi = _of_library(
        dp_accounting.rdp.RdpAccountant(neighboring_relation=replace),
        lambda event: dp_accounting.SampledWithoutReplacementDpEvent(clients, cohort, event),
        noise, rounds, 1e-5,
    )  # fmt: skip
    epsilon = Mechanism(noise, cohort, clients, 1e-5).epsilon(rounds)
    assert poisson <= epsilon < min(renyi, 1.03 * poisson)
    if clients == 1000:
        assert (poisson, epsilon, renyi) == pytest.approx((6.476, 6.641, 11.21), abs=5e-3)


def test_epsilon_never_falls_with_a_cohort_or_rounds_or_rises_with_noise():
    noises, cohorts, rounds = (0.2, 0.9, 1, 7), (1, 2, 50, 98, 99, 100), (0, 1, 2, 40)
    epsilons = np.array([
        [[Mechanism(z, n, 100, 1e-4).epsilon(t) for t in rounds] for n in cohorts] for z in noises
    ])  # fmt: skip
    assert np.isfinite(epsilons).all()
    assert (np.diff(epsilons, axis=0) <= 0).all()
    assert (np.diff(epsilons, axis=1) >= 0).all()
    assert (np.diff(epsilons, axis=2) >= 0).all()
    assert (epsilons[..., 0] == 0).all()
    assert (epsilons[:, 1:, 1:] > 0).all()


def test_extremes_are_finite_bounds():
    """Hardly any noise, or so much that a round's losses are 1e-6."""
    assert 1e6 < Mechanism(1e-3, 5, 10, 1e-2).epsilon(10) <= 2.1e7
    assert 0 < Mechanism(99, 1000, 10**6, 1e-7).epsilon(1000) < 0.0025


@pytest.mark.parametrize(
    ("epsilon", "rounds", "cohort", "clients", "groups"),
    [(8, 100, 100, 1000, 1), (8, 100, 100, 1000, 2), (3, 20, 139, 139, 1)],
)
def test_the_noise_of_an_epsilon(epsilon, rounds, cohort, clients, groups):
    mechanism = Mechanism(1, cohort, clients, 1e-3)
    noise = noise_for(epsilon, rounds, mechanism, groups)
    assert noise == float(f"{noise:.4g}") <= private_mean.most_noise(cohort)
    spent, without = (
        Mechanism(z / math.sqrt(groups), cohort, clients, 1e-3).epsilon(rounds)
        for z in (noise, noise * 0.999)
    )
    assert spent <= epsilon < without


def test_what_no_noise_gives_is_refused_with_what_does():
    mechanism = Mechanism(1, 10, 1000, 1e-3)
    with refused("dp_epsilon", 1.0, "100 rounds of 10 of 1,000 clients", "at least") as caught:
        noise_for(1.0, 100, mechanism)
    clients, rounds = map(int, re.findall("[0-9]+", caught.value.advice))
    for n, t, is_enough in (
        (clients, 100, True), (clients - 1, 100, False), (10, rounds, True), (10, rounds + 1, False)
    ):  # fmt: skip
        least = Mechanism(private_mean.most_noise(n), n, 1000, 1e-3).epsilon(t)
        assert (least <= 1.0) == is_enough
    with refused("dp_epsilon", 0.1, "of 3 of 3 clients", "give more, or train with more clients"):
        noise_for(0.1, 5, Mechanism(1, 3, 3, 0.3))
