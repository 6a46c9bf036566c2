"""Quantum of improvement: what personalization adds to the better of a global and a local model.

    F_i = P_i - max(G_i, L_i)          for errors  F_i = min(G_i, L_i) - P_i

of Divi, Lin, Farrukh and Celik, "New Metrics to Evaluate the Performance and Fairness of
Personalized Federated Learning" (FL-ICML 2021, arXiv:2107.13173), equation 1. Clients with F > 0
are U+, those with F < 0 are U-, of which absolute values are taken; clients with F = 0 are in
neither, and count among all clients in PUI only; so do those whose model diverged. Clients without
a score (F is not-a-number) count nowhere.

`QUANTUM` is the registry. Performance (equations 2, 3): PUI, and the median and the average over U+
(MPI, API) and over U- (MPD, APD). Fairness (equations 5, 8, 10, 11), over U+ (`_improved`) and over
U- (`_decreased`): average variance (the lower, the fairer), cosine similarity with equal shares,
entropy (natural logarithm) and Jain's index (the higher, the fairer). All are in units of the
metric; the paper's values are in percent. What is over nobody is not-a-number.
"""

import functools
from collections.abc import Callable, Mapping

import numpy as np


def quantum(
    personalized: np.ndarray,
    global_model: np.ndarray,
    local_model: np.ndarray | None,
    higher_is_better: bool,
) -> np.ndarray:
    """Returns F, [num_clients]: positive where the personalized model is better than both others.

    All are each client's metric, [num_clients], under its personalized, the global and its locally
    trained model; None leaves the last one out, as the paper's Table 3 does.
    """
    sign = 1.0 if higher_is_better else -1.0
    best = sign * global_model
    if local_model is not None:
        best = np.maximum(best, sign * local_model)
    with np.errstate(invalid="ignore"):  # Both diverged.
        return np.where(sign * personalized == best, 0.0, sign * personalized - best)


def improved(gains: np.ndarray) -> np.ndarray:
    """Returns U+: the gains of the clients that gain."""
    return gains[(gains > 0) & np.isfinite(gains)]


def decreased(gains: np.ndarray) -> np.ndarray:
    """Returns U-: the losses of the clients that lose, positive."""
    return -gains[(gains < 0) & np.isfinite(gains)]


def pui(gains: np.ndarray) -> float:
    """Returns the percentage of clients improved, 0..100 (equation 2)."""
    scored = gains[~np.isnan(gains)]
    return 100.0 * float(np.mean(scored > 0)) if len(scored) else float("nan")


def average_variance(part: np.ndarray) -> float:
    """Returns the variance of U+ or U- (equation 5)."""
    return float(np.var(part)) if len(part) else float("nan")


def cosine_similarity(part: np.ndarray) -> float:
    """Returns the cosine of U+ or U- and equal shares, 1 where all are equal (equation 8)."""
    return _ratio(np.mean(part), np.sqrt(np.mean(part**2))) if len(part) else float("nan")


def entropy(part: np.ndarray) -> float:
    """Returns the entropy of the shares of U+ or U-, at most log(n) (equation 10)."""
    total = np.sum(part)
    if not total > 0:
        return float("nan")
    shares = part[part > 0] / total
    return float(0.0 - np.sum(shares * np.log(shares)))  # Of one client 0, not -0.


def jain_index(part: np.ndarray) -> float:
    """Returns Jain's index of U+ or U-, 1/n (one has all) to 1 (all equal; equation 11)."""
    return _ratio(np.sum(part) ** 2, len(part) * np.sum(part**2))


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below > 0 else float("nan")


def _over(
    part: Callable[[np.ndarray], np.ndarray], function: Callable[..., float], gains: np.ndarray
) -> float:
    members = part(gains)
    return float(function(members)) if len(members) else float("nan")


_FAIRNESS = {
    "average_variance": average_variance,
    "cosine_similarity": cosine_similarity,
    "entropy": entropy,
    "jain_index": jain_index,
}

QUANTUM: Mapping[str, Callable[[np.ndarray], float]] = {
    "pui": pui,
    "mpi": functools.partial(_over, improved, np.median),
    "api": functools.partial(_over, improved, np.mean),
    "mpd": functools.partial(_over, decreased, np.median),
    "apd": functools.partial(_over, decreased, np.mean),
    **{
        f"{name}_{which}": functools.partial(_over, part, function)
        for which, part in (("improved", improved), ("decreased", decreased))
        for name, function in _FAIRNESS.items()
    },
}
