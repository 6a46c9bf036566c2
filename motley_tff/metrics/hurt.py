"""% clients hurt (Motley section 3.1): clients strictly worse off with their personalized model.

    100 * |{i : personalized_i < baseline_i}| / |clients that are scored|

with the inequality turned for error metrics. A client that keeps its value is not hurt; one whose
own model alone diverged is (see `metrics.client_values`).

Its interval is exact (Clopper and Pearson 1934): with k of n clients hurt, the bounds at 95% are
the 2.5% quantile of Beta(k, n - k + 1) and the 97.5% quantile of Beta(k + 1, n - k).

A client with few evaluation examples looks hurt by chance. `metrics.true_effects` says how many
would if no model were better or worse, how many truly are, and who is for sure; of test clients.
"""

import dataclasses

import numpy as np

from motley_tff.metrics import client_values, true_effects

_TAIL = 0.025


def pct_clients_hurt(values: client_values.ClientValues) -> float:
    """Returns the percentage of clients hurt, 0..100."""
    hurt, rest = _counts(values)
    return 100.0 * (hurt / (hurt + rest)) if hurt + rest else float("nan")


def pct_clients_hurt_low(values: client_values.ClientValues) -> float:
    """Returns the interval's lower end, 0 where nobody is hurt."""
    return _interval(values)[0]


def pct_clients_hurt_high(values: client_values.ClientValues) -> float:
    """Returns the interval's upper end, 100 where all are hurt."""
    return _interval(values)[1]


def _interval(values: client_values.ClientValues) -> tuple[float, float]:
    from scipy import special  # Takes 70 ms.

    hurt, rest = _counts(values)
    if not hurt + rest:
        return float("nan"), float("nan")
    low = special.betaincinv(hurt, rest + 1, _TAIL) if hurt else 0.0
    high = special.betaincinv(hurt + 1, rest, 1 - _TAIL) if rest else 1.0
    return 100.0 * float(low), 100.0 * float(high)


def pct_hurt_by_chance(values: client_values.ClientValues) -> float:
    """Returns the percentage that would look hurt if no model were truly better or worse."""
    if values.evidence is None:
        return float("nan")
    chances = true_effects.hurt_by_chance(values.evidence)
    return 100.0 * float(np.mean(chances[values.is_scored]))


def pct_truly_hurt(values: client_values.ClientValues) -> float:
    """Returns the estimated percentage of clients that are worse off by more than the margin."""
    return _truly(values, "share")


def pct_truly_hurt_low(values: client_values.ClientValues) -> float:
    """Returns the lower end of the interval of the clients that are truly hurt."""
    return _truly(values, "low")


def pct_truly_hurt_high(values: client_values.ClientValues) -> float:
    """Returns the upper end of the interval of the clients that are truly hurt."""
    return _truly(values, "high")


def num_surely_hurt(values: client_values.ClientValues) -> float:
    """Returns the number of clients that are surely hurt: about a tenth of them wrongly."""
    estimate = values.true_effects
    if estimate is None:
        return float("nan")
    return float(true_effects.surely_hurt(estimate.probability_hurt).sum())


def hurt_margin(values: client_values.ClientValues) -> float:
    """Returns by how much a client must be worse off to be truly hurt, in units of the metric."""
    return float("nan") if values.true_effects is None else float(values.hurt_margin or 0.0)


def with_margin(
    values: client_values.ClientValues, hurt_margin: float | None = None
) -> client_values.ClientValues:
    """Returns the values of clients who chose nothing, with the margin of who is truly hurt, by
    default `margin`'s.
    """
    return dataclasses.replace(values, hurt_margin=hurt_margin or margin(values))


def margin(values: client_values.ClientValues) -> float:
    """Returns the margin where none is set: a point of accuracy, 1% of a baseline's mean error."""
    if values.higher_is_better:
        return true_effects.MARGIN
    errors = np.abs(values.finite("baseline"))
    return max(true_effects.RELATIVE_MARGIN * float(np.mean(errors)) if len(errors) else 0.0, 1e-9)


def _truly(values: client_values.ClientValues, field: str) -> float:
    estimate = values.true_effects
    return float("nan") if estimate is None else 100.0 * getattr(estimate, field)


def _counts(values: client_values.ClientValues) -> tuple[int, int]:
    hurt = int(np.sum(values.is_hurt))
    return hurt, int(np.sum(values.is_scored)) - hurt
