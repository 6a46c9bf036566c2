"""Who is truly hurt, and how many are: the noise of small evaluation sets taken out.

A client counts as hurt where its own model scores a hair worse on its few evaluation examples. With
three examples a client, a third of the clients look hurt though nothing has changed. Here a client
has a *true* difference, the mean over all examples that it could have been evaluated on, of which
its evaluation set shows a sample. An empirical-Bayes fit over all clients of a split estimates how
the true differences are distributed, and from that what each client's own is (Efron 2016,
"Empirical Bayes deconvolution estimates"; Stephens 2017, "False discovery rates: a new deal").

- *Prior*: a mixture on a grid, 0 and +-2 margin 2^(k/2), k = 0, 1, ... Nothing lies between 0 and
  the margin: no data tell a hair from nothing.
- *Likelihood* of right and wrong examples, where g were gained, l lost and n - g - l unchanged: the
  multinomial, with P(gained) = (d + x) / 2, P(lost) = (d - x) / 2 and d = |x| + (1 - |x|) c. The
  churn c, examples that change without a gain, has a histogram of its own, fitted beside the prior.
- *Likelihood* of other metrics: Student's t of n - 1 degrees of freedom around the difference, in
  units of its standard error. A standard error of 0 means that all examples changed alike: the
  difference is taken to be exact. A client without a standard error (of one example) says nothing.
- *Fit*: expectation-maximization, with nine pseudo-clients at 0, the penalty of Stephens 2017
  (lambda_0 = 10), without which a fit calls up to a fifth of unchanged clients hurt; and with one
  that is spread over the rest of the grid, so that few clients leave no probability at nothing.
- *Share of clients that are hurt*: the mean of their posterior probabilities. The interval spans
  the shares under all priors whose likelihood is within exp(-1.92) of the largest (the profile
  likelihood's 95%), joined with the spread of the sum of the clients' own posteriors.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# An accuracy's margin, one point; an error's, as a share of the baseline's mean.
MARGIN, RELATIVE_MARGIN = 0.01, 0.01
# Among the clients named as surely hurt, so many are not, in the mean of their posteriors.
FALSE_DISCOVERIES = 0.1
_PSEUDO_CLIENTS = 9.0
# Between these the churn is equally likely, as in a histogram; so many points stand for a range.
_CHURN = np.array([0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0])
_POINTS = 16
# Half the 95% quantile of chi-squared with one degree of freedom, and the normal's.
_DROP, _NORMAL = 3.32, 2.24
_CYCLES, _TOLERANCE, _LONGEST, _BISECTIONS = 20, 1e-4, 64.0, 8


class Evidence(NamedTuple):
    """What the clients' differences rest on, arrays [num_clients].

    Attributes:
      delta: Own model against baseline, positive is better; infinite where one model diverged,
        not-a-number where both did or nothing was scored.
      delta_se: Its standard error; not-a-number where there is none.
      num_examples: Evaluation examples.
      num_gained: Examples that only the client's own model has right; None where examples are not
        right or wrong.
      num_lost: Examples that only the baseline has right.
    """

    delta: np.ndarray
    delta_se: np.ndarray
    num_examples: np.ndarray
    num_gained: np.ndarray | None = None
    num_lost: np.ndarray | None = None


class Estimate(NamedTuple):
    """Who is truly worse off by more than the margin.

    Attributes:
      probability_hurt: Each client's posterior probability, 0..1, not-a-number of one that has no
        difference.
      effects: The grid of true differences, [k], ascending.
      posterior: How probable each is for each client, [num_clients, k].
      share: The estimated share of clients, 0..1, of those that have a difference.
      low: Where its 95% interval begins.
      high: Where it ends.
    """

    probability_hurt: np.ndarray
    effects: np.ndarray
    posterior: np.ndarray
    share: float
    low: float
    high: float


def surely_hurt(probability_hurt: np.ndarray) -> np.ndarray:
    """Returns the largest set of clients of whom a tenth or less is not hurt, in the mean of their
    posterior probabilities: bool [num_clients].
    """
    probability = np.nan_to_num(probability_hurt)
    order = np.argsort(-probability, kind="stable")
    false = np.cumsum(1.0 - probability[order]) / np.arange(1, len(order) + 1)
    within = np.flatnonzero(false <= FALSE_DISCOVERIES)
    is_sure = np.zeros(len(order), bool)
    is_sure[order[: within[-1] + 1 if len(within) else 0]] = True
    return is_sure


def hurt_by_chance(evidence: Evidence) -> np.ndarray:
    """Returns each client's probability to look hurt if neither of its models is truly better.

    Of m examples that changed, more are lost than gained with probability P(Binomial(m, 1/2) >
    m / 2), 0 where m = 0. Where examples are not right or wrong: one half if anything changed.
    """
    if evidence.num_gained is None or evidence.num_lost is None:
        return np.where(evidence.delta == 0.0, 0.0, 0.5)
    from scipy import special  # Takes 70 ms.

    changed = (evidence.num_gained + evidence.num_lost).astype(np.float64)
    half = changed / 2
    log_ways = special.gammaln(changed + 1) - 2 * special.gammaln(half + 1)
    is_tied = np.where(changed % 2 == 0, np.exp(log_ways - changed * np.log(2)), 0.0)
    return (1.0 - is_tied) / 2


def estimate(evidence: Evidence, margin: float) -> Estimate:
    """Returns who is truly hurt, by more than a margin in units of the metric, above 0.

    A client whose own model alone diverged is hurt, whatever the others are.
    """
    is_known = ~np.isnan(evidence.delta)
    evidence = _of_clients(evidence, is_known)
    effects = _effects(evidence, margin)
    likelihoods = _likelihoods(evidence, effects, margin)
    prior, churn = _fit(likelihoods)
    likelihood = likelihoods.by_churn @ churn
    is_hurt = effects < 0.0
    posterior = np.full([len(is_known), len(effects)], np.nan)
    posterior[is_known] = _posterior(likelihood, prior)[likelihoods.row_of_client]
    probability_hurt = np.clip(posterior[:, is_hurt].sum(axis=1), 0.0, 1.0)
    ends = (float("nan"),) * 3
    if is_known.any():
        ends = _interval(likelihood, likelihoods.numbers, prior, is_hurt)
    return Estimate(probability_hurt, effects, posterior, *ends)


class _Likelihoods(NamedTuple):
    """Likelihoods of clients, of whom those with the same evidence share a row.

    Attributes:
      by_churn: [rows, k, ranges of the churn]; of one range where examples are not right or wrong.
      numbers: How many clients have each row.
      row_of_client: The row of each.
    """

    by_churn: np.ndarray
    numbers: np.ndarray
    row_of_client: np.ndarray


def _of_clients(evidence: Evidence, chosen: np.ndarray) -> Evidence:
    columns = [None if column is None else np.asarray(column)[chosen] for column in evidence]
    return Evidence(*columns)  # type: ignore[arg-type]


def _effects(evidence: Evidence, margin: float) -> np.ndarray:
    """Returns the grid: an accuracy changes by less than 1, an error by twice what was seen."""
    largest = 1.0
    if evidence.num_gained is None:
        finite = np.abs(evidence.delta[np.isfinite(evidence.delta)])
        largest = max(2.0 * finite.max(initial=0.0), 4.0 * margin)
    number = max(1, int(np.ceil(2.0 * np.log2(largest / (2.0 * margin)))))
    above = 2.0 * margin * 2.0 ** (np.arange(number) / 2.0)
    return np.concatenate([-above[::-1], [0.0], above])


def _likelihoods(evidence: Evidence, effects: np.ndarray, margin: float) -> _Likelihoods:
    if evidence.num_gained is None or evidence.num_lost is None:
        likelihood = _of_differences(evidence, effects, margin)
        count = len(likelihood)
        return _Likelihoods(likelihood[:, :, None], np.ones(count), np.arange(count))
    has_diverged = np.where(np.isinf(evidence.delta), np.sign(evidence.delta), 0.0)
    columns = [evidence.num_gained, evidence.num_lost, evidence.num_examples, has_diverged]
    rows, row_of_client, numbers = np.unique(
        np.stack(columns, axis=1).astype(np.int64), axis=0, return_inverse=True, return_counts=True
    )
    return _Likelihoods(_of_counts(rows, effects), numbers, row_of_client.ravel())


def _fit(likelihoods: _Likelihoods) -> tuple[np.ndarray, np.ndarray]:
    """Returns (prior [k], probabilities of the churn's ranges) that maximize the likelihood under
    the penalty together.
    """
    by_churn, numbers, _ = likelihoods
    _, num_effects, num_ranges = by_churn.shape
    penalty = np.full(num_effects, 1.0 / (num_effects - 1))
    penalty[num_effects // 2] = _PSEUDO_CLIENTS  # At 0.

    def step(both: np.ndarray) -> np.ndarray:
        prior, churn = both[:num_effects], both[num_effects:]
        likelihood = by_churn @ churn
        new = prior * (likelihood.T @ (numbers / (likelihood @ prior))) + penalty
        of_churn = np.tensordot(prior, by_churn, (0, 1))
        churn = churn * (of_churn.T @ (numbers / (of_churn @ churn)))
        return np.concatenate([new / new.sum(), churn / max(churn.sum(), 1e-300)])

    shares = [np.full(n, 1.0 / n) for n in (num_effects, num_ranges)]
    both = _fixed_point(step, np.concatenate(shares))
    return both[:num_effects], both[num_effects:]


def _fixed_point(step: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> np.ndarray:
    """Returns where steps of expectation-maximization lead: accelerated by SQUAREM (Varadhan and
    Roland 2008, its third step length), of the square roots, which may have any sign.
    """
    root = np.sqrt(start)
    for _ in range(_CYCLES):
        first = np.sqrt(step(root**2))
        second = np.sqrt(step(first**2))
        change, bend = first - root, second - 2.0 * first + root
        if np.abs(first**2 - root**2).max() < _TOLERANCE:
            return second**2
        bends = float(bend @ bend)
        length = math.sqrt(float(change @ change) / bends) if bends > 0.0 else 1.0
        length = min(max(length, 1.0), _LONGEST)
        # The step that follows scales the shares to a sum of 1.
        root = np.sqrt(step((root + 2.0 * length * change + length**2 * bend) ** 2))
    return root**2


def _of_counts(rows: np.ndarray, effects: np.ndarray) -> np.ndarray:
    """Returns the multinomial likelihoods, [rows, k, ranges of the churn], of a row to one scale:
    their means over a range.
    """
    gained, lost, num_examples, has_diverged = (column[:, None, None] for column in rows.T)
    unchanged = num_examples - gained - lost
    size, effect = np.abs(effects)[:, None], effects[:, None]

    def logs(churn: np.ndarray) -> np.ndarray:
        changed = size + (1.0 - size) * churn
        shares = ((changed + effect) / 2, (changed - effect) / 2, 1.0 - changed)
        counts = (gained, lost, unchanged)
        return sum(n * np.log(np.maximum(p, 1e-9)) for n, p in zip(counts, shares, strict=True))

    low, width = _CHURN[:-1], np.diff(_CHURN)
    points = [low + width * (i + 0.5) / _POINTS for i in range(_POINTS)]
    largest = np.max([logs(churn).max(axis=(1, 2)) for churn in points], axis=0)[:, None, None]
    likelihood = sum(np.exp(logs(churn) - largest) for churn in points) / _POINTS
    is_at_end = _is_exact(np.sign(has_diverged[:, 0, 0]) * effects[-1], effects, 0.0)
    return np.where(has_diverged != 0, is_at_end[:, :, None], likelihood)


def _of_differences(evidence: Evidence, effects: np.ndarray, margin: float) -> np.ndarray:
    """Returns Student's t's likelihoods, [num_clients, k], 1 at the largest of a client."""
    error, freedom = _moderated(evidence.delta_se, evidence.num_examples)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = ((evidence.delta[:, None] - effects) / error[:, None]) ** 2
        logs = -(freedom + 1)[:, None] / 2 * np.log1p(squares / freedom[:, None])
        likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    is_exact = (error == 0.0) | np.isinf(evidence.delta)
    exact = _is_exact(evidence.delta, effects, margin)
    likelihood = np.where(is_exact[:, None], exact, likelihood)
    return np.where((is_exact | (error > 0.0))[:, None], likelihood, 1.0)


def _moderated(error: np.ndarray, num_examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (standard errors, degrees of freedom) of clients whose variances are shrunk towards
    each other's: of three examples a variance may be small by chance (Smyth 2004, "Linear models
    and empirical Bayes methods", moderated t; the moments of its section 6.2).
    """
    from scipy import special  # Takes 70 ms.

    freedom = np.maximum(num_examples - 1.0, 1.0)
    varies = error > 0.0
    if varies.sum() < 2:
        return error, freedom
    half = freedom[varies] / 2
    variances = error[varies] ** 2 * num_examples[varies]
    logs = np.log(variances) - special.digamma(half) + np.log(half)
    excess = np.var(logs, ddof=1) - np.mean(special.polygamma(1, half))
    prior_freedom = 2.0 * _inverse_trigamma(max(excess, 1e-3))
    location = logs.mean() + special.digamma(prior_freedom / 2) - np.log(prior_freedom / 2)
    total = freedom[varies] + prior_freedom
    shrunk = (prior_freedom * np.exp(location) + freedom[varies] * variances) / total
    error, freedom = error.copy(), freedom.copy()
    error[varies], freedom[varies] = np.sqrt(shrunk / num_examples[varies]), total
    return error, freedom


def _inverse_trigamma(value: float) -> float:
    """Returns x > 0 with trigamma(x) = value > 0, by bisection of its logarithm."""
    from scipy import special  # Takes 70 ms.

    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        is_below = special.polygamma(1, np.exp(middle)) > value  # It falls.
        low, high = (middle, high) if is_below else (low, middle)
    return float(np.exp(low))


def _is_exact(delta: np.ndarray, effects: np.ndarray, margin: float) -> np.ndarray:
    """Returns 1.0 at the effect nearest to each difference on its side of the margin, else 0.0:
    [num_clients, k].
    """
    within = np.clip(np.nan_to_num(delta, nan=0.0), effects[0], effects[-1])
    distance = np.abs(within[:, None] - effects)
    is_other_side = (within < -margin)[:, None] != (effects < -margin)
    nearest = np.argmin(np.where(is_other_side, np.inf, distance), axis=1)
    return (np.arange(len(effects)) == nearest[:, None]).astype(np.float64)


def _maximize(likelihood: np.ndarray, numbers: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Returns the prior that maximizes sum_i log(L_i prior), by steps from one without zeros."""

    def step(prior: np.ndarray) -> np.ndarray:
        new = prior * (likelihood.T @ (numbers / (likelihood @ prior)))
        return new / new.sum()

    return _fixed_point(step, prior)


def _posterior(likelihood: np.ndarray, prior: np.ndarray) -> np.ndarray:
    joint = likelihood * prior
    return joint / joint.sum(axis=1, keepdims=True)


def _interval(
    likelihood: np.ndarray, numbers: np.ndarray, prior: np.ndarray, is_hurt: np.ndarray
) -> tuple[float, float, float]:
    """Returns (share of clients that are hurt, low, high)."""
    share, _ = _share(likelihood, numbers, prior, is_hurt)
    best = _maximize(likelihood, numbers, prior + 1e-4)
    by_best, _ = _share(likelihood, numbers, best, is_hurt)
    ends = []
    for limit in (0.0, 1.0):
        end, spread = _share(
            likelihood, numbers, _profile_end(likelihood, numbers, best, is_hurt, limit), is_hurt
        )
        pick = min if limit == 0.0 else max
        inner = pick(share, by_best)
        reach = np.hypot(inner - pick(inner, end), _NORMAL * spread)
        ends.append(float(np.clip(inner - reach if limit == 0.0 else inner + reach, 0.0, 1.0)))
    return share, ends[0], ends[1]


def _share(
    likelihood: np.ndarray, numbers: np.ndarray, prior: np.ndarray, is_hurt: np.ndarray
) -> tuple[float, float]:
    """Returns the mean of the clients' posterior probabilities, and its posterior deviation."""
    hurt = np.clip(_posterior(likelihood, prior)[:, is_hurt].sum(axis=1), 0.0, 1.0)
    mean = float(np.average(hurt, weights=numbers))
    return mean, float(np.sqrt(numbers @ (hurt * (1.0 - hurt))) / numbers.sum())


def _profile_end(
    likelihood: np.ndarray,
    numbers: np.ndarray,
    best: np.ndarray,
    is_hurt: np.ndarray,
    limit: float,
) -> np.ndarray:
    """Returns the prior nearest to a mass of `limit` on `is_hurt` that fits almost as well as the
    best does.
    """
    least = numbers @ np.log(likelihood @ best) - _DROP
    inside, outside, kept = float(best[is_hurt].sum()), limit, best
    mass = limit
    for _ in range(_BISECTIONS + 1):
        prior, fit = _maximize_at(likelihood, numbers, kept, is_hurt, mass)
        if fit >= least:
            inside, kept = mass, prior
            if mass == limit:
                break
        else:
            outside = mass
        mass = (inside + outside) / 2
    return kept


def _maximize_at(
    likelihood: np.ndarray,
    numbers: np.ndarray,
    prior: np.ndarray,
    is_hurt: np.ndarray,
    mass: float,
) -> tuple[np.ndarray, float]:
    """Returns the likeliest prior with a mass on `is_hurt`, and its log-likelihood."""
    transposed = np.ascontiguousarray(likelihood.T)

    def step(prior: np.ndarray) -> np.ndarray:
        return _with_mass(prior * (transposed @ (numbers / (likelihood @ prior))), is_hurt, mass)

    prior = _with_mass(prior + 1e-6, is_hurt, mass)
    with np.errstate(divide="ignore", invalid="ignore"):
        new = _fixed_point(step, prior)
        if not math.isfinite(new.sum()):  # A client that is surely hurt, and no mass there.
            return prior, -np.inf
        return new, float(numbers @ np.log(likelihood @ new))


def _with_mass(prior: np.ndarray, is_hurt: np.ndarray, mass: float) -> np.ndarray:
    """Returns the prior with a mass on `is_hurt`, in the same proportions there and elsewhere."""
    # Effects ascend, so the hurt are the first.
    first = np.count_nonzero(is_hurt)
    scaled = prior.copy()
    scaled[:first] *= mass / max(prior[:first].sum(), 1e-300)
    scaled[first:] *= (1.0 - mass) / max(prior[first:].sum(), 1e-300)
    return scaled
