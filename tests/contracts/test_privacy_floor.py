"""A floor under epsilon: a client who wants to be seen, in a NumPy copy of TFF's private mean."""

import numpy as np
import pytest
from scipy import stats

from motley_tff.backends.tff import aggregators
from motley_tff.backends.tff.runtime import tff_runtime
from motley_tff.core import private_mean
from motley_tff.core.lazy import tff
from motley_tff.core.privacy import Mechanism, default_delta

pytestmark = pytest.mark.slow
_ASKED, _ROUNDS, _RUNS = 60, 2, 200


def _next(clip, updates, rng, sum_noise, count_noise, asked=_ASKED):
    """Returns (the mean, the next clipping norm) of updates [clients, dim]."""
    norms = np.linalg.norm(updates, axis=1)
    clipped = updates * np.minimum(1, clip / np.maximum(norms, 1e-30))[:, None]
    total = clipped.sum(axis=0) + sum_noise * clip * rng.standard_normal(updates.shape[1])
    count = np.sum((norms <= clip) - 0.5) + count_noise * rng.standard_normal()
    share = np.clip(count / asked + 0.5, 0, 1)
    return total / asked, clip * np.exp(-0.2 * (share - 0.5))


def _noises(noise):
    return (private_mean.added_noise(noise, _ASKED), _ASKED / 20) if noise else (0.0, 0.0)


def _rounds_of_tff(noise, rounds):
    """Yields (clip before, mean, clip after) of each round's updates."""
    built = aggregators.build("differentially_private", noise, _ASKED)
    process = built.process(tff.to_type((tff.TensorType(np.float32, [rounds[0].shape[1]]),)))
    state, clip = process.initialize(), 0.1
    for updates in rounds:
        output = process.next(state, [(u,) for u in updates], [1.0] * len(updates))
        after = float(output.measurements["dp_query_metrics"]["clip"])
        yield clip, np.asarray(output.result[0]), after
        state, clip = output.state, after


def test_the_copy_is_tffs():
    """In 20 runs of two rounds, with clients who do not answer: ten without noise, number by
    number; ten with, whose noise is normal of the deviation that the copy has.
    """
    rng = np.random.default_rng(0)
    sums, counts = [], []
    with tff_runtime():
        for run in range(20):
            noise = 0.0 if run < 10 else 4.0
            sum_noise, count_noise = _noises(noise)
            answers = rng.integers(_ASKED // 2, _ASKED + 1, 2)
            rounds = [rng.normal(0, 0.1 / 200**0.5, (n, 200)).astype(np.float32) for n in answers]
            for updates, (clip, mean, after) in zip(
                rounds, _rounds_of_tff(noise, rounds), strict=True
            ):
                expected, next_clip = _next(clip, updates.astype(float), rng, 0.0, 0.0)
                if not noise:
                    np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-8)
                    assert after == pytest.approx(next_clip, rel=1e-6)
                    continue
                sums.append((mean - expected) * _ASKED / (sum_noise * clip))
                counts.append(-5 * np.log(after / next_clip) * _ASKED / count_noise)
    # TFF draws with no seed: one of a million runs of this test fails by chance.
    assert stats.kstest(np.concatenate(sums), "norm").pvalue > 1e-6
    assert stats.kstest(counts, "norm").pvalue > 1e-6


def _guesses(noise, is_there, rng):
    """Returns how often a run is taken for one with the canary.

    It sends as much as is not clipped, against all others, where a client who is clipped agrees
    with them; both parts tell, by the ratio of their probabilities.
    """
    sum_noise, count_noise = _noises(noise)
    guesses = 0
    for _ in range(_RUNS):
        clip, ratio = 0.1, 0.0
        for _ in range(_ROUNDS):
            # Half of the others are clipped, so that the norm stays where both can move it.
            others = np.resize([-0.5 * clip, -1e3], _ASKED - 1)
            canary = 0.999 * clip if is_there else -1e3
            updates = np.append(canary, others)[:, None]
            mean, after = _next(clip, updates, rng, sum_noise, count_noise)
            total = mean[0] * _ASKED / clip - np.maximum(others / clip, -1).sum()
            count = -5 * np.log(after / clip) * _ASKED - np.sum((others >= -clip) - 0.5)
            ratio += 2 * total / (sum_noise or 1) ** 2 + count / (count_noise or 1) ** 2
            clip = after
        guesses += ratio > 0
    return guesses


def _floor(noise, delta):
    """Returns a lower bound of epsilon, with a confidence of 95% (Clopper and Pearson)."""
    rng = np.random.default_rng(1)
    right, wrong = (_guesses(noise, canary, rng) for canary in (True, False))
    low = stats.beta.ppf(0.025, right, _RUNS - right + 1)
    high = stats.beta.ppf(0.975, wrong + 1, _RUNS - wrong)
    return np.log(max(low - delta, 1e-30) / high)


@pytest.mark.parametrize(("noise", "most", "least_floor"), [(5.94, 1, -1), (2.4, 3, 0.3)])
def test_a_membership_test_stays_below_epsilon_and_sees_noise_that_is_missing(
    noise, most, least_floor
):
    """Of 400 runs 3.97 is the largest floor."""
    delta = default_delta(_ASKED)
    epsilon = Mechanism(noise, _ASKED, _ASKED, delta).epsilon(_ROUNDS)
    assert most / 2 < epsilon <= most
    assert least_floor < _floor(noise, delta) < epsilon
    assert epsilon < 3.9 < _floor(0.0, delta)
