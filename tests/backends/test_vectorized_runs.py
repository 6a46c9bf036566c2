"""Several runs in one call: the numbers of separate runs, to 1e-6."""

import itertools

import numpy as np
import pytest

from motley_tff.algorithms import FedProx, FineTuning, optimizers
from motley_tff.backends import base, run_groups, sequential, vectorized
from motley_tff.core import random_streams
from motley_tff.evaluation import batches, parts
from motley_tff.experiment import grid, schedule
from motley_tff.experiment.config import LoopConfig
from tests import toy

# The second one diverges.
GRID = [
    {"client": client, "server": server, "mu": mu}
    for client, server, mu in ((0.1, 1.0, 0.0), (1e30, 0.5, 0.2), (0.02, 2.0, 1.0))
]


def _task(seed):
    """Returns silos whose numbers are dealt out as under a seed."""
    rng = np.random.default_rng(seed)
    numbers = {name: rng.normal(size=n) for name, n in (("a", 11), ("b", 3), ("c", 24))}
    return toy.scalar_task(numbers, initial=0.3, drop_remainder=True, setting="cross_silo")


@pytest.fixture(scope="module")
def task():
    return _task(0)


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


def _plan(task, seed, rounds=2):
    return [
        base.Round(n, task.train.ids, random_streams.key(seed, "local_training", n))
        for n in range(1, rounds + 1)
    ]


def _alone(task, setting, seed):
    """Returns (the weight, each round's means) of a run by itself."""
    process = sequential.SequentialBackend().training(task, _builder(task)(setting))
    run = toy.run(process, _plan(task, seed))
    return run.weights[0].item(), [result.means for result in run.results]


def test_equal_to_separate_runs_and_a_run_that_diverges_leaves_the_others_alone():
    tasks = [_task(seed) for seed in (0, 1)]
    build = _builder(tasks[0])
    runs = vectorized.VectorizedRuns(tasks, build, GRID)
    keys = [[round_.key for round_ in _plan(task, seed)] for seed, task in enumerate(tasks)]
    state, means, diverged = runs.next(
        runs.initialize([build(setting) for setting in GRID for _ in tasks]),
        tasks[0].train.ids,
        np.stack(keys, axis=1),
    )
    weights = np.asarray(state[0][0]).ravel()
    assert [setting["client"] > 1 for setting in GRID for _ in tasks] == [*(diverged[-1] >= 0)]
    for i, setting in enumerate(GRID):
        for seed, task in enumerate(tasks):
            of_run = [of_runs[2 * i + seed] for of_runs in means]
            if setting["client"] > 1:
                assert not np.isfinite(of_run[-1]["loss"])
                continue
            weight, expected = _alone(task, setting, seed)
            assert weights[2 * i + seed] == pytest.approx(weight, rel=1e-6)
            for mine, theirs in zip(of_run, expected, strict=True):
                assert mine == pytest.approx(theirs, rel=1e-5)


def test_what_is_compiled_hangs_on_the_round_alone(task):
    """Ten rounds go uncompiled, then all are compiled; a run that is cut makes the same numbers."""
    algorithm = _builder(task)(GRID[0])
    plan = _plan(task, 0, 13)

    def weights(pays, *cuts):
        asked = []

        def recorded(*question):
            asked.append(question)
            return pays(*question)

        process = vectorized.VectorizedBackend(recorded).training(task, algorithm)
        state, ends = process.initialize(), [0, *cuts, len(plan)]
        for first, last in itertools.pairwise(ends):
            state, results = process.next(state, plan[first:last])
            assert [r.number for r in results] == [r.number for r in plan[first:last]]
        assert [times for times, _ in asked] == [round_.number for round_ in plan]
        return process.weights(state)[0].tobytes()

    whole = weights(vectorized.pays)
    assert whole == weights(vectorized.pays, 4, 11)
    never, always = (weights(lambda times, numbers, a=a: a) for a in (False, True))
    numbers = [np.frombuffer(w, np.float32).item() for w in (never, whole, always)]
    assert numbers[1:] == pytest.approx(numbers[:1] * 2, rel=1e-6)


def test_what_is_done_often_or_is_large_is_compiled():
    assert not vectorized.pays(10, 1000) and vectorized.pays(11, 1000)
    assert not vectorized.pays(2, 5_000_000) and vectorized.pays(3, 5_000_000)


def test_seeds_with_other_silos_are_refused(task):
    other = toy.scalar_task({"z": [1.0, 2.0, 3.0]}, setting="cross_silo")
    with pytest.raises(ValueError, match="same clients"):
        vectorized.VectorizedRuns([task, other], _builder(task), GRID)


@pytest.mark.slow
def test_evaluation_of_several_models(task):
    sgd = optimizers.OptimizerConfig("sgd", 1.0)
    work = FineTuning(sgd, (0.1, 0.5), 1, 4).build(task).work(("test",), "train")
    key = random_streams.key(0, "personalization", 1)
    backend = vectorized.VectorizedBackend()
    models = (np.array([[[0.0]], [[2.0]]], np.float32),)
    together = dict(backend.map_runs(task, work, models, (task.valid,), task.valid.ids, key[None]))
    for i in range(2):
        for client_id, alone in toy.evaluate(task, work, (models[0][i],)).items():
            np.testing.assert_allclose(
                together[client_id]["curves"]["test"]["loss"][i],
                alone["curves"]["test"]["loss"],
                rtol=1e-5,
            )


@pytest.mark.slow
def test_an_untrained_model_of_a_grid_is_not_scored(task):
    sgd = optimizers.OptimizerConfig("sgd", 1.0)
    tuned, build = FineTuning(sgd, max_epochs=0).build(task), _builder(task)
    trials = grid.run(
        {7: task}, run_groups.RunGroup({}, (GRID[0],), (7,)),
        lambda task, weights, setting: build(setting), [task.model.initial_weights(7)], tuned,
        LoopConfig(total_rounds=3), evaluate_every=2,
    )  # fmt: skip
    assert [trial.round_number for trial in trials] == [2, 3]


@pytest.mark.parametrize("limit", [1e9, pytest.param(1.0, marks=pytest.mark.slow)])
def test_devices_in_changing_cohorts_have_the_numbers_of_runs_by_themselves(limit):
    numbers = {f"c{i}": np.arange(1.0, n) / n for i, n in enumerate((9, 4, 6, 17, 3))}
    held_out = {"v": ([1.0, 2.0], [2.0]), "u": ([0.5], [1.0, 3.0])}
    task = toy.scalar_task(numbers, held_out, initial=0.3)
    loop = LoopConfig(total_rounds=4, clients_per_train_round=2, base_random_seed=7)
    tuned = FineTuning(optimizers.OptimizerConfig("sgd", 0.1), max_epochs=1).build(task)
    build, settings = _builder(task), (GRID[0], GRID[2])
    rounds = [schedule.round_of(loop, task, number) for number in range(1, 5)]
    assert len({round_.client_ids for round_ in rounds}) > 1
    trials = list(grid.run(
        {7: task}, run_groups.RunGroup({}, settings, (7,)),
        lambda task, weights, setting: build(setting), [task.model.initial_weights(7)] * 2,
        tuned, loop, memory_limit_bytes=limit,
    ))  # fmt: skip
    backend, key = sequential.SequentialBackend(), random_streams.key(7, "personalization", 4)
    ids = dict.fromkeys(parts.SPLITS, task.valid.ids)
    for setting, trial in zip(settings, trials, strict=True):
        assert (trial.setting, trial.seed, trial.round_number) == (setting, 7, 4)
        weights = toy.run(backend.training(task, build(setting)), rounds).weights
        expected = batches.BatchScorer(backend, task, tuned).score(weights, None, ids, key)
        for split in parts.SPLITS:
            mine, theirs = (scores[split].values["loss"] for scores in (trial.scores, expected))
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)
