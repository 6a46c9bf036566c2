"""Trains a whole group of a grid's runs at once on silos, and scores every one of them.

What `Experiment` is to one run: the same algorithms, the same random streams and the same rules of
choice, but all settings and seeds of a `RunGroup` in the calls of the vectorized backend. Numbers
are those of separate runs, to float tolerance.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from motley_tff.backends import base, vectorized
from motley_tff.backends.run_groups import RunGroup
from motley_tff.core import random_streams
from motley_tff.core.algorithm import Algorithm, Personalization
from motley_tff.core.task import Task
from motley_tff.experiment import client_scores

Nest = Any
# (task, seed, {traced hyperparameter: value}) -> algorithm; also called inside graphs.
Build = Callable[[Task, int, Mapping[str, Any]], Algorithm]


class Scored(NamedTuple):
    """One run after one round: its traced hyperparameters, its scores by split.

    It has diverged if a training loss was not finite by then, which ends a run that is alone.
    """

    setting: dict[str, float]
    seed: int
    round_number: int
    scores: dict[str, client_scores.Scores]
    has_diverged: bool


def run(
    tasks: Mapping[int, Task],
    group: RunGroup,
    build: Build,
    personalization: Personalization,
    total_rounds: int,
    evaluate_every: int | None = None,
    on_round: Callable[[int], None] = lambda number: None,
) -> Iterator[Scored]:
    """Yields every run of a group, scored after the last round and, if asked for, on the way.

    Args:
      tasks: The task under each of the group's seeds; silos.
      personalization: Scores candidates; the same for all settings.
      evaluate_every: Also after every so many rounds.
      on_round: Called after each round with its number.
    """
    group_tasks = [tasks[seed] for seed in group.seeds]

    def build_first(hparams):
        return build(group_tasks[0], group.seeds[0], hparams)

    runs = vectorized.VectorizedRuns(group_tasks, vectorized.Runs(build_first, group.settings))
    template = build_first(group.settings[0])
    evaluator = _GroupEvaluator(group_tasks, group, template, personalization)
    starts = itertools.product(group.settings, group.seeds)
    state = runs.initialize([build(tasks[seed], seed, setting) for setting, seed in starts])
    interval = evaluate_every or total_rounds
    stops = sorted({*range(interval, total_rounds, interval), total_rounds})
    done = 0
    diverged: set[int] = set()

    def after_round(seeds, means, *_):
        diverged.update(i for i, metrics in enumerate(means) if not np.isfinite(metrics["loss"]))
        on_round(seeds[0].number)

    for stop in stops:
        rounds = [
            tuple(
                base.Round(n, tasks[s].train.ids, random_streams.key(s, "local_training", n))
                for s in group.seeds
            )
            for n in range(done + 1, stop + 1)
        ]
        state = runs.run(state, rounds, after_round)
        done = stop
        yield from evaluator.score(state, stop, diverged)


class _GroupEvaluator:
    """Scores all runs of a group in one call per group of silos."""

    def __init__(self, tasks, group, template, personalization):
        self._tasks, self._group = tasks, group
        self._template, self._personalization = template, personalization
        self._backend = vectorized.VectorizedBackend()
        train = ("train",) if personalization.scores_train else ()
        self._work = personalization.work((*client_scores.SPLITS, *train), "train")

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
            scores = {
                split: client_scores.collect(task, split, ids, of_run)
                for split in client_scores.SPLITS
            }
            yield Scored(dict(setting), seed, round_number, scores, run in diverged)
