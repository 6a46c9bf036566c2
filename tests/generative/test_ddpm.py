"""DDPM: noise as defined, sampling that finds what a perfect net knows, the server's mean."""

import numpy as np
import pytest
import tensorflow as tf

from datasets.models import image_unet
from motley_tff.algorithms import OptimizerConfig, attacks
from motley_tff.generative import Ddpm, ddpm
from tests import toy
from tests.generative import tiny

pytestmark = pytest.mark.usefixtures("eagerly")

_KEY = tf.constant([3, 5])
_HALF = OptimizerConfig("sgd", 0.5)
_ZERO = (np.zeros([1, 1], np.float32),)


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

    pictures = ddpm.sample(predict, (3, 4, 4, 1), _KEY, sampling_steps, 50)
    np.testing.assert_allclose(pictures, np.repeat(picture, 3, 0), atol=tolerance)


def test_a_distribution_is_drawn():
    """Of a normal distribution the best prediction is known; both samplers give it back."""
    mean, deviation = 0.2, 0.3
    kept = np.cumprod(1 - ddpm.betas(200)).astype(np.float32)

    def predict(x, t):
        a = kept[int(t[0])]
        total = a * deviation**2 + 1 - a
        return np.sqrt(1 - a) * (x - np.sqrt(a) * mean) / total

    # DDIM of few steps draws too narrowly.
    for steps, error in ((40, 0.05), (200, 0.02), (None, 0.02)):
        drawn = ddpm.sample(predict, (4000, 1, 1, 1), _KEY, steps, 200).numpy()
        assert drawn.mean() == pytest.approx(mean, abs=0.02), steps
        assert drawn.std() == pytest.approx(deviation, abs=error), steps


def test_waves_tell_times_apart():
    waves = image_unet.waves(tf.range(1000), 32).numpy()
    assert waves.shape == (1000, 32)
    np.testing.assert_allclose(waves[0], [0] * 16 + [1] * 16, atol=1e-6)
    distances = np.linalg.norm(waves[:, None] - waves[None], axis=2) + 10 * np.eye(1000)
    assert distances.min() > 0.1


def _trained(algorithm, task, rounds):
    """Returns each round's weights of a model of one number, and of their mean."""
    run = toy.train(task, algorithm, rounds)
    weights = [run.process.weights(state) for state in run.states]
    return [[w[name][0].item() for w in weights] for name in ("net", "mean")]


@pytest.mark.parametrize("decay", [0.75, 0.0])
def test_the_net_is_fedavgs_and_its_mean_is_the_servers(decay):
    """Two full steps a round at rate 1/2 leave a quarter of the way to 1 and to 4, whose mean by
    their examples is 3.
    """
    task = toy.scalar_task({"a": [1.0], "b": [3.0, 5.0]})
    algorithm = Ddpm(_HALF, server_decay=decay, train_steps=2).build(task, _ZERO)
    nets, means = _trained(algorithm, task, 2)
    assert nets == pytest.approx([3 * (1 - 1 / 4), 3 * (1 - 1 / 16)])
    first = (1 - decay) * nets[0]
    assert means == pytest.approx([first, decay * first + (1 - decay) * nets[1]])
    assert algorithm.global_model({"net": "n", "mean": "m"}) == "m"


def test_who_attacks_sends_one_models_change():
    """Of two clients at 2 and 4, which would move to 1 and 2, one sends -3 times its change."""
    task = toy.scalar_task({"a": [2.0], "b": [4.0]})
    attack = attacks.parse("sign_flip:0.5:3")
    built = Ddpm(_HALF, server_decay=0.9).build(task, _ZERO)
    (net,), (mean,) = _trained(attacks.attacked(built, task, attack, 0), task, 1)
    (attacker,) = attacks.attackers(task, attack, 0)
    assert net == pytest.approx({"a": (-3 + 2) / 2, "b": (1 - 6) / 2}[attacker])
    assert mean == pytest.approx(0.1 * net)


def test_errors_fall_and_pictures_are_made():
    task = tiny.task("ddpm")
    params = Ddpm(OptimizerConfig("sgd", 0.1), train_batch_size=4, train_steps=2)
    run = toy.train(task, params.build(task, task.model.initial_weights(0)), [["s0"], ["s0"]])
    first, last = (result.means["noise_error"] for result in run.results)
    assert last < first < 1.3
    pictures = task.generate(run.weights["mean"], 5, np.array([1, 2], np.int32))
    assert pictures.shape == (5, 4, 4, 1) and pictures.dtype == np.uint8
    colored = tiny.task("ddpm", shape=(8, 8, 3), sampling_steps=1)
    pictures = colored.generate(colored.model.initial_weights(0), 2, np.array([1, 2], np.int32))
    assert pictures.shape == (2, 8, 8, 3)


@pytest.mark.parametrize(
    ("sampling_steps", "times"), [(0, range(19, -1, -1)), (1, [19]), (3, [19, 10, 0])]
)
def test_at_which_times_the_net_is_asked(monkeypatch, sampling_steps, times):
    """At 0 by all of DDPM's times, of which there are 20; a single step is from noise alone."""
    asked, sample = [], ddpm.sample

    def counted(x, t):
        asked.append(int(t[0]))
        return tf.zeros_like(x)

    monkeypatch.setattr(ddpm, "sample", lambda predict, *rest: sample(counted, *rest))
    task = tiny.task("ddpm", sampling_steps=sampling_steps)
    task.generate(task.model.initial_weights(0), 2, np.array([1, 2], np.int32))
    assert asked == list(times)
