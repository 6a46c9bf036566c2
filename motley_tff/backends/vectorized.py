"""The vectorized backend: clients stacked on a leading axis, many rounds in one compiled call.

For models and data that fit, linear models first: XLA fuses the small arithmetic of all clients of
a round, the aggregation and the server's step, and no Python runs between rounds. Runs of one seed
that differ in hyperparameters only can be trained in the same call (`VectorizedRuns`).
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from motley_tff.backends import base, stacked_loop, stacking
from motley_tff.core import algorithm as algorithm_lib
from motley_tff.core import client_work, learning
from motley_tff.core import clients as clients_lib
from motley_tff.core import task as task_lib

Nest = Any
# Rounds in one compiled call; fewer are run by the same compiled code.
_ROUNDS_PER_CALL = 50
# Stacks of tensors that are kept for the next call on the same clients.
_MAX_CACHED_STACKS = 4


@dataclasses.dataclass(frozen=True)
class Runs:
    """Runs of one algorithm that differ in hyperparameters only.

    Attributes:
      build: `{name: scalar} -> algorithm`; scalars are floats, or tensors inside a graph.
      hparams: `{name: value}` of each run, all with the same names.
    """

    build: Callable[[Mapping[str, Any]], algorithm_lib.Algorithm]
    hparams: Sequence[Mapping[str, float]]

    @property
    def stacked(self) -> dict[str, np.ndarray]:
        """The hyperparameters as float32 [runs]."""
        return {n: np.array([h[n] for h in self.hparams], np.float32) for n in self.hparams[0]}


class StackCache:
    """Stacks of clients as tensors, kept while the same clients come again."""

    def __init__(self) -> None:
        self._stacks: dict[Any, list[tuple[np.ndarray, stacking.Stack]]] = {}

    def grouped(
        self, clients: clients_lib.Clients, ids: tuple[str, ...], work: client_work.ClientWork
    ) -> list[tuple[np.ndarray, stacking.Stack]]:
        """Returns (positions in `ids`, stack of tensors) of groups of clients of similar size."""
        # The source itself is part of the key, so that its identity is not used again.
        cache_key = (clients, ids, work)
        if cache_key not in self._stacks:
            whole = stacking.build(clients, ids, work.parts)
            if len(self._stacks) >= _MAX_CACHED_STACKS:
                self._stacks.pop(next(iter(self._stacks)))
            self._stacks[cache_key] = [
                (positions, _tensors(stacking.take(whole, positions)))
                for positions in stacking.groups(stacking.batches(whole.sizes, work))
            ]
        return self._stacks[cache_key]


class VectorizedBackend:
    """Runs stacks of clients in this process."""

    name = "vectorized"

    def __init__(self) -> None:
        self._cache = StackCache()
        self._functions: dict[Any, Any] = {}

    def training(
        self, task: task_lib.Task, algorithm: algorithm_lib.Algorithm
    ) -> "VectorizedTraining":
        """Returns the algorithm's training process; see `base.Backend`."""
        return VectorizedTraining(VectorizedRuns(task, Runs(lambda _: algorithm, [{}])))

    def map_clients(
        self,
        task: task_lib.Task,
        work: client_work.ClientWork,
        broadcast: Nest,
        clients: clients_lib.Clients,
        client_ids: Sequence[str],
        key: np.ndarray,
    ) -> Iterator[tuple[str, Nest]]:
        """Yields each client's metrics; see `base.Backend`."""
        several = tf.nest.map_structure(lambda w: np.asarray(w)[None], broadcast)
        for client_id, metrics in self.map_runs(task, work, several, clients, client_ids, key):
            yield client_id, _row(metrics, 0)

    def map_runs(
        self,
        task: task_lib.Task,
        work: client_work.ClientWork,
        broadcasts: Nest,
        clients: clients_lib.Clients,
        client_ids: Sequence[str],
        key: np.ndarray,
    ) -> Iterator[tuple[str, Nest]]:
        """Yields each client's metrics under several broadcasts, leaves [runs, ...].

        Args:
          task: Whose data it is.
          work: Stateless client work.
          broadcasts: What every client gets in each run, leaves [runs, ...].
          clients: The source.
          client_ids: Which of its clients.
          key: int32 [2], the random key of this evaluation, shared by the runs.
        """
        function = self._map_function(task, work)
        broadcasts = tf.nest.map_structure(tf.convert_to_tensor, broadcasts)
        results: list[Nest] = [None] * len(client_ids)
        for positions, stack in self._cache.grouped(clients, tuple(client_ids), work):
            metrics = function(broadcasts, stack, tf.constant(key, tf.int32))
            metrics = tf.nest.map_structure(lambda t: t.numpy(), metrics)
            for column, position in enumerate(positions):
                results[position] = tf.nest.map_structure(lambda a: a[:, column], metrics)  # noqa: B023
        yield from zip(client_ids, results, strict=True)

    def _map_function(self, task, work):
        if (id(task), work) not in self._functions:

            def run(broadcasts, stack, key):
                return stacked_loop.run_stack(
                    task, lambda _: work, work, {}, broadcasts, (), stack, key
                ).metrics

            self._functions[id(task), work] = tf.function(run, jit_compile=True, autograph=False)
        return self._functions[id(task), work]


class VectorizedRuns:
    """Trains several runs in compiled blocks of rounds.

    A state is `(weights, optimizer state, client states)`; leaves have a leading axis of runs,
    those of client states then one of the task's training clients.

    Args:
      task: The task.
      runs: The runs.
    """

    def __init__(self, task: task_lib.Task, runs: Runs):
        self._task, self._runs = task, runs
        self._template = runs.build(dict(runs.hparams[0]))
        self._cache = StackCache()
        self._block = tf.function(self._run_block, jit_compile=True, autograph=False)

    def on(self, task: task_lib.Task) -> "VectorizedRuns":
        """Returns the same runs on other clients of the same data set, compiled no second time.

        Args:
          task: The same task with another split of its data (another seed).
        """
        other = VectorizedRuns(task, self._runs)
        other._block = self._block
        return other

    def initialize(self, initial_weights: Sequence[Nest] | None = None) -> Nest:
        """Returns the state before the first round.

        Args:
          initial_weights: Each run's; by default what the algorithm was built with, for all.
        """
        count = len(self._runs.hparams)
        several = initial_weights or [self._template.initial_weights] * count
        weights = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *several)
        return weights, self._initial_optimizer_state(weights), self._initial_client_states(count)

    def _initial_optimizer_state(self, weights):
        specs = tf.nest.map_structure(lambda w: tf.TensorSpec(w.shape[1:], w.dtype), weights)
        states = [
            tf.nest.map_structure(
                tf.convert_to_tensor, self._runs.build(dict(h)).server_optimizer.initialize(specs)
            )
            for h in self._runs.hparams
        ]
        return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *states)

    def _initial_client_states(self, count):
        if self._template.initial_client_state is None:
            return ()
        states = [self._template.initial_client_state(i) for i in range(len(self._task.train))]
        return tf.nest.map_structure(
            lambda *leaves: tf.repeat(tf.stack(leaves)[None], count, axis=0), *states
        )

    def run(
        self,
        state: Nest,
        rounds: Sequence[base.Round],
        on_round: Callable[[base.Round, list[dict[str, float]], float, Nest | None], None],
    ) -> Nest:
        """Runs consecutive rounds and returns the state after the last.

        Args:
          state: The state before the first of them.
          rounds: The rounds, shared by all runs.
          on_round: Called after each with the round, each run's training means, the seconds it
            took, and the state where there is one.

        Raises:
          DivergedError: If a loss is not finite and there is only one run; with several, the
            means of a run that diverged are not finite and the others go on.
        """
        state = tf.nest.map_structure(tf.convert_to_tensor, state)
        for block in _blocks(rounds):
            state = self._run(state, block, on_round)
        return state

    def client_states(self, state: Nest, run: int) -> dict[str, Nest]:
        """Returns the states of one run's clients by id as NumPy arrays."""
        if self._template.initial_client_state is None:
            return {}
        mine = tf.nest.map_structure(lambda s: np.asarray(s)[run], state[2])
        return {client_id: _row(mine, i) for i, client_id in enumerate(self._task.train.ids)}

    def _run(self, state, block, on_round):
        start = time.perf_counter()
        groups = self._cache.grouped(self._task.train, block[0].client_ids, self._template.work)
        keys = np.zeros((_ROUNDS_PER_CALL, 2), np.int32)
        keys[: len(block)] = [one.key for one in block]
        new_state, sums, diverged = self._block(
            state,
            tf.nest.map_structure(tf.convert_to_tensor, self._runs.stacked),
            [stack for _, stack in groups],
            tf.constant(keys),
            tf.constant(len(block)),
        )
        seconds = (time.perf_counter() - start) / len(block)
        sums = tf.nest.map_structure(lambda t: t.numpy(), sums)
        for i, one in enumerate(block):
            if len(self._runs.hparams) == 1 and diverged[i, 0] >= 0:
                raise base.DivergedError(one.number, self._task.train.ids[int(diverged[i, 0])])
            means = [_means(sums, i, run) for run in range(len(self._runs.hparams))]
            on_round(one, means, seconds, new_state if one is block[-1] else None)
        return new_state

    def _run_block(self, state, hparams, stacks, keys, num_rounds):
        """Runs up to `_ROUNDS_PER_CALL` rounds; returns (state, sums, who diverged) by round."""
        shape = [_ROUNDS_PER_CALL, len(self._runs.hparams)]
        sums = learning.zero_sums(self._task)
        log = tf.nest.map_structure(lambda t: tf.zeros(shape, t.dtype), (sums, tf.constant(0)))

        def body(i, carry):
            state, log = carry
            state, sums, diverged = self._round(state, hparams, stacks, keys[i])
            is_now = tf.equal(tf.range(_ROUNDS_PER_CALL), i)[:, None]
            log = tf.nest.map_structure(
                lambda all_, one: tf.where(is_now, one[None], all_), log, (sums, diverged)
            )
            return state, log

        state, (sums, diverged) = stacked_loop.repeat(num_rounds, body, (state, log))
        return state, sums, diverged

    def _round(self, state, hparams, stacks, key):
        weights, optimizer_state, client_states = state
        total: Any = None
        diverged = tf.fill([len(self._runs.hparams)], -1)
        for stack in stacks:
            output = stacked_loop.run_stack(
                self._task,
                lambda h: self._runs.build(h).work,
                self._template.work,
                hparams,
                weights,
                _gather_clients(client_states, stack.index),
                stack,
                key,
            )
            total = _add(total, self._sum(output))
            diverged = tf.maximum(diverged, _diverged(output, stack.index))
            client_states = _scatter_clients(client_states, stack.index, output.client_state)
        update, weight, sums = total
        if self._template.aggregation == "weighted_mean":
            update = tf.nest.map_structure(
                lambda u: tf.math.divide_no_nan(u, _like(weight, u)), update
            )
        weights, optimizer_state = self._server_step(hparams, optimizer_state, weights, update)
        return (weights, optimizer_state, client_states), sums, diverged

    def _server_step(self, hparams, optimizer_state, weights, update):
        def one_run(args):
            run_hparams, state, weights, update = args
            optimizer = self._runs.build(run_hparams).server_optimizer
            state, weights = optimizer.next(state, weights, update)
            return weights, state

        return tf.vectorized_map(one_run, (hparams, optimizer_state, weights, update))

    def _sum(self, output):
        """Returns (weighted sum of updates, sum of weights, summed metrics) of each run."""
        weight = output.weight
        if self._template.aggregation == "sum":
            weight = tf.ones_like(weight)
        update = tf.nest.map_structure(
            lambda u: tf.reduce_sum(_like(weight, u) * u, axis=1), output.update
        )
        sums = tf.nest.map_structure(lambda m: tf.reduce_sum(m, axis=1), output.metrics)
        return update, tf.reduce_sum(weight, axis=1), sums


class VectorizedTraining:
    """One run as a `base.TrainingProcess`; states are those of `VectorizedRuns`."""

    def __init__(self, runs: VectorizedRuns):
        self._runs = runs

    def initialize(self) -> Nest:
        """Returns the state before the first round."""
        return self._runs.initialize()

    def run(self, state: Nest, rounds: Sequence[base.Round], on_round: base.OnRound) -> Nest:
        """Runs rounds in compiled blocks; see `base.TrainingProcess`."""

        def on_rounds(one, means, seconds, state):
            result = base.RoundResult(one.number, len(one.client_ids), means[0], seconds)
            on_round(result, state)

        return self._runs.run(state, rounds, on_rounds)

    def weights(self, state: Nest) -> Nest:
        """Returns the server's weights as NumPy arrays."""
        return tf.nest.map_structure(lambda w: np.asarray(w)[0], state[0])

    def client_states(self, state: Nest) -> dict[str, Nest]:
        """Returns the clients' own states by id as NumPy arrays."""
        return self._runs.client_states(state, 0)


def _means(sums: learning.Sums, i: int, run: int) -> dict[str, float]:
    totals, weights = ({n: a[i, run] for n, a in half.items()} for half in sums)
    return base.mean_metrics(totals, weights)


def _diverged(output, index):
    """Returns for each run the largest index of a client whose loss is not finite, or -1."""
    finite = tf.math.is_finite(output.metrics.totals["loss"])
    return tf.reduce_max(tf.where(finite, -1, index[None]), axis=1)


def _like(weight, leaf):
    """Returns weights [runs, ...] with trailing axes to multiply or divide a leaf."""
    return tf.reshape(weight, [*weight.shape, *([1] * (len(leaf.shape) - len(weight.shape)))])


def _gather_clients(states, index):
    return tf.nest.map_structure(lambda s: tf.gather(s, index, axis=1), states)


def _scatter_clients(states, index, new):
    def one(all_, mine):
        by_client = tf.tensor_scatter_nd_update(
            tf.einsum("rc...->cr...", all_), index[:, None], tf.einsum("rc...->cr...", mine)
        )
        return tf.einsum("cr...->rc...", by_client)

    return tf.nest.map_structure(one, states, new)


def _add(total, value):
    return value if total is None else tf.nest.map_structure(tf.add, total, value)


def _blocks(rounds: Sequence[base.Round]) -> Iterator[list[base.Round]]:
    """Yields runs of consecutive rounds of one cohort, at most `_ROUNDS_PER_CALL` long."""
    block: list[base.Round] = []
    for one in rounds:
        if block and (len(block) == _ROUNDS_PER_CALL or one.client_ids != block[0].client_ids):
            yield block
            block = []
        block.append(one)
    if block:
        yield block


def _tensors(stack: stacking.Stack) -> stacking.Stack:
    return tf.nest.map_structure(tf.convert_to_tensor, stack)


def _row(nest: Nest, row: int) -> Nest:
    return tf.nest.map_structure(lambda a: a[row], nest)
