"""The kernel distance, a squared maximum mean discrepancy (KID on Inception features).

    KD(X, G) = E k(x, x') + E k(g, g') - 2 E k(x, g)        (section 3.2)

with the kernel of Binkowski et al. 2018 (https://arxiv.org/abs/1801.01401),

    k(a, b) = (<a, b> / num_features + 1)^3.

*Biased* takes the means over all pairs of a set, an example with itself included: the distance of
the two empirical distributions, >= 0. *Unbiased*, what is published as KID, leaves these out; it is
undefined for a set of one. No subsets are drawn, so there is nothing random about either.

Theorem 2 is about distributions, thus about the biased form, for which KID-avg - KID-all is the
weighted mean of the clients' own distances from all clients' data, exactly. The unbiased form has
another difference (it can be negative), which does not depend on the generated set either: only
the terms in k(g, g') and k(x, g) do, and with weights n_i / n these are equal in both.
"""

from typing import NamedTuple

import numpy as np

from motley_tff.metrics.generative import blocks

# Binomial coefficients of (t + 1)^3.
_TERMS = ((1, 3.0), (2, 3.0), (3, 1.0))
# Up to so many features, sums over pairs of examples are products of two sums over examples.
_FEW_FEATURES = 16


class Within(NamedTuple):
    """The kernel of `num` examples with themselves, summed: all pairs, and each with itself."""

    num: int
    total: float
    diagonal: float

    def mean(self, unbiased: bool) -> float:
        """Returns the mean over pairs; not-a-number if unbiased and of a single example."""
        if not unbiased:
            return self.total / self.num**2
        pairs = self.num * (self.num - 1)
        return (self.total - self.diagonal) / pairs if pairs else float("nan")


def within(features: np.ndarray) -> Within:
    """Returns the kernel sums of a set [num_examples, num_features] with itself."""
    diagonal = sum(
        float(_power(np.einsum("nd,nd->n", block, block), features.shape[1]).sum())
        for _, block in blocks.of_rows(features)
    )
    return Within(len(features), total(features, features), diagonal)


def total(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the sum of k(a, b) over the rows a of `first` and b of `second`."""
    if first.shape[1] <= _FEW_FEATURES:
        return _total_by_moments(first, second)
    return _total_by_pairs(first, second)


def distance(first: Within, second: Within, total_between: float, unbiased: bool) -> float:
    """Returns the kernel distance of two sets, of which `total_between` is the `total`."""
    between = total_between / (first.num * second.num)
    return first.mean(unbiased) + second.mean(unbiased) - 2.0 * between


def _power(products: np.ndarray, num_features: int) -> np.ndarray:
    scaled = products / num_features + 1.0
    return scaled * scaled * scaled


def _total_by_pairs(first: np.ndarray, second: np.ndarray) -> float:
    same = first is second
    result = 0.0
    for r, rows in blocks.of_rows(first):
        for c, columns in blocks.of_rows(second[r.start :] if same else second):
            part = float(_power(rows @ columns.T, first.shape[1]).sum())
            # A set with itself: the blocks to the right of the diagonal count twice.
            result += 2.0 * part if same and c.start else part
    return result


def _total_by_moments(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the `total`: <a, b>^p is the product of a's and b's p-fold tensor products."""
    first_sums, second_sums = _tensors(first), _tensors(second)
    scale = first.shape[1]
    terms = sum(
        count * float(np.vdot(a, b)) / scale**power
        for (power, count), a, b in zip(_TERMS, first_sums, second_sums, strict=True)
    )
    return len(first) * len(second) + terms


def _tensors(features: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the sums over examples of x, of x (x) x and of x (x) x (x) x."""
    width = features.shape[1]
    once, twice = np.zeros(width), np.zeros((width, width))
    thrice = np.zeros((width * width, width))
    for _, block in blocks.of_rows(features):
        squares = (block[:, :, None] * block[:, None, :]).reshape(len(block), -1)
        once += block.sum(axis=0)
        twice += block.T @ block
        thrice += squares.T @ block
    return once, twice, thrice
