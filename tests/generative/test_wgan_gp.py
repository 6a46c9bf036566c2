"""WGAN-GP's step, written out once more, and what the algorithm sends."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from datasets.kinds import generators
from datasets.options import GeneratorOptions
from motley_tff.algorithms import OptimizerConfig
from motley_tff.core import client_work, tensor_random
from motley_tff.generative import WganGp, wgan_gp
from tests import toy
from tests.errors import refused
from tests.generative import tiny

pytestmark = pytest.mark.usefixtures("eagerly")

_KEY = tf.constant([3, 5])
_SGD = OptimizerConfig("sgd", 0.05, {})


@pytest.fixture(scope="module")
def task():
    return tiny.task("wgan_gp")


def _start(algorithm, weights, examples=8):
    client = client_work.Client(
        _KEY, tf.constant(0), {"train": tf.constant(examples)}, {"train": examples}
    )
    return algorithm.work.init(weights, (), client)


def _batch(task, size=8, mask=None):
    examples = task.train.fetch(task.train.ids[0])["train"]
    raw = {field: tf.constant(values[:size]) for field, values in examples.items()}
    x, y = task.preprocess(raw, True, _KEY)
    mask = tf.ones([size]) if mask is None else tf.constant(mask, tf.float32)
    return client_work.Batch(x, y, mask, _KEY)


def _build(task, **params):
    params = {"client_optimizer": _SGD, "n_critic": 1, **params}
    weights = tuple(tf.constant(w) for w in task.model.initial_weights(0))
    return WganGp(**params).build(task, task.model.initial_weights(0)), weights


def test_pictures_are_in_range(task):
    x = _batch(task).x
    assert x.shape == (8, 4, 4, 1)
    assert (np.min(x), np.max(x)) == (-1.0, 1.0)
    colored = generators.pixels_in_range(tf.constant([[[[0.0, 0.5, 1.0]]]]))
    np.testing.assert_array_equal(colored, [[[[-1.0, 0.0, 1.0]]]])


def test_a_step_by_hand(task):
    """The critic's and the generator's loss as the paper has them, each by itself."""
    algorithm, weights = _build(task, penalty=7.0)
    batch, pair = _batch(task), wgan_gp.pair_of(task.model)
    after = algorithm.work.passes[0].step(_start(algorithm, weights), batch)
    generator, critic = pair.split(weights)
    keys = [tensor_random.fold(_KEY, tensor_random.LAYER, i) for i in range(3)]
    pictures = pair.make(generator, keys[0], 8)
    u = tensor_random.uniform(keys[1], [8])[:, None, None, None]
    mixed = u * batch.x + (1 - u) * pictures
    with tf.GradientTape() as tape:
        tape.watch(critic)
        penalties = []
        for i in range(8):
            point = mixed[i : i + 1]
            with tf.GradientTape() as inner:
                inner.watch(point)
                value = pair.scores(critic, point)[0]
            penalties.append((tf.norm(inner.gradient(value, point)) - 1) ** 2)
        gap = tf.reduce_mean(pair.scores(critic, batch.x) - pair.scores(critic, pictures))
        loss = 7.0 * tf.reduce_mean(penalties) - gap
    critics_loss = float(loss)
    expected = [w - 0.05 * g for w, g in zip(critic, tape.gradient(loss, critic), strict=True)]
    for a, b in zip(after.critic, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    with tf.GradientTape() as tape:
        tape.watch(generator)
        loss = -tf.reduce_mean(pair.scores(expected, pair.make(generator, keys[2], 8)))
    gradients = tape.gradient(loss, generator)
    for a, w, g in zip(after.generator, generator, gradients, strict=True):
        np.testing.assert_allclose(a, w - 0.05 * g, atol=1e-5)
    means = {name: float(after.sums.totals[name] / 8) for name in after.sums.totals}
    assert means == pytest.approx({"loss": critics_loss, "critic_gap": float(gap)}, rel=1e-4)
    output = algorithm.work.finish(after)  # The client has 8 pictures.
    assert float(output.weight) == 8
    for u, w, new in zip(output.update, weights, after.generator + after.critic, strict=True):
        np.testing.assert_array_equal(u, w - new)


def test_the_generator_moves_every_n_critic_th_step(task):
    algorithm, weights = _build(task, n_critic=3, train_steps=3)
    carry, moved = _start(algorithm, weights), []
    for _ in range(6):
        before = carry.generator
        carry = algorithm.work.passes[0].step(carry, _batch(task))
        moved.append(not np.allclose(before[0], carry.generator[0], atol=0))
    assert moved == [False, False, True] * 2


def test_a_round_without_a_step_of_the_generator_is_refused(task):
    with refused("train_steps", 4, "n_critic=5", "keep_optimizer_state"):
        WganGp(train_steps=4).check()
    WganGp(train_steps=5).check()
    WganGp(train_steps=4, keep_optimizer_state=True).check()
    sizes = sorted(len(task.train.fetch(name)["train"]["pixels"]) for name in task.train.ids)
    median = sizes[len(sizes) // 2]
    weights = task.model.initial_weights(0)
    exactly = WganGp(train_epochs=2, train_batch_size=median - 1, n_critic=4)
    exactly.build(task, weights)
    with refused("train_epochs", 2, "most clients have at most 4", "train_steps"):
        dataclasses.replace(exactly, n_critic=5).build(task, weights)
    dataclasses.replace(exactly, train_epochs=1, n_critic=5, train_steps=5).build(task, weights)


def test_padding_changes_nothing(task):
    algorithm, weights = _build(task)
    whole = _batch(task, 8, [1] * 5 + [0] * 3)
    step = algorithm.work.passes[0].step
    padded = step(_start(algorithm, weights), whole)
    short = step(_start(algorithm, weights), _batch(task, 5))
    for a, b in zip(padded.critic + padded.generator, short.critic + short.generator, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert float(padded.sums.weights["loss"]) == 5


def test_training_brings_real_and_made_pictures_apart(task):
    """The critic alone finds a gap; what is made is of the task's kind, and by key."""
    rate = OptimizerConfig("sgd", 0.3)
    params = WganGp(rate, train_steps=4, train_batch_size=8, keep_optimizer_state=True)
    params = dataclasses.replace(params, n_critic=100, penalty=0.1)
    run = toy.train(task, params.build(task, task.model.initial_weights(0)), [["s0"], ["s0"]])
    assert run.results[1].means["critic_gap"] > max(0.0, run.results[0].means["critic_gap"])
    weights = run.weights
    pictures = task.generate(weights, 7, np.array([1, 2], np.int32))
    assert pictures.shape == (7, 4, 4, 1) and pictures.dtype == np.uint8
    np.testing.assert_array_equal(pictures, task.generate(weights, 7, np.array([1, 2], np.int32)))
    assert not np.array_equal(pictures, task.generate(weights, 7, np.array([1, 3], np.int32)))


@pytest.mark.parametrize("is_silos", [True, False])
def test_one_client_alone(is_silos):
    every = tiny.task("wgan_gp", is_silos)
    chosen = every.train.ids[1]
    alone = tiny.task("wgan_gp", is_silos, only_client=chosen)
    assert alone.train.ids == (chosen,)
    assert alone.test.ids == ((chosen,) if is_silos else every.test.ids)  # A silo has its own.
    with refused("only_client", "nobody", "training clients of toy"):
        tiny.task("wgan_gp", is_silos, only_client="nobody")


@pytest.mark.parametrize(
    ("task", "place", "finding", "expected"),
    [
        (toy.classifier_silos((5,)), "dataset_name", "toy", "pictures"),
        (tiny.pictures(shape=(6, 6)), "toy", "6x6 pixels", "a multiple of 4"),
        (tiny.pictures(shape=(4, 8)), "toy", "8x4 pixels", "as wide as high"),
    ],
)
def test_tasks_of_no_such_pictures(task, place, finding, expected):
    with refused(place, finding, expected):
        generators.as_generative(task, GeneratorOptions("wgan_gp"))
