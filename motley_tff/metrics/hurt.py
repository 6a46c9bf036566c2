"""% clients hurt (Motley section 3.1): clients strictly worse off with their personalized model.

    100 * |{i : personalized_i < baseline_i}| / |clients that are scored|

with the inequality turned for error metrics. A client that keeps its value is not hurt; one whose
own model alone diverged is (see `metrics.client_values`).

Its interval is exact (Clopper and Pearson 1934): with k of n clients hurt, the bounds at 95% are
the 2.5% quantile of Beta(k, n - k + 1) and the 97.5% quantile of Beta(k + 1, n - k).
"""

import numpy as np

from motley_tff.metrics import client_values

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


def _counts(values: client_values.ClientValues) -> tuple[int, int]:
    hurt = int(np.sum(values.is_hurt))
    return hurt, int(np.sum(values.is_scored)) - hurt
