"""The Frechet distance of two sets' means and covariances (FID on Inception features).

    FD(X, G) = |m_X - m_G|^2 + Tr(C_X + C_G - 2 (C_X C_G)^(1/2))        (section 3.2)

With any roots, C = R R^T, the last trace is the sum of the singular values of R_X^T R_G: nothing
is ever complex, no eigenvalue under it negative, and a covariance of low rank (fewer examples than
features) costs less instead of more. Covariances divide by n - 1, as published FIDs do.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from motley_tff.metrics.generative import blocks


class Moments(NamedTuple):
    """All that Frechet distances of `num` examples depend on, float64.

    The mean [num_features], and the scatter [num_features, num_features]: the sum over examples of
    outer products of what differs from the mean.
    """

    num: int
    mean: np.ndarray
    scatter: np.ndarray


class Gaussian(NamedTuple):
    """A normal distribution: mean [num_features], root R [num_features, rank], covariance R R^T."""

    mean: np.ndarray
    root: np.ndarray


def moments(features: np.ndarray) -> Moments:
    """Returns the moments of `features` [num_examples, num_features]."""
    total = sum(block.sum(axis=0) for _, block in blocks.of_rows(features))
    mean = np.asarray(total) / len(features)
    scatter = np.zeros((mean.size, mean.size))
    for _, block in blocks.of_rows(features, mean):
        scatter += block.T @ block
    return Moments(len(features), mean, scatter)


def merged(first: Moments, second: Moments) -> Moments:
    """Returns the moments of two sets together, exactly: Theorem 1's mixture of any two clients."""
    num = first.num + second.num
    step = second.mean - first.mean
    mean = first.mean + step * (second.num / num)
    between = np.outer(step, step) * (first.num * second.num / num)
    return Moments(num, mean, first.scatter + second.scatter + between)


def fit(features: np.ndarray, known: Moments) -> Gaussian:
    """Returns the normal distribution with the moments `known`, which are those of `features`, two
    or more examples; else ValueError.

    Up to as many examples as features, the centred examples are a root themselves.
    """
    if known.num < 2:
        raise ValueError("Expected two examples or more for a covariance, found one.")
    if known.num > known.mean.size:
        return Gaussian(known.mean, root(known.scatter / (known.num - 1)))
    return Gaussian(known.mean, (features - known.mean).T / np.sqrt(known.num - 1))


def root(covariance: np.ndarray) -> np.ndarray:
    """Returns R [num_features, rank] with R R^T the covariance, without what is rounding of 0."""
    values, vectors = scipy.linalg.eigh(covariance)
    rounding = len(values) * np.finfo(values.dtype).eps * max(values[-1], 0.0)
    keep = values > rounding
    return vectors[:, keep] * np.sqrt(values[keep])


def distance(first: Gaussian, second: Gaussian) -> float:
    """Returns the squared Frechet (2-Wasserstein) distance of two normal distributions, >= 0."""
    apart = np.sum((first.mean - second.mean) ** 2)
    product = first.root.T @ second.root
    shared = scipy.linalg.svdvals(product).sum() if product.size else 0.0
    return max(0.0, float(apart + np.sum(first.root**2) + np.sum(second.root**2) - 2 * shared))
