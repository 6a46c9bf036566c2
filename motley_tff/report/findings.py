"""Sentences that say what a figure shows of its runs: who leads, who is hurt."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from motley_tff.metrics import statistics
from motley_tff.report.comparisons import Series

_MOST = 4
_QUANTILE = 1.96  # Of a normal distribution, for 95%; with few clients of Student's t's.


class Measured(NamedTuple):
    """A method's mean and the half width of its interval, not-a-number where there is none; the
    values of its clients where they are known.
    """

    label: str
    mean: float
    half_width: float = float("nan")
    clients: Mapping[str, float] = {}

    def overlaps(self, other: "Measured") -> bool:
        """Returns whether both intervals share a value."""
        return abs(self.mean - other.mean) <= self.half_width + other.half_width


def of_clients(series: Series) -> Measured:
    """Returns the mean over clients, of each its mean over seeds, and 95% of a mean's spread."""
    values: dict[str, list[float]] = {}
    for run in series.runs:
        for client, value in zip(run.values.client_ids, run.values.personalized, strict=True):
            if not np.isnan(value):  # Of an unscored client.
                values.setdefault(client, []).append(value)
    means = {client: float(np.mean(of_client)) for client, of_client in values.items()}
    return Measured(series.label, *_interval(list(means.values())), means)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns a mean and the half width of its interval of 95%."""
    if len(values) < 2 or not np.isfinite(values).all():
        return float(np.mean(values)) if len(values) else float("nan"), float("nan")
    if len(values) < statistics.FEW:
        return float(np.mean(values)), statistics.t_half_width(np.array(values))
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), _QUANTILE * float(error)


def leading(measured: Iterable[Measured], higher_is_better: bool) -> str:
    """Returns who leads, whether its interval and the next one's overlap, and who has no mean."""
    measured = list(measured)
    finite = [one for one in measured if np.isfinite(one.mean)]
    if not finite:
        return "No mean is finite."
    diverged = [one.label for one in measured if not np.isfinite(one.mean)]
    more = f" No finite mean: {listed(diverged)}." if diverged else ""
    return _leading(finite, higher_is_better) + more


def _leading(finite: Iterable[Measured], higher_is_better: bool) -> str:
    first, *others = sorted(finite, key=lambda one: one.mean, reverse=higher_is_better)
    if not others:
        return f"{first.label}: {first.mean:.4g} on average."
    ties = [one.label for one in others if one.mean == first.mean]
    if ties:
        return f"{listed([first.label, *ties])} lead with {first.mean:.4g}."
    second = others[0]
    found = f"{first.label} leads with {first.mean:.4g}, before {second.label} ({second.mean:.4g})"
    if not np.isfinite([first.half_width, second.half_width]).all():
        return f"{found}."
    verb = "overlap" if first.overlaps(second) else "do not overlap"
    return f"{found}; their 95% intervals over clients {verb}{_paired(first, second)}."


def _paired(first: Measured, second: Measured) -> str:
    """Returns by how much two methods differ on the clients that both have; "" if those are few."""
    shared = [client for client in first.clients if client in second.clients]
    mean, half = _interval([first.clients[c] - second.clients[c] for c in shared] or [np.nan])
    if not np.isfinite(half):
        return ""
    return (
        f", and client by client they differ by {mean:.3g} (95%: {mean - half:.3g} to "
        f"{mean + half:.3g})"
    )


def hurt(shares: Sequence[tuple[str, float]]) -> str:
    """Returns who hurts the fewest and the most clients, of (label, percentage)."""
    ordered = sorted(shares, key=lambda pair: pair[1])
    low, high = ordered[0][1], ordered[-1][1]
    least, most = ([label for label, share in ordered if share == end] for end in (low, high))
    if len(shares) == 1:
        return f"{least[0]} hurts {low:.1f}% of the clients."
    if low == high:
        return f"Each hurts {low:.1f}% of the clients."
    verb = "hurts" if len(least) == 1 else "hurt"
    return (
        f"{listed(least)} {verb} the fewest clients ({low:.1f}%), {listed(most)} the most "
        f"({high:.1f}%)."
    )


def listed(texts: Sequence[str]) -> str:
    """Returns the first few, and how many more there are."""
    more = len(texts) - _MOST
    return "; ".join(texts[:_MOST]) + (f"; and {more} more" if more > 0 else "")
