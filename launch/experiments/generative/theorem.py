"""Theorem 1 of Wang et al. 2023, as it is: where FID-avg and FID-all come from.

Of clients with normal distributions N(m_i, C_i) and shares l_i, of their mixture with mean m and
covariance C = sum l_i (C_i + (m_i - m)(m_i - m)^T), and of a generator N(m_G, C_G):

- FID-all is the distance to N(m, C) (part 1), and for every generator, exactly,

      FID-avg - FID-all = 2 [Tr (C C_G)^(1/2) - sum l_i Tr (C_i C_G)^(1/2)] >= 0.

- Part 2, as printed, has FID-avg = FID to the barycenter + a constant, the mean of the clients'
  distances from it. That holds where all covariances, the generator's too, commute, and of the
  barycenter itself; of others the right side is too large, so that FID-avg over it is below 1. The
  paper's equation is to be read so.

Covariances divide by n here, not by n - 1: only then is the mixture's that of all examples.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg

from motley_tff.metrics.generative import client_features, frechet

_MOST_STEPS, _TOLERANCE = 200, 1e-13


class ClientMoments(NamedTuple):
    """A client's share of all examples, and its normal distribution."""

    share: float
    gaussian: frechet.Gaussian


def population(features: np.ndarray) -> frechet.Gaussian:
    """Returns the normal distribution of examples [num_examples, num_features] by n."""
    moments = frechet.moments(features)
    return frechet.Gaussian(moments.mean, frechet.root(moments.scatter / moments.num))


def rows(
    clients: client_features.ClientFeatures,
    generated: Mapping[str, np.ndarray],
    features_are: str = "",
) -> list[dict[str, str | float]]:
    """Returns the parts of the theorem for generated sets, [num_examples, num_features] each, by
    name; `features_are` says what they are of.
    """
    fitted = [
        ClientMoments(float(share), population(clients.features[part]))
        for share, part in zip(clients.shares, clients.parts, strict=True)
    ]
    mixed, middle = mixture(fitted), barycenter(fitted)
    constant = average(fitted, middle)
    table: list[dict[str, str | float]] = []
    for name, features in generated.items():
        model = population(features)
        whole, mean = frechet.distance(mixed, model), average(fitted, model)
        to_middle = frechet.distance(middle, model)
        total = to_middle + constant
        table.append({
            "generated": name, "num_examples": len(features), "features": features_are,
            "num_features": features.shape[1], "fid_all": whole, "fid_avg": mean,
            "gap": mean - whole, "gap_of_traces": gap_of_traces(fitted, mixed, model),
            "fid_barycenter": to_middle, "constant": constant, "sum": total,
            # Where all are one point, and both 0, they commute.
            "fid_avg_over_sum": mean / total if total else 1.0,
        })  # fmt: skip
    return table


def mixture(clients: Sequence[ClientMoments]) -> frechet.Gaussian:
    """Returns the mean and covariance of all clients together."""
    mean = np.sum([share * client.mean for share, client in clients], axis=0)
    parts = [np.sqrt(share) * client.root for share, client in clients]
    between = [np.sqrt(share) * (client.mean - mean)[:, None] for share, client in clients]
    return frechet.Gaussian(mean, np.concatenate([*parts, *between], axis=1))


def average(clients: Sequence[ClientMoments], model: frechet.Gaussian) -> float:
    """Returns FID-avg of a generator."""
    return float(sum(share * frechet.distance(client, model) for share, client in clients))


def gap_of_traces(
    clients: Sequence[ClientMoments], mixed: frechet.Gaussian, model: frechet.Gaussian
) -> float:
    """Returns FID-avg - FID-all by the traces above."""
    apart = sum(share * _shared(client, model) for share, client in clients)
    return float(2.0 * (_shared(mixed, model) - apart))


def _shared(first: frechet.Gaussian, second: frechet.Gaussian) -> float:
    """Returns Tr (C_1 C_2)^(1/2)."""
    product = first.root.T @ second.root
    return float(scipy.linalg.svdvals(product).sum()) if product.size else 0.0


def barycenter(clients: Sequence[ClientMoments]) -> frechet.Gaussian:
    """Returns the normal distribution of least mean distance from the clients'.

    Its covariance S solves S = sum l_i (S^(1/2) C_i S^(1/2))^(1/2). The steps are those of Alvarez-
    Esteban et al. 2016 (https://arxiv.org/abs/1511.05355), S <- S^(-1/2) (that sum)^2 S^(-1/2),
    begun at the mean covariance, on whose range alone the inverse is taken.
    """
    mean = np.sum([share * client.mean for share, client in clients], axis=0)
    covariances = [client.root @ client.root.T for _, client in clients]
    shares = [share for share, _ in clients]
    now = np.sum([s * c for s, c in zip(shares, covariances, strict=True)], axis=0)
    for _ in range(_MOST_STEPS):
        half, inverse = _root_and_inverse(now)
        inner = np.sum(
            [
                s * _root_and_inverse(half @ c @ half)[0]
                for s, c in zip(shares, covariances, strict=True)
            ],
            axis=0,
        )
        after = inverse @ inner @ inner @ inverse
        moved, now = np.abs(after - now).max(), (after + after.T) / 2.0
        if moved <= _TOLERANCE * np.abs(now).max():
            break
    return frechet.Gaussian(mean, frechet.root(now))


def _root_and_inverse(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns S^(1/2) and its inverse, which is 0 where S is but for rounding."""
    values, vectors = scipy.linalg.eigh(matrix)
    keep = values > len(values) * np.finfo(float).eps * max(values[-1], 0.0)
    half, vectors = np.sqrt(values[keep]), vectors[:, keep]
    return (vectors * half) @ vectors.T, (vectors / half) @ vectors.T
