"""Several runs in one call: the numbers of separate runs, to 1e-6."""

import numpy as np
import pytest

from motley_tff.algorithms import FedProx, FineTuning, optimizers
from motley_tff.backends import base, run_groups, sequential, vectorized
from motley_tff.core import random_streams
from motley_tff.experiment import grid
from tests import toy

GRID = [
    {"client": client, "server": server, "mu": mu}
    for client, server, mu in ((0.1, 1.0, 0.0), (0.3, 0.5, 0.2), (0.02, 2.0, 1.0))
]


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(3)
    numbers = {name: rng.normal(size=n) for name, n in (("a", 11), ("b", 3), ("c", 24))}
    return toy.scalar_task(numbers, initial=0.3, drop_remainder=True, setting="cross_silo")


def _builder(task):
    initial = task.model.initial_weights(0)

    def build(h):
        params = FedProx(
            optimizers.OptimizerConfig("sgd", h["client"]),
            optimizers.OptimizerConfig("fedavgm", h["server"], {"momentum": 0.9}),
            train_batch_size=4,
            proximal_strength=h["mu"],
        )
        return params.build(task, initial)

    return build


def _plan(task, seed, rounds=4):
    return [
        base.Round(r, task.train.ids, random_streams.key(seed, "local_training", r))
        for r in range(1, rounds + 1)
    ]


def _train(runs, task, *seeds):
    means = []
    state = runs.run(
        runs.initialize(),
        list(zip(*(_plan(task, seed) for seed in seeds or (0,)), strict=True)),
        lambda one, all_, seconds, s: means.append(all_),
    )
    return np.asarray(state[0][0]).ravel(), means


def _train_alone(process, task):
    results = []
    state = process.run(
        process.initialize(), _plan(task, 0), lambda result, _: results.append(result.means)
    )
    return process.weights(state)[0][0, 0], results


@pytest.fixture(scope="module")
def together(task):
    runs = vectorized.VectorizedRuns([task], vectorized.Runs(_builder(task), GRID))
    return runs, *_train(runs, task)


def test_equal_to_separate_runs(task, together):
    _, weights, means = together
    for i, hparams in enumerate(GRID):
        alone = sequential.SequentialBackend().training(task, _builder(task)(hparams))
        weight, results = _train_alone(alone, task)
        np.testing.assert_allclose(weights[i], weight, rtol=1e-6)
        for mine, theirs in zip(means, results, strict=True):
            assert mine[i] == pytest.approx(theirs, rel=1e-5)
    assert len(set(weights)) == len(GRID)


def _other_split(task_numbers, seed):
    """The same silos with their numbers dealt out anew, as another seed does."""
    rng = np.random.default_rng(seed)
    mine = {name: rng.permutation(numbers) for name, numbers in task_numbers.items()}
    return toy.scalar_task(mine, initial=0.3, drop_remainder=True, setting="cross_silo")


@pytest.mark.slow
def test_seeds_in_the_same_call():
    rng = np.random.default_rng(3)
    numbers = {name: rng.normal(size=n) for name, n in (("a", 11), ("b", 3), ("c", 24))}
    tasks = [_other_split(numbers, seed) for seed in (0, 1)]
    settings = vectorized.Runs(_builder(tasks[0]), GRID)
    found, means = _train(vectorized.VectorizedRuns(tasks, settings), tasks[0], 0, 1)
    for seed, task in enumerate(tasks):
        alone = vectorized.VectorizedRuns([task], settings)
        expected, expected_means = _train(alone, task, seed)
        np.testing.assert_allclose(found[seed::2], expected, rtol=1e-6)
        for mine, theirs in zip(means, expected_means, strict=True):
            for a, b in zip(mine[seed::2], theirs, strict=True):
                assert a == pytest.approx(b, rel=1e-6)
    assert len(set(found)) == 2 * len(GRID)


def test_seeds_with_other_silos_are_refused(task):
    other = toy.scalar_task({"z": [1.0, 2.0, 3.0]}, setting="cross_silo")
    with pytest.raises(ValueError, match="same clients"):
        vectorized.VectorizedRuns([task, other], vectorized.Runs(_builder(task), GRID))


def test_a_run_that_diverges_leaves_the_others_alone(task, together):
    grid = [GRID[0], {**GRID[1], "client": 1e30}, GRID[2]]
    runs = vectorized.VectorizedRuns([task], vectorized.Runs(_builder(task), grid))
    weights, means = _train(runs, task)
    np.testing.assert_array_equal(weights[[0, 2]], together[1][[0, 2]])
    assert not np.isfinite(means[-1][1]["loss"])


@pytest.mark.slow
def test_evaluation_of_several_models(task):
    sgd = optimizers.OptimizerConfig("sgd", 1.0)
    work = FineTuning(sgd, (0.1, 0.5), 3, 4).build(task).work(("valid", "test"), "train")
    key = random_streams.key(0, "personalization", 1)
    backend = vectorized.VectorizedBackend()
    models = (np.array([[[0.0]], [[2.0]]], np.float32),)
    together = dict(backend.map_runs(task, work, models, (task.valid,), task.valid.ids, key[None]))
    for i in range(2):
        alone = sequential.SequentialBackend().map_clients(
            base.ClientCall(task, work, (models[0][i],), task.valid, task.valid.ids, key)
        )
        for client_id, metrics in alone:
            np.testing.assert_allclose(
                together[client_id]["curves"]["test"]["loss"][i],
                metrics["curves"]["test"]["loss"],
                rtol=1e-5,
            )


@pytest.mark.slow
@pytest.mark.parametrize(("every", "expected"), [(2, [2, 4, 5]), (None, [5])])
def test_an_untrained_model_of_a_grid_is_not_scored(task, every, expected):
    setting = {"client": 0.1, "server": 1.0, "mu": 0.0}
    sgd = optimizers.OptimizerConfig("sgd", 1.0)
    tuned = FineTuning(sgd, (0.1,), 1, 4).build(task)
    build = _builder(task)
    found = grid.run(
        {7: task}, run_groups.RunGroup({}, (setting,), (7,)),
        lambda task, weights, hparams: build(hparams), [task.model.initial_weights(7)], tuned, 5,
        every,
    )  # fmt: skip
    assert [one.round_number for one in found] == expected
