"""Trains a whole group of a grid's runs at once, and scores every one of them.

What `loop` is to one run: the same algorithms, the same random streams and the same rules of
choice, but all settings and seeds of a `RunGroup` in the calls of the vectorized backend, or as
many settings as fit in memory. Numbers are those of separate runs, to float tolerance.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from motley_tff import commandline
from motley_tff.backends import base, choice, vectorized
from motley_tff.backends.run_groups import RunGroup
from motley_tff.core import random_streams
from motley_tff.core.algorithm import Algorithm, Personalization
from motley_tff.core.clients import Clients, InMemoryClients
from motley_tff.core.task import Task
from motley_tff.evaluation import client_scores, parts
from motley_tff.experiment import schedule
from motley_tff.experiment.config import LoopConfig

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
    loop: LoopConfig,
    evaluate_every: int | None = None,
    diverged: Collection[int] = (),
    memory_limit_bytes: float = float("inf"),
    is_over: Callable[[Mapping[str, float], int], bool] = lambda setting, seed: False,
) -> Iterator[Scored]:
    """Yields every run of a group, scored after the last round and, if asked for, on the way.

    Args:
      tasks: The task under each of the group's seeds; silos, unless there is one seed.
      starts: Each run's initial weights, in the order of settings, then seeds.
      personalization: Scores candidates; the same for all settings.
      loop: The rounds, their cohorts and who is scored; its seed counts for nothing.
      evaluate_every: Also after every so many rounds.
      diverged: Positions of runs that already have, in a warm start.
      memory_limit_bytes: What the stacked weights of a call may take, unless of one setting.
      is_over: `(setting, seed) -> whether` that run has ended early by what was yielded so far: it
        is not scored again, and its call ends with the last one of its runs.
    """
    of_setting = len(group.seeds) * choice.stacked_weights_bytes(tasks[group.seeds[0]])
    at_once = int(max(1, min(memory_limit_bytes // of_setting, len(group.settings))))
    for first in range(0, len(group.settings), at_once):
        some = group._replace(settings=group.settings[first : first + at_once])
        runs = range(first * len(group.seeds), (first + len(some.settings)) * len(group.seeds))
        training = _StackedRuns(tasks, some, build, starts[runs.start], loop)
        training.diverged.update(runs.index(i) for i in diverged if i in runs)
        evaluator = _GroupEvaluator(training, some, personalization)
        first_weights = [starts[i] for i in runs]
        yield from _rounds(training, evaluator, first_weights, evaluate_every, is_over)


def _rounds(
    training: "_StackedRuns",
    evaluator: "_GroupEvaluator",
    starts: Sequence[Nest],
    evaluate_every: int | None,
    is_over: Callable[[Mapping[str, float], int], bool],
) -> Iterator[Scored]:
    state, total_rounds = training.first_state(starts), training.loop.total_rounds
    interval = evaluate_every or max(1, total_rounds)  # Without rounds the only stop is 0.
    stops = sorted({*range(interval, total_rounds, interval), total_rounds})
    for before, stop in itertools.pairwise([0, *stops]):
        state = training.train(state, range(before + 1, stop + 1))
        for scored in evaluator.score(state, stop, training.diverged):
            if not is_over(scored.setting, scored.seed):
                yield scored
        if all(itertools.starmap(is_over, evaluator.runs)):
            return


def warm_starts(
    tasks: Mapping[int, Task],
    group: RunGroup,
    build: Build,
    models: Mapping[int, Sequence[Nest]],
    num_rounds: int,
) -> tuple[list[list[Nest]], set[int]]:
    """Returns (the k models that each run's clusters start from, who diverged), both as `run`'s.

    Every model is trained as `warm_start.WarmStart.fedavg` does, those of all runs together.

    Args:
      build: Makes FedAvg.
      models: The k untrained models under each seed.
    """
    training = _StackedRuns(tasks, group, build, models[group.seeds[0]][0], LoopConfig())
    of_runs: list[list[Nest]] = [[] for _ in range(len(group.settings) * len(group.seeds))]
    for j in range(len(models[group.seeds[0]])):
        starts = [models[seed][j] for _ in group.settings for seed in group.seeds]
        state = training.first_state(starts)
        weights, *_ = training.train(state, range(1, num_rounds + 1), "warm_start", 1, j)
        leaves = [np.asarray(leaf) for leaf in weights]
        for i, of_run in enumerate(of_runs):
            of_run.append(tuple(leaf[i] for leaf in leaves))
    return of_runs, training.diverged


class _StackedRuns:
    """Trains all runs of a group together.

    Attributes:
      tasks: The task under each seed.
      template: The algorithm of some run; `weights` are of the shapes of any run's.
      loop: The rounds, under the first seed.
      diverged: Positions of the runs of which a training loss was not finite.
    """

    def __init__(
        self,
        tasks: Mapping[int, Task],
        group: RunGroup,
        build: Build,
        weights: Nest,
        loop: LoopConfig,
    ):
        self.tasks = [tasks[seed] for seed in group.seeds]
        self.template = build(self.tasks[0], weights, group.settings[0])
        self.loop = dataclasses.replace(loop, base_random_seed=group.seeds[0])
        self.diverged: set[int] = set()
        self._group, self._build = group, build
        self._runs = vectorized.VectorizedRuns(
            self.tasks, lambda setting: build(self.tasks[0], weights, setting), group.settings
        )

    def first_state(self, starts: Sequence[Nest]) -> Nest:
        """Returns the state of runs that start from these weights."""
        pairs = itertools.product(self._group.settings, self.tasks)
        return self._runs.initialize(
            [self._build(task, start, s) for (s, task), start in zip(pairs, starts, strict=True)]
        )

    def train(
        self, state: Nest, numbers: range, stream: str = "local_training", *counts: int
    ) -> Nest:
        """Returns the state after rounds of these numbers, with keys from a stream."""
        rounds = (schedule.round_of(self.loop, self.tasks[0], n) for n in numbers)
        for block in base.by_call(rounds, vectorized.ROUNDS_PER_CALL):
            client_ids, seeds = block[0].client_ids, self._group.seeds
            keys = [
                [random_streams.key(s, stream, *counts, r.number) for s in seeds] for r in block
            ]
            state, means, _ = self._runs.next(state, client_ids, np.array(keys))
            for of_runs in means:
                self.diverged |= {i for i, m in enumerate(of_runs) if not np.isfinite(m["loss"])}
            commandline.raise_if_ended()
        return state


class _GroupEvaluator:
    """Scores all runs of a group in one call per group of silos."""

    def __init__(self, training: _StackedRuns, group: RunGroup, personalization: Personalization):
        self._tasks, self._template = training.tasks, training.template
        self._group, self._personalization = group, personalization
        self._backend = vectorized.VectorizedBackend()
        self._loop, task = training.loop, self._tasks[0]
        self._is_silo = task.setting == "cross_silo"
        train = ("train",) if personalization.scores_train else ()
        # Silos are in both splits, and are personalized once; devices' splits have the same parts.
        splits = parts.SPLITS if self._is_silo else parts.SPLITS[:1]
        scored = [part for split in splits for part in parts.scored(task, split)]
        self._work = personalization.work((*scored, *train), task.personalization_part("valid"))
        self._sources = tuple(map(self._evaluated, self._tasks))

    @property
    def runs(self) -> Iterator[tuple[dict[str, float], int]]:
        """Each run's setting and seed, in order."""
        return itertools.product(self._group.settings, self._group.seeds)

    def _evaluated(self, task: Task) -> Clients:
        """Returns the clients of both splits."""
        if self._is_silo:
            return task.test
        populations = (task.splits[split] for split in parts.SPLITS)
        return InMemoryClients({i: c.fetch(i) for c in populations for i in c.ids})

    def score(self, state: Nest, round_number: int, diverged: Collection[int]) -> Iterator[Scored]:
        """Yields every run with its scores."""
        task = self._tasks[0]
        ids = {s: schedule.evaluated(self._loop, task, s, round_number) for s in parts.SPLITS}
        num_valid = len(ids["valid"])
        rows = {"valid": slice(num_valid), "test": slice(0 if self._is_silo else num_valid, None)}
        called = ids["test"] if self._is_silo else ids["valid"] + ids["test"]
        outputs = self._outputs(state, called, round_number)
        for run, (setting, seed) in enumerate(self.runs):
            of_run = [tf.nest.map_structure(lambda a, r=run: a[r], output) for output in outputs]
            splits = ("test",) if self._is_silo else parts.SPLITS
            arrays = {s: client_scores.arrays_of(task, of_run[rows[s]]) for s in splits}
            scores = {
                s: client_scores.of_split(task, s, ids[s], arrays[s if s in arrays else "test"])
                for s in parts.SPLITS
            }
            yield Scored(dict(setting), seed, round_number, scores, run in diverged)

    def _outputs(self, state: Nest, ids: tuple[str, ...], round_number: int) -> list[Nest]:
        """Returns the outputs of each client's work, leaves [runs, ...]."""
        task, weights, client_states = self._tasks[0], state[0], ()
        if self._personalization.wants_server_weights:
            rows = np.array([task.train.index[i] for i in ids])
            client_states = tf.nest.map_structure(
                lambda s: s.numpy()[:, rows], self._template.own_state(state[2])
            )
        else:
            weights = self._template.global_model(weights)
        seeds = self._group.seeds
        keys = [random_streams.key(seed, "personalization", round_number) for seed in seeds]
        by_client = self._backend.map_runs(
            task, self._work, weights, self._sources, ids, np.stack(keys), client_states
        )
        return [metrics for _, metrics in by_client]
