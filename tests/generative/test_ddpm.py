"""DDPM: noise as defined, sampling that finds what a perfect net knows, the server's mean."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import datasets
from datasets import generators
from datasets.models import image_unet
from datasets.options import DataOptions, GeneratorOptions
from motley_tff.algorithms import FedAvg, attacks
from motley_tff.backends import base, sequential
from motley_tff.core import random_streams
from motley_tff.generative import Ddpm, ddpm

_KEY = tf.constant([3, 5])


@pytest.fixture(scope="module")
def task():
    digits = datasets.create_task(DataOptions("mnist", use_synthetic_data=True))
    return generators.as_generative(
        digits, GeneratorOptions("ddpm", width=8, diffusion_steps=20, sampling_steps=4)
    )


def test_the_published_schedule():
    b = ddpm.betas()
    np.testing.assert_array_equal(b, np.linspace(1e-4, 0.02, 1000))
    # Section 4: almost nothing of the picture is left at T.
    assert np.cumprod(1 - b)[-1] == pytest.approx(4.0e-5, rel=0.02)


@pytest.mark.parametrize("steps", [ddpm.FEWEST_STEPS, 50, 100, 500, 2000])
def test_whatever_the_number_of_steps_the_last_is_noise(steps):
    b = ddpm.betas(steps)
    assert len(b) == steps and (np.diff(b) > 0).all() and b[0] > 0 and b[-1] <= 0.999
    assert np.sqrt(np.cumprod(1 - b)[-1]) < 0.01


def test_noise_is_mixed_as_defined():
    x = tf.random.stateless_uniform([500, 4, 4, 1], [0, 1], -1, 1)
    (mixed, t), noise = ddpm.noised(x, _KEY, 50)
    kept = np.cumprod(1 - ddpm.betas(50))[t.numpy()][:, None, None, None]
    np.testing.assert_allclose(mixed, np.sqrt(kept) * x + np.sqrt(1 - kept) * noise, atol=1e-5)
    assert set(t.numpy()) == set(range(50))
    assert (np.mean(noise), np.std(noise)) == (pytest.approx(0, abs=0.03), pytest.approx(1, 0.03))
    # Rows are drawn by themselves: those of a shorter batch are the same.
    (shorter, _), _ = ddpm.noised(x[:9], _KEY, 50)
    np.testing.assert_allclose(shorter, mixed[:9], atol=1e-6)


@pytest.mark.parametrize(
    ("sampling_steps", "tolerance"), [(1, 1e-4), (4, 1e-4), (50, 1e-4), (None, 0.05)]
)
def test_a_net_that_knows_the_picture_finds_it(sampling_steps, tolerance):
    picture = np.linspace(-0.9, 0.9, 16, dtype=np.float32).reshape(1, 4, 4, 1)
    kept = np.cumprod(1 - ddpm.betas(50)).astype(np.float32)

    def predict(x, t):
        a = kept[t.numpy()][:, None, None, None]
        return (x - np.sqrt(a) * picture) / np.sqrt(1 - a)

    found = ddpm.sample(predict, (3, 4, 4, 1), _KEY, sampling_steps, 50)
    np.testing.assert_allclose(found, np.repeat(picture, 3, 0), atol=tolerance)


def test_one_step_begins_at_the_last_time():
    times = []

    def predict(x, t):
        times.append(int(t[0]))
        return tf.zeros_like(x)

    ddpm.sample(predict, (1, 4, 4, 1), _KEY, 1, 50)
    assert times == [49]
    ddpm.sample(predict, (1, 4, 4, 1), _KEY, 3, 50)
    assert times == [49, 49, 24, 0]


def test_a_distribution_is_drawn():
    """Of a normal distribution the best prediction is known; both samplers give it back."""
    mean, deviation = 0.2, 0.3
    kept = np.cumprod(1 - ddpm.betas(1000)).astype(np.float32)

    def predict(x, t):
        a = kept[int(t[0])]
        total = a * deviation**2 + 1 - a
        return np.sqrt(1 - a) * (x - np.sqrt(a) * mean) / total

    # DDIM of few steps draws too narrowly.
    for steps, error in ((50, 0.05), (500, 0.02), (None, 0.02)):
        drawn = ddpm.sample(predict, (4000, 1, 1, 1), _KEY, steps).numpy()
        assert drawn.mean() == pytest.approx(mean, abs=0.02), steps
        assert drawn.std() == pytest.approx(deviation, abs=error), steps


def test_waves_tell_times_apart():
    waves = image_unet.waves(tf.range(1000), 32).numpy()
    assert waves.shape == (1000, 32)
    np.testing.assert_allclose(waves[0], [0] * 16 + [1] * 16, atol=1e-6)
    distances = np.linalg.norm(waves[:, None] - waves[None], axis=2) + 10 * np.eye(1000)
    assert distances.min() > 0.1


def _trained(task, params, rounds=3):
    algorithm = params.build(task, task.model.initial_weights(0))
    process = sequential.SequentialBackend(1).training(task, algorithm)
    plan = [
        base.Round(n, task.train.ids[:2], random_streams.key(0, "local_training", n))
        for n in range(1, rounds + 1)
    ]
    seen = []
    process.run(process.initialize(), plan, lambda result, state: seen.append((result, state)))
    return algorithm, [process.weights(state) for _, state in seen if state is not None], seen


def test_the_nets_are_fedavgs_and_their_mean_is_the_servers(task):
    how = {"train_batch_size": 8, "client_optimizer": Ddpm().client_optimizer}
    algorithm, states, _ = _trained(task, Ddpm(server_decay=0.75, train_steps=2, **how))
    plain, _, _ = _trained(task, FedAvg(**how), 1)
    first = task.model.initial_weights(0)
    mean = first[0]
    for state in states:
        mean = 0.75 * mean + 0.25 * state["net"][0]
    np.testing.assert_allclose(states[-1]["mean"][0], mean, atol=1e-6)
    np.testing.assert_array_equal(algorithm.global_model(states[-1])[0], states[-1]["mean"][0])
    assert not np.allclose(states[-1]["net"][0], states[-1]["mean"][0])
    # What is not sent is not counted.
    assert algorithm.bytes_per_client == plain.bytes_per_client


def test_without_decay_and_steps_it_is_fedavg(task):
    how = {"train_batch_size": 8, "client_optimizer": Ddpm().client_optimizer}
    _, states, _ = _trained(task, Ddpm(server_decay=0.0, **how), 1)
    _, expected, _ = _trained(task, FedAvg(**how), 1)
    for a, b, c in zip(states[0]["net"], states[0]["mean"], expected[0], strict=True):
        np.testing.assert_allclose(a, c, atol=1e-6)
        np.testing.assert_array_equal(a, b)


def test_who_attacks_sends_one_models_change(task):
    how = {"train_batch_size": 8, "client_optimizer": Ddpm().client_optimizer}
    weights = task.model.initial_weights(0)
    attack = attacks.parse("sign_flip:0.5:3")
    plain, found = (
        _trained(task, Attacked(kind(**how), attack), 1)[1][0] for kind in (FedAvg, Ddpm)
    )
    for a, b in zip(plain, found["net"], strict=True):
        np.testing.assert_allclose(b, a, atol=1e-6)
    assert not np.allclose(plain[-1], weights[-1])
    for mean, net, first in zip(found["mean"], found["net"], weights, strict=True):
        np.testing.assert_allclose(mean, 0.9 * first + 0.1 * net, atol=1e-6)


class Attacked(NamedTuple):
    params: FedAvg
    attack: attacks.Attack

    def build(self, task, weights):
        return attacks.attacked(self.params.build(task, weights), task, self.attack, 0)


def test_errors_fall_and_pictures_are_made(task):
    _, states, seen = _trained(task, Ddpm(train_steps=20, train_batch_size=8), 4)
    errors = [result.means["noise_error"] for result, _ in seen]
    assert errors[-1] < errors[0] and errors[0] < 1.3
    made = task.generate(states[-1]["mean"], 5, np.array([1, 2], np.int32))
    assert made.shape == (5, 28, 28, 1) and made.dtype == np.uint8
