"""Means of updates that a few clients cannot move far, coordinate by coordinate (Yin et al. 2018,
https://arxiv.org/abs/1803.01498, Definitions 1 and 2). Every client counts once, whatever it has.
"""

from __future__ import annotations

import math

from motley_tff.core.lazy import tf

NAMES = ("median", "trimmed_mean")
# 0.29 * 100 is 28.999... in floats.
_ROUNDING = 1e-9


def combine(name: str, trim_share: float, values: tf.Tensor) -> tf.Tensor:
    """Returns the median of [clients, ...], or the mean without the smallest and the largest ones.

    Args:
      name: One of `NAMES`; of an even number of clients the median is the mean of the middle two.
      trim_share: Of the trimmed mean: the share of clients left out at either end, rounded down,
        at least 0 and below 0.5.
      values: At least one client's.
    """
    ordered, count = tf.sort(values, axis=0), tf.shape(values)[0]
    if name == "median":
        return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0
    # Rounded up, a share just below 0.5 would leave nobody.
    wide = tf.cast(count, tf.float64) * trim_share + _ROUNDING
    trimmed = tf.minimum(tf.cast(tf.math.floor(wide), count.dtype), (count - 1) // 2)
    return tf.reduce_mean(ordered[trimmed : count - trimmed], axis=0)


def trims_nobody(trim_share: float, count: int) -> bool:
    """Returns whether of so many clients the trimmed mean leaves none out at either end."""
    return math.floor(count * trim_share + _ROUNDING) == 0 or count < 3
