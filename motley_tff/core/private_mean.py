"""The noise of TFF's differentially private mean, worked out without TFF.

The mean is over n clients a round, each clipped to a norm C that follows their median. How many are
below C gets noise, too, with a standard deviation of s = n / 20. For both together to be worth a
noise multiplier of z, the sum of the clipped updates gets Gaussian noise of z' C with

    z' = (1 / z^2 - 1 / (2 s)^2)^(-1/2)

(Andrew et al. 2021, "Differentially private learning with adaptive clipping",
https://arxiv.org/abs/1905.03871, Theorem 1). There is none if z is 2 s = n / 10 or more.
"""

import math

from motley_tff.core.errors import UserError

NAME = "differentially_private"
# TFF's deviation of the count, a client.
_COUNT_NOISE = 0.05
# Of the noise that would be too much: an example of one that is not.
_ROOM = 0.99


def added_noise(noise_multiplier: float, clients_per_round: int) -> float:
    """Returns z', the noise of the sum of a round's updates as a multiple of the clipping norm.

    UserError, with a noise and a cohort that TFF takes, if it would refuse these.
    """
    if not noise_multiplier:
        return 0.0
    limit = _limit(clients_per_round)
    if noise_multiplier < limit:
        return (noise_multiplier**-2 - limit**-2) ** -0.5
    raise UserError(
        f"--aggregator={NAME} with --dp_noise_multiplier={noise_multiplier:g} and "
        f"{clients_per_round} clients a round: expected a noise below {limit:.3g}, which is what "
        "the noise of the clipping norm of so few clients is worth; give "
        f"--dp_noise_multiplier={_ROOM * limit:.3g}, or train with at least "
        f"{_smallest_cohort(noise_multiplier):,} clients a round"
    )


def _limit(clients_per_round: int) -> float:
    return 2 * (_COUNT_NOISE * clients_per_round)


def _smallest_cohort(noise_multiplier: float) -> int:
    least = math.floor(noise_multiplier / _limit(1))
    near = range(least, least + 3)
    return next((n for n in near if noise_multiplier < _limit(n)), least + 3)
