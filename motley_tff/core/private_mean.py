"""The noise of TFF's differentially private mean, worked out without TFF.

The mean is over n clients a round, each clipped to a norm C that follows their median. How many are
below C gets noise, too, with a standard deviation of s = n / 20. For both together to be worth a
noise multiplier of z, the sum of the clipped updates gets Gaussian noise of z' C with

    z' = (1 / z^2 - 1 / (2 s)^2)^(-1/2)

(Andrew et al. 2021, "Differentially private learning with adaptive clipping",
https://arxiv.org/abs/1905.03871, Theorem 1). There is none if z is 2 s = n / 10 or more, and close
below that z' grows without bound, up to what the rounding of floats leaves of it. So z may be at
most 0.99 of n / 10, where z' is 7 z.
"""

import math
from fractions import Fraction

from motley_tff.core import errors
from motley_tff.core.errors import UserError

NAME = "differentially_private"
# TFF's deviation of the count, a client.
_COUNT_NOISE = 0.05
# The most noise that a client of a round allows, as a fraction: floats would decide at the border.
_MOST = Fraction(99, 1000)


def most_noise(clients_per_round: int) -> float:
    """Returns the largest noise multiplier that so many clients allow."""
    return float(_MOST * clients_per_round)


def added_noise(noise_multiplier: float, clients_per_round: int) -> float:
    """Returns z', the noise of the sum of a round's updates as a multiple of the clipping norm.

    UserError, with a noise and a cohort that fit, if this noise is too much for so few clients.
    """
    if not noise_multiplier:
        return 0.0
    least = math.ceil(Fraction(str(noise_multiplier)) / _MOST)
    if clients_per_round >= least:
        of_count = 2 * (_COUNT_NOISE * clients_per_round)
        return (noise_multiplier**-2 - of_count**-2) ** -0.5
    # Rounded to three digits it might be above the border.
    most = f"{most_noise(clients_per_round):.12g}"
    name = errors.name("dp_noise_multiplier")
    expected = f"at most {most} with {clients_per_round} clients a round, as their norm has noise"
    advice = f"give {name}={most}, or train with at least {least:,} clients a round"
    raise UserError(name, noise_multiplier, expected, advice)
