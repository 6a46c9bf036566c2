"""Trains a whole group of a grid's runs at once on silos, and scores every one of them.

What `Experiment` is to one run: the same algorithms, the same random streams and the same rules of
choice, but all settings and seeds of a `RunGroup` in the calls of the vectorized backend. Numbers
are those of separate runs, to float tolerance.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from motley_tff.backends import base, vectorized
from motley_tff.backends.run_groups import RunGroup
from motley_tff.core import random_streams
from motley_tff.core.algorithm import Algorithm, Personalization
from motley_tff.core.task import Task
from motley_tff.evaluation import client_scores, parts

Nest = Any
# (task, initial weights, {traced hyperparameter: value}) -> algorithm; also called inside graphs.
Build = Callable[[Task, Nest, Mapping[str, Any]], Algorithm]


class Scored(NamedTuple):
    """One run after one round: its traced hyperparameters, its scores by split.

    It has diverged if a training loss was not finite by then, which ends a run that is alone.
    """

    setting: dict[str, float]
    seed: int
    round_number: int
    scores: dict[str, client_scores.ClientScores]
    has_diverged: bool


def run(
    tasks: Mapping[int, Task],
    group: RunGroup,
    build: Build,
    starts: Sequence[Nest],
    personalization: Personalization,
    total_rounds: int,
    evaluate_every: int | None = None,
    on_round: Callable[[int], None] = lambda number: None,
    diverged: Collection[int] = (),
) -> Iterator[Scored]:
    """Yields every run of a group, scored after the last round and, if asked for, on the way.

    Args:
      tasks: The task under each of the group's seeds; silos.
      starts: Each run's initial weights, in the order of settings, then seeds.
      personalization: Scores candidates; the same for all settings.
      evaluate_every: Also after every so many rounds.
      on_round: Called after each round with its number.
      diverged: Positions of runs that already have, in a warm start.
    """
    group_tasks = [tasks[seed] for seed in group.seeds]
    runs = _runs(group_tasks, group, build, starts[0])
    state = _first_state(runs, group_tasks, group, build, starts)
    template = build(group_tasks[0], starts[0], group.settings[0])
    evaluator = _GroupEvaluator(group_tasks, group, template, personalization)
    interval = evaluate_every or max(1, total_rounds)  # Without rounds the only stop is 0.
    stops = sorted({*range(interval, total_rounds, interval), total_rounds})
    done = 0
    not_finite = set(diverged)

    def after_round(seeds, means, *_):
        not_finite.update(_diverged(means))
        on_round(seeds[0].number)

    for stop in stops:
        rounds = [_round(group_tasks, group.seeds, n) for n in range(done + 1, stop + 1)]
        state = runs.run(state, rounds, after_round)
        done = stop
        yield from evaluator.score(state, stop, not_finite)


def warm_starts(
    tasks: Mapping[int, Task],
    group: RunGroup,
    build: Build,
    models: Mapping[int, Sequence[Nest]],
    num_rounds: int,
    on_round: Callable[[int], None] = lambda number: None,
) -> tuple[list[list[Nest]], set[int]]:
    """Returns (the k models that each run's clusters start from, who diverged), both as `run`'s.

    Every model is trained as `warm_start.WarmStart.fedavg` does, those of all runs together.

    Args:
      build: Makes FedAvg.
      models: The k untrained models under each seed.
    """
    group_tasks = [tasks[seed] for seed in group.seeds]
    runs = _runs(group_tasks, group, build, models[group.seeds[0]][0])
    of_runs: list[list[Nest]] = [[] for _ in range(len(group.settings) * len(group.seeds))]
    diverged: set[int] = set()

    def after_round(seeds, means, *_):
        diverged.update(_diverged(means))
        on_round(seeds[0].number)

    for j in range(len(models[group.seeds[0]])):
        starts = [models[seed][j] for _ in group.settings for seed in group.seeds]
        state = _first_state(runs, group_tasks, group, build, starts)
        rounds = [
            _round(group_tasks, group.seeds, n, "warm_start", 1, j)
            for n in range(1, num_rounds + 1)
        ]
        weights, *_ = runs.run(state, rounds, after_round)
        leaves = [np.asarray(leaf) for leaf in weights]
        for i, of_run in enumerate(of_runs):
            of_run.append(tuple(leaf[i] for leaf in leaves))
    return of_runs, diverged


def _diverged(means: Sequence[Mapping[str, float]]) -> set[int]:
    """Returns the positions of the runs whose training loss is not finite."""
    return {i for i, metrics in enumerate(means) if not np.isfinite(metrics["loss"])}


def _runs(
    tasks: Sequence[Task], group: RunGroup, build: Build, weights: Nest
) -> vectorized.VectorizedRuns:
    """Returns all runs; `weights` are of the shapes of any run's."""
    settings = vectorized.Runs(lambda h: build(tasks[0], weights, h), group.settings)
    return vectorized.VectorizedRuns(tasks, settings)


def _first_state(
    runs: vectorized.VectorizedRuns,
    tasks: Sequence[Task],
    group: RunGroup,
    build: Build,
    starts: Sequence[Nest],
) -> Nest:
    """Returns the state of runs that start from these weights."""
    pairs = itertools.product(group.settings, tasks)
    return runs.initialize(
        [build(task, start, s) for (s, task), start in zip(pairs, starts, strict=True)]
    )


def _round(
    tasks: Sequence[Task],
    seeds: Sequence[int],
    number: int,
    stream: str = "local_training",
    *counts: int,
) -> tuple[base.Round, ...]:
    """Returns a round under every seed, with its keys from a stream."""
    return tuple(
        base.Round(number, task.train.ids, random_streams.key(seed, stream, *counts, number))
        for task, seed in zip(tasks, seeds, strict=True)
    )


class _GroupEvaluator:
    """Scores all runs of a group in one call per group of silos."""

    def __init__(self, tasks, group, template, personalization):
        self._tasks, self._group = tasks, group
        self._template, self._personalization = template, personalization
        self._backend = vectorized.VectorizedBackend()
        train = ("train",) if personalization.scores_train else ()
        self._work = personalization.work((*parts.SPLITS, *train), "train")

    def score(self, state: Nest, round_number: int, diverged: Collection[int]) -> Iterator[Scored]:
        """Yields every run with its scores."""
        task, seeds = self._tasks[0], self._group.seeds
        ids = task.test.ids
        weights, client_states = state[0], ()
        if self._personalization.wants_server_weights:
            rows = np.array([task.train.index[i] for i in ids])
            client_states = tf.nest.map_structure(lambda s: s.numpy()[:, rows], state[2])
        else:
            weights = self._template.global_model(weights)
        keys = [random_streams.key(seed, "personalization", round_number) for seed in seeds]
        sources = tuple(seed_task.test for seed_task in self._tasks)
        by_client = self._backend.map_runs(
            task, self._work, weights, sources, ids, np.stack(keys), client_states
        )
        outputs = [metrics for _, metrics in by_client]
        for run, (setting, seed) in enumerate(itertools.product(self._group.settings, seeds)):
            of_run = [tf.nest.map_structure(lambda a, r=run: a[r], output) for output in outputs]
            arrays = client_scores.stack(of_run)
            scores = {s: client_scores.of_split(task, s, ids, arrays) for s in parts.SPLITS}
            yield Scored(dict(setting), seed, round_number, scores, run in diverged)
