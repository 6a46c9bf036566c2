"""Precision, recall, density and coverage: who lies among whose nearest neighbours.

The ball of an example reaches to its k-th nearest neighbour in its own set, itself not counted,
border included. With real examples x of a client (or of all) and generated ones g,

    precision  the share of g inside the ball of some x         (Kynkaanniemi et al. 2019,
    recall     the share of x inside the ball of some g          https://arxiv.org/abs/1904.06991)
    density    the mean over g of the number of x whose balls   (Naeem et al. 2020,
               hold it, divided by k                             https://arxiv.org/abs/2002.09797)
    coverage   the share of x whose balls hold some g

Recall-avg equals recall-all: a mean over real examples with balls of generated ones, which are no
client's (section 5.4). For the other three, a client's own examples make its balls in the avg form.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from motley_tff.metrics.generative import blocks

# What rounding may take from a squared distance, relative to the squared norms it is made of: an
# example on a border stays inside, a copy of an example with radius 0 too.
_ROUNDING = 1e-12


class Balls(NamedTuple):
    """Examples [num_examples, num_features] and squared radii of their balls [num_examples].

    The centre [num_features] is in their midst: distances from there lose fewer digits.
    """

    features: np.ndarray
    centre: np.ndarray
    squared_radii: np.ndarray


class NeighborScores(NamedTuple):
    """Of a generated set against a real one, or means of such over clients."""

    precision: float
    recall: float
    density: float
    coverage: float


def balls(
    features: np.ndarray, centre: np.ndarray, parts: Sequence[slice], num_neighbors: int
) -> Balls:
    """Returns examples with balls made of the k nearest examples of the same part only.

    The centre is the same for all sets that are compared; parts are rows in order, each more than
    `num_neighbors`.
    """
    radii = [_squared_radii(features[part], centre, num_neighbors) for part in parts]
    return Balls(features, centre, np.concatenate(radii))


def scores(
    real: Balls, parts: Sequence[slice], generated: Balls, num_neighbors: int
) -> NeighborScores:
    """Returns the mean over parts of each part's scores, weighted by its share of examples.

    Parts are rows of `real`, in order: a single one for the all form, one a client for avg.
    """
    num_real, num_generated = len(real.features), len(generated.features)
    is_covered, is_recalled = np.zeros(num_real, bool), np.zeros(num_real, bool)
    precision = density = 0.0
    for c, columns in blocks.of_rows(generated.features, generated.centre):
        for part in parts:
            num_balls = np.zeros(len(columns), np.int64)
            for r, rows in blocks.of_rows(real.features[part], real.centre):
                r = slice(part.start + r.start, part.start + r.stop)
                squared = _squared_distances(rows, columns)
                is_inside = squared <= real.squared_radii[r, None]
                num_balls += is_inside.sum(axis=0)
                is_covered[r] |= is_inside.any(axis=1)
                is_recalled[r] |= (squared <= generated.squared_radii[None, c]).any(axis=1)
            share = (part.stop - part.start) / num_real
            precision += share * int((num_balls > 0).sum())
            density += share * int(num_balls.sum())
    return NeighborScores(
        precision=precision / num_generated,
        recall=float(is_recalled.mean()),
        density=density / (num_neighbors * num_generated),
        coverage=float(is_covered.mean()),
    )


def _squared_radii(features: np.ndarray, centre: np.ndarray, num_neighbors: int) -> np.ndarray:
    """Returns each example's squared distance to its k-th nearest neighbour, float64 [num]."""
    from sklearn.neighbors import NearestNeighbors  # Takes 0.9 s.

    model = NearestNeighbors(n_neighbors=num_neighbors, algorithm="brute")
    distances, _ = model.fit(features - centre).kneighbors()
    return distances[:, -1] ** 2


def _squared_distances(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Returns [rows, columns], each less what rounding may have added to it."""
    norms = (rows**2).sum(axis=1)[:, None] + (columns**2).sum(axis=1)[None, :]
    return np.maximum((1.0 - _ROUNDING) * norms - 2.0 * (rows @ columns.T), 0.0)
