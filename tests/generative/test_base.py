"""What both generators share: optimizers that silos keep, and what is sent."""

import dataclasses
import itertools

import numpy as np
import pytest

from motley_tff import generative
from motley_tff.algorithms import FineTuning, OptimizerConfig
from motley_tff.core import clients as clients_lib
from motley_tff.generative import Ddpm, WganGp
from tests import toy
from tests.errors import refused
from tests.generative import tiny

pytestmark = pytest.mark.usefixtures("eagerly")

_MOMENTUM = OptimizerConfig("momentum", 0.1, {"momentum": 0.5})


@pytest.mark.parametrize(("keeps", "second"), [(True, 0.1 + 0.5 * 0.1 + 0.09), (False, 0.1 + 0.09)])
def test_a_silos_optimizer_goes_on_by_hand(keeps, second):
    """From 0 towards 1 at rate .1: a step of .1, then one of .09 and half of the one before."""
    task = toy.scalar_task({"a": [1.0]}, setting="cross_silo")
    params = Ddpm(_MOMENTUM, server_decay=0.0, keep_optimizer_state=keeps)
    run = toy.train(task, params.build(task, task.model.initial_weights(0)), rounds=2)
    means = [run.process.weights(state)["mean"][0].item() for state in run.states]
    assert means == pytest.approx([0.1, second])


def test_both_nets_optimizers_go_on():
    task = tiny.task("wgan_gp")
    weights = []
    for keeps in (True, False):
        params = WganGp(_MOMENTUM, train_steps=1, n_critic=1, keep_optimizer_state=keeps)
        run = toy.train(task, params.build(task, task.model.initial_weights(0)), [["s0"], ["s0"]])
        weights.append([run.process.weights(state) for state in run.states])
    for first, other in zip(weights[0][0], weights[1][0], strict=True):
        np.testing.assert_array_equal(first, other)
    moved = [not np.array_equal(a, b) for a, b in zip(weights[0][1], weights[1][1], strict=True)]
    assert moved[0] and moved[-2]  # A kernel of the generator, one of the critic.


def test_silos_count_steps_on_each_its_own():
    """One batch a round, the generator's step after three: of the silo that misses the first round
    a round later.
    """
    task = tiny.task("wgan_gp")
    first, second, _ = task.train.ids
    params = WganGp(
        _MOMENTUM, n_critic=3, keep_optimizer_state=True, train_steps=1, train_batch_size=2
    )
    cohorts = [(second,), *[(first, second)] * 3]
    initial = task.model.initial_weights(0)
    run = toy.train(task, params.build(task, initial), cohorts)
    kernels = [initial[0], *(run.process.weights(state)[0] for state in run.states)]
    moved = [not np.array_equal(a, b) for a, b in itertools.pairwise(kernels)]
    assert moved == [False, False, True, True]
    # Of a batch a round, by epochs.
    WganGp(keep_optimizer_state=True, train_batch_size=10**6).build(task, initial)


def _task(kind, is_silos=True, is_central=False):
    """Returns a task for a generator; DDPM takes any."""
    if kind == "wgan_gp":
        return tiny.task(kind, is_silos, is_central=is_central)
    numbers = {name: [1.0] for name in "abc"[: 1 if is_central else 3]}
    return toy.scalar_task(numbers, setting="cross_silo" if is_silos else "cross_device")


@pytest.mark.parametrize("kind", generative.KINDS)
def test_devices_keep_nothing(kind):
    task = _task(kind, is_silos=False)
    params = generative.KINDS[kind](keep_optimizer_state=True, train_steps=5)
    with refused("keep_optimizer_state", True, "silos", "setting=cross_silo"):
        params.build(task, task.model.initial_weights(0))


@pytest.mark.parametrize("kind", generative.KINDS)
def test_in_one_place_nothing_is_sent(kind):
    for is_central in (True, False):
        task = _task(kind, is_central=is_central)
        weights = task.model.initial_weights(0)
        built = generative.KINDS[kind](train_steps=5).build(task, weights)
        size = 0 if is_central else sum(w.nbytes for w in weights)
        assert built.bytes_per_client == (size, size)


@pytest.mark.parametrize("kind", generative.KINDS)
def test_noise_differs_in_each_batch_of_an_evaluation(kind, monkeypatch):
    """The same picture twice as often is not the same error: it meets other noise."""
    monkeypatch.setattr("motley_tff.algorithms.scoring.EVALUATION_BATCH_SIZE", 2)
    task = tiny.task(kind, is_silos=False)
    pixels = task.test.fetch(task.test.ids[0])["evaluation"]["pixels"][:1]
    data = {
        f"c{n}": {part: {"pixels": np.repeat(pixels, n, axis=0)} for part in task.test.spec}
        for n in (2, 4)
    }
    task = dataclasses.replace(task, test=clients_lib.InMemoryClients(data))
    work = FineTuning(max_epochs=0).build(task).work(("evaluation",), "personalization")
    # At first a U-Net says 0; a critic and a generator do not.
    weights = [w + np.float32(0.1) for w in task.model.initial_weights(0)]
    metrics = toy.evaluate(task, work, tuple(weights))
    few, many = (client["curves"]["evaluation"][task.metric.name][0] for client in metrics.values())
    assert abs(few - many) > 1e-6
