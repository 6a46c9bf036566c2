"""How private a run's rounds are: its epsilon at a delta, as `dp-accounting` counts it.

**What is protected.** Of two sets of N clients that differ in one client (the relation "replacing
one client"), what the server sends in all rounds has nearly the same distribution: the global
models, and the norms to which updates are clipped. N is public. Training losses and scores have no
noise and are not counted. Whoever fine-tunes that model on data of his own device spends nothing.

**Noise.** z is what `private_mean` says that both parts of a round are worth together, for a client
who is there or not: the clipped sum changes by at most C and has noise of z' C, the count of those
below C is of values -1/2 and 1/2, changes by 1/2 and has noise of s (`tensorflow_privacy`'s
`quantile_estimator_query`), and 1 / z^2 = 1 / z'^2 + (1/2)^2 / s^2. Replacing a client changes the
sum by 2 C and the count by 1, so both double, and the noise is exactly z / 2 of what changes. An
update in g groups, each clipped and noised apart, has z / sqrt(g).

**Everybody in each round.** T rounds are one Gaussian mechanism of mu = 2 sqrt(T) / z (Balle and
Wang 2018, https://arxiv.org/abs/1805.06530, Theorem 8). This bounds cohorts, too.

**Cohorts of n, drawn anew without replacement.** With q = n / N, and y for whom the differing
client displaces, a round has (1 - q) N(y) + q N(x) and (1 - q) N(y) + q N(x'), all within 2 C of
each other. At e^epsilon >= 1 their divergence is at most that of (1 - q) N(0) + q N(mu) from N(0),
with mu = 2 / z (Balle, Barthe and Gaboardi 2018, https://arxiv.org/abs/1807.01647), and below 1
that of the same two exchanged (Zhu, Dong and Wang 2022, https://arxiv.org/abs/2106.08567). The pair
that has both is composed here. `jax-privacy` takes the larger of T rounds of one and T of the other
("Poisson sampling at half the noise"): 6.476 for 10 of 1,000, z = 1, 100 rounds, delta 1e-5, where
ours is 6.641. That is exact for a client of whom all others send the opposite, but we know of no
proof that none is worse over several rounds, in which y may be x once and x' another time.

A client who drops out, whatever the data, adds nothing to either part: less than it may. The
divisor stays n. `dp-accounting` is 0.4.3, as TensorFlow Federated pins it: what is used of it
(divergence of a Gaussian, composition of a discretized pair) is the same in later releases, while
its accountants either take cohorts for Poisson samples or are looser (11.21 above).
"""

import dataclasses
import functools
import importlib.metadata
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from motley_tff.core import errors, private_mean
from motley_tff.core.errors import UserError

RELATION = "replacing one client"
MIN_DELTA = 1e-12  # Below, floats' rounding and the tails left out would count.
_CELLS = 2**12
# Of the distribution of composed losses; it counts as infinite.
_LEFT_OUT = 1e-15
_LEAST_NOISE = 1e-3


def default_delta(num_clients: int) -> float:
    """Returns 1 / N^1.1."""
    return float(num_clients**-1.1)


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """A round, as far as privacy goes.

    Attributes:
      noise: z, of all of an update's groups together; above 0.
      cohort: The clients that are asked in a round, `n`.
      clients: Those there are, `N`.
      delta: In [MIN_DELTA, 1).
    """

    noise: float
    cohort: int
    clients: int
    delta: float

    def epsilon(self, rounds: int) -> float:
        """Returns the epsilon of so many rounds, the smallest of the bounds; 0 for none."""
        if not rounds:
            return 0.0
        whole = _gaussian_epsilon(2 * math.sqrt(rounds) / self.noise, self.delta)
        if self.cohort >= self.clients:
            return whole
        losses = _sampled_losses(self.cohort / self.clients, 2 / self.noise)
        return min(whole, losses.epsilon(rounds, self.delta))

    def facts(self, rounds: int) -> dict[str, Any]:
        """Returns what `run.json` says of so many rounds."""
        is_whole = self.cohort >= self.clients
        return {
            "epsilon": self.epsilon(rounds),
            "delta": self.delta,
            "relation": RELATION,
            "rounds": rounds,
            "clients": self.clients,
            "clients_per_round": self.cohort,
            "sampling": "all clients in every round" if is_whole
            else "cohorts of a fixed size, without replacement",
            "noise_multiplier": self.noise,
            "noise_per_replacement": self.noise / 2,
            "accountant": f"dp-accounting {importlib.metadata.version('dp-accounting')}, "
            + ("analytic Gaussian" if is_whole else "privacy loss distribution"),
        }  # fmt: skip


def noise_for(epsilon: float, rounds: int, mechanism: Mechanism, groups: int = 1) -> float:
    """Returns the least noise multiplier, to four digits, whose rounds have at most this epsilon.

    Args:
      mechanism: The cohort, the clients and delta; its noise does not matter.
      groups: Into how many groups an update is split.

    Raises:
      UserError: If so few clients a round allow no such noise, with the fewest that do, or the most
        rounds.
    """

    def spent(noise: float, cohort: int = mechanism.cohort, rounds: int = rounds) -> float:
        return dataclasses.replace(
            mechanism, noise=noise / math.sqrt(groups), cohort=cohort
        ).epsilon(rounds)

    most = private_mean.most_noise(mechanism.cohort)
    if spent(most) > epsilon:
        raise _refusal(epsilon, rounds, mechanism, spent)
    low, high = math.log(min(_LEAST_NOISE, most)), math.log(most)
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if spent(math.exp(middle)) > epsilon else (low, middle)
    return min(most, _rounded_up(math.exp(high)))


def _rounded_up(value: float) -> float:
    """Returns a number above 0 with four digits that is no smaller."""
    exponent = math.floor(math.log10(value)) - 3
    # Not by what floats add to a number of four digits.
    return float(f"{math.ceil(value / 10.0**exponent - 1e-9)}e{exponent}")


def _refusal(
    epsilon: float, rounds: int, mechanism: Mechanism, spent: Callable[..., float]
) -> UserError:
    """Returns the error of an epsilon that no noise gives."""

    def of_cohort(cohort: int) -> bool:
        return spent(private_mean.most_noise(cohort), cohort) <= epsilon

    def of_rounds(number: int) -> bool:
        return spent(private_mean.most_noise(mechanism.cohort), rounds=number) <= epsilon

    ways, n = [], mechanism.cohort
    if n < mechanism.clients and of_cohort(mechanism.clients):
        enough = _border(n, mechanism.clients, lambda cohort: not of_cohort(cohort)) + 1
        ways.append(f"train with at least {enough:,} clients a round")
    fewer = _border(0, rounds, of_rounds)
    if fewer:
        ways.append(f"train at most {fewer:,} rounds")
    name = errors.name("dp_epsilon")
    least = _rounded_up(spent(private_mean.most_noise(n)))
    expected = f"at least {least:,.12g} for {rounds:,} round{'s' * (rounds > 1)} of {n:,} of "
    expected += f"{mechanism.clients:,} clients"
    advice = " or ".join(ways) or "give more, or train with more clients"
    return UserError(name, epsilon, expected, advice)


def _border(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Returns the largest number that has a property which `low` has and `high` has not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@functools.lru_cache(maxsize=4096)
def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Returns the epsilon of a Gaussian mechanism whose mean moves by mu standard deviations."""
    from dp_accounting.pld import privacy_loss_mechanism
    from scipy import optimize

    mechanism = privacy_loss_mechanism.GaussianPrivacyLoss(1 / mu)

    def excess(epsilon: float) -> float:
        return float(mechanism.get_delta_for_epsilon(epsilon)) - delta

    if excess(0.0) <= 0:
        return 0.0
    # A Gaussian loss of mean mu^2 / 2 and deviation mu is above that in less than delta of cases.
    most = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + mu
    return float(optimize.brentq(excess, 0.0, most, xtol=1e-12, rtol=1e-14))


class _RoundLosses(NamedTuple):
    """The distribution of a round's privacy loss: `masses` at `width * (-_CELLS ... _CELLS)`, and
    what is infinite.
    """

    width: float
    masses: np.ndarray
    infinite: float

    def epsilon(self, rounds: int, delta: float) -> float:
        """Returns the epsilon of so many rounds.

        delta(epsilon) is the largest over l of P(loss >= l) - exp(epsilon) Q(loss >= l), where
        Q(loss) = exp(-loss) P(loss).
        """
        from dp_accounting.pld import common

        first, composed = common.self_convolve(self.masses, rounds, _LEFT_OUT)
        losses = self.width * (np.arange(len(composed)) + first - rounds * _CELLS)
        masses = np.maximum(composed, 0.0)[::-1]
        above = np.cumsum(masses) - math.expm1(rounds * math.log1p(-self.infinite)) + _LEFT_OUT
        with np.errstate(divide="ignore", invalid="ignore"):
            log_under = np.logaddexp.accumulate(np.log(masses) - losses[::-1])
            epsilons = np.log(np.maximum(above - delta, 0.0)) - log_under
        return max(0.0, float(np.max(epsilons, initial=0.0, where=above > delta)))


@functools.lru_cache(maxsize=64)
def _sampled_losses(q: float, mu: float) -> _RoundLosses:
    """Returns the discretized losses of the pair that dominates a round of a cohort.

    Those above 0 are of P = (1 - q) N(0, 1) + q N(mu, 1) against Q = N(0, 1), those below 0 of Q
    against P; what is left has loss 0. A cell's probabilities under both go to its two ends so that
    neither changes ("connecting the dots", https://arxiv.org/abs/2207.04380): a valid bound.
    """
    from scipy import special

    # Where N(mu, 1) has 1e-19 beyond.
    farthest = mu * mu / 2 + 9 * mu
    width = float(np.logaddexp(math.log1p(-q), math.log(q) + farthest)) / _CELLS
    losses = width * np.arange(_CELLS + 1)
    x = (losses + np.log1p(-(1 - q) * np.exp(-losses)) - math.log(q)) / mu + mu / 2
    of_q = special.ndtr(-x)
    of_p = (1 - q) * of_q + q * special.ndtr(mu - x)
    p, under = -np.diff(of_p), -np.diff(of_q)
    is_small = losses[:-1] < 500  # Above, exp overflows: all goes to the upper end.
    moved = np.where(is_small, p - np.exp(np.where(is_small, losses[:-1], 0.0)) * under, p)
    upper = np.clip(moved / -math.expm1(-width), 0.0, p)
    above = np.append(p - upper, 0.0) + np.append(0.0, upper)
    below = above * np.exp(-losses)
    infinite = float(of_p[-1])
    middle = 1 - infinite - above[1:].sum() - below[1:].sum()
    return _RoundLosses(width, np.concatenate([below[:0:-1], [middle], above[1:]]), infinite)
