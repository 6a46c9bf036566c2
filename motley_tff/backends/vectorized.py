"""The vectorized backend: clients stacked on a leading axis, many rounds in one call.

For models and data that fit, linear models first: XLA fuses the small arithmetic of all clients of
a round, the aggregation and the server's step, and no Python runs between rounds. Runs that differ
in hyperparameters and seeds only are trained in the same call (`VectorizedRuns`; `run_groups` says
which).
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from motley_tff.algorithms import fedavg
from motley_tff.backends import base, stacked_loop, stacking
from motley_tff.core import learning
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import ClientOutput, ClientWork
from motley_tff.core.clients import Clients
from motley_tff.core.task import Task

Nest = Any
# Rounds in one compiled call; fewer are run by the same compiled code.
ROUNDS_PER_CALL = 50
# Stacks of tensors that are kept for the next call on the same clients.
_MAX_CACHED_STACKS = 4
# What is done so often, or goes through so many numbers in all, is compiled: see `pays`.
_MOST_TIMES, _MOST_NUMBERS = 10, 10_000_000


def pays(times: int, numbers: int) -> bool:
    """Returns whether to compile what is done for the so manieth time, from 1 on, on so many
    numbers (`stacking.numbers`).

    Compiling a round or an evaluation took 0.5 to 2 seconds. Uncompiled, a round of School or
    Vehicle took 6 ms more, an evaluation 0.15 s, and large stacks 0.03 s a million numbers: a run
    of one round ends seconds sooner, and one of hundreds half a second later. The choice hangs on
    nothing that a resumed run does not know, as the two differ in float32's last digits.
    """
    return times > _MOST_TIMES or times * numbers > _MOST_NUMBERS


class Grouped(NamedTuple):
    """Groups of clients of similar size, each as (positions in the list, stack of tensors), and how
    many numbers all their work goes through.
    """

    groups: list[tuple[np.ndarray, stacking.Stack]]
    numbers: int


def _grouped_stacks(
    sources: tuple[Clients, ...], ids: tuple[str, ...], work: ClientWork, times: int
) -> Grouped:
    """Returns clients in groups.

    Args:
      sources: The clients under each seed.
      times: How often a call does the work: for every run and in every round.
    """
    whole = [stacking.build(clients, ids, work.parts) for clients in sources]
    numbers = np.max([stacking.numbers(stack, work) for stack in whole], axis=0)
    groups = []
    for positions in stacking.groups(times * numbers):
        stack = stacking.join([stacking.take(stack, positions) for stack in whole])
        groups.append((positions, tf.nest.map_structure(tf.convert_to_tensor, stack)))
    return Grouped(groups, int(numbers.sum()))


class Program:
    """A function of nests of tensors that is traced once and runs as it is or compiled by XLA.

    The two differ in float32's last digits: XLA adds up in another order.
    """

    def __init__(self, function: Callable[..., Nest]):
        self._compiled = tf.function(function, jit_compile=True, autograph=False)
        self._plain: dict[Any, Any] = {}

    def __call__(self, is_compiled: bool, *args: Nest) -> Nest:
        """Returns the function's result."""
        if is_compiled:
            return self._compiled(*args)
        traced = self._compiled.get_concrete_function(*args)
        if traced not in self._plain:
            plain = type(traced).from_func_graph(traced.graph, traced.function_type, {})
            self._plain[traced] = plain
        return self._plain[traced](*args)


def _cohorts_stack(sources: tuple[Clients, ...], ids: tuple[str, ...], work: ClientWork) -> Grouped:
    """Returns one group: a cohort's stack, padded as one of any clients, so that every cohort of a
    size is computed by one compiled program.
    """
    built = [stacking.build(clients, ids, work.parts, clients.ids) for clients in sources]
    numbers = np.max([stacking.numbers(stack, work) for stack in built], axis=0)
    stack = tf.nest.map_structure(tf.convert_to_tensor, stacking.join(built))
    return Grouped([(np.arange(len(ids)), stack)], int(numbers.sum()))


class VectorizedBackend:
    """Runs stacks of clients in this process."""

    name = "vectorized"
    yields_each_client = False

    def __init__(self, pays: Callable[[int, int], bool] = pays):
        self._pays = pays
        self._stacks = functools.lru_cache(_MAX_CACHED_STACKS)(_grouped_stacks)
        self._functions: dict[Any, Any] = {}

    def training(self, task: Task, algorithm: Algorithm) -> "VectorizedTraining":
        """Returns the algorithm's training process; see `base.Backend`."""
        return VectorizedTraining(task, algorithm, self._pays)

    def map_clients(self, call: base.ClientCall) -> Iterator[tuple[str, Nest]]:
        """Yields each client's metrics; see `base.Backend`."""
        several = tf.nest.map_structure(lambda w: np.asarray(w)[None], call.broadcast)
        states = tf.nest.map_structure(lambda *leaves: np.stack(leaves)[None], *call.states)
        return self.map_runs(
            call.task, call.work, several, (call.clients,), call.client_ids, call.key[None],
            states, call.times, runs=0,
        )  # fmt: skip

    def map_runs(
        self,
        task: Task,
        work: ClientWork,
        broadcasts: Nest,
        sources: tuple[Clients, ...],
        client_ids: Sequence[str],
        keys: np.ndarray,
        client_states: Nest = (),
        times: int | None = None,
        runs: int | slice = slice(None),
    ) -> Iterator[tuple[str, Nest]]:
        """Yields each client's metrics under several broadcasts, leaves [runs, ...].

        Args:
          broadcasts: What every client gets in each run, leaves [runs, ...]; as everywhere, the
            runs of one setting under all seeds lie together.
          sources: The clients under each seed.
          keys: int32 [seeds, 2], the random key of this evaluation under each seed.
          client_states: Leaves [runs, len(client_ids), ...]; `()` if stateless.
          times: As in `base.ClientCall`; compiled if None.
          runs: The runs whose metrics are wanted; of one number, without the leading axis.
        """
        function = self._map_function(task, work)
        broadcasts = tf.nest.map_structure(tf.convert_to_tensor, broadcasts)
        num_runs = tf.nest.flatten(broadcasts)[0].shape[0]
        results: list[Nest] = [None] * len(client_ids)
        grouped = self._stacks(sources, tuple(client_ids), work, num_runs)
        is_compiled = times is None or self._pays(times, grouped.numbers)
        for positions, stack in grouped.groups:
            states = tf.nest.map_structure(lambda s: s[:, positions], client_states)  # noqa: B023
            metrics = function(is_compiled, broadcasts, states, stack, tf.constant(keys, tf.int32))
            metrics = tf.nest.map_structure(lambda t: t.numpy(), metrics)
            for column, position in enumerate(positions):
                results[position] = _row(metrics, (runs, column))
        yield from zip(client_ids, results, strict=True)

    def _map_function(self, task, work):
        if (id(task), work) not in self._functions:

            def run(broadcasts, client_states, stack, keys):
                return stacked_loop.run_stack(
                    task, lambda _: work, work, {}, broadcasts, client_states, stack, keys
                ).metrics

            self._functions[id(task), work] = Program(run)
        return self._functions[id(task), work]


class VectorizedRuns:
    """Trains several runs in compiled blocks of rounds.

    The runs are every setting of hyperparameters under every seed, those of one setting together:
    run = setting * number of seeds + seed. A state is `(weights, optimizer state, client states)`;
    leaves have a leading axis of runs, those of client states then one of the training clients.

    Args:
      tasks: The task under each seed: the same clients (or it is a ValueError), model and
        functions, other splits.
      build: `{hyperparameter: scalar} -> algorithm`; scalars are floats, or tensors inside a graph.
      settings: `{hyperparameter: value}` of each setting, all with the same names.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        build: Callable[[Mapping[str, Any]], Algorithm],
        settings: Sequence[Mapping[str, float]],
    ):
        if any(task.train.ids != tasks[0].train.ids for task in tasks):
            raise ValueError("Expected the same clients under every seed.")
        self._tasks, self._task, self._build = tuple(tasks), tasks[0], build
        self._num_runs = len(tasks) * len(settings)
        self._template = build(dict(settings[0]))
        # float32 [runs]
        self._hparams = {
            name: np.repeat(
                np.array([setting[name] for setting in settings], np.float32), len(tasks)
            )
            for name in settings[0]
        }
        self._stacks = functools.lru_cache(_MAX_CACHED_STACKS)(_grouped_stacks)
        self._block = Program(self._run_block)

    def initialize(self, algorithms: Sequence[Algorithm]) -> Nest:
        """Returns the first state of runs of these algorithms."""
        states = [self._initial_state(algorithm) for algorithm in algorithms]
        return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *states)

    def _initial_state(self, algorithm: Algorithm) -> Nest:
        weights, optimizer_state = base.initial_server_state(algorithm)
        if algorithm.initial_client_state is None:
            return weights, optimizer_state, ()
        states = [algorithm.initial_client_state(i) for i in range(len(self._task.train))]
        client_states = tf.nest.map_structure(lambda *leaves: np.stack(leaves), *states)
        return weights, optimizer_state, client_states

    def next(
        self,
        state: Nest,
        client_ids: tuple[str, ...],
        keys: np.ndarray,
        is_compiled: bool = True,
    ) -> tuple[Nest, list[list[dict[str, float]]], np.ndarray]:
        """Runs rounds of one cohort in one call.

        Args:
          keys: int32 [rounds, seeds, 2], the key of each round; at most `ROUNDS_PER_CALL` rounds.

        Returns:
          The state after the last round; the training means of each round and run; and int32
          [rounds, runs], the position of a client whose loss is not finite, else -1. The means of
          such a run are not finite either, and the other runs go on.
        """
        padded_keys = np.zeros((ROUNDS_PER_CALL, len(self._tasks), 2), np.int32)
        padded_keys[: len(keys)] = keys
        state, sums, diverged = self._block(
            is_compiled,
            tf.nest.map_structure(tf.convert_to_tensor, state),
            {name: tf.constant(values) for name, values in self._hparams.items()},
            [stack for _, stack in self._grouped(client_ids).groups],
            tf.constant(padded_keys),
            tf.constant(len(keys)),
        )
        sums = tf.nest.map_structure(lambda t: t.numpy(), sums)
        runs = range(self._num_runs)
        means = [[_means(sums, i, run) for run in runs] for i in range(len(keys))]
        return state, means, diverged.numpy()[: len(keys)]

    def numbers(self, client_ids: tuple[str, ...]) -> int:
        """Returns how many numbers the work of a round goes through in one run."""
        return self._grouped(client_ids).numbers

    def _grouped(self, client_ids: tuple[str, ...]) -> Grouped:
        times = self._num_runs * ROUNDS_PER_CALL
        sources = tuple(task.train for task in self._tasks)
        if len(client_ids) < len(self._task.train):
            return _cohorts_stack(sources, client_ids, self._template.work)
        return self._stacks(sources, client_ids, self._template.work, times)

    def _run_block(self, state, hparams, stacks, keys, num_rounds):
        """Runs up to `ROUNDS_PER_CALL` rounds; returns (state, sums, who diverged) by round."""
        shape = [ROUNDS_PER_CALL, self._num_runs]
        sums = learning.zero_sums(self._task, self._template.shares)
        log = tf.nest.map_structure(lambda t: tf.zeros(shape, t.dtype), (sums, tf.constant(0)))

        def body(i, carry):
            state, log = carry
            state, sums, diverged = self._round(state, hparams, stacks, keys[i])
            is_now = tf.equal(tf.range(ROUNDS_PER_CALL), i)[:, None]
            log = tf.nest.map_structure(
                lambda all_, value: tf.where(is_now, value[None], all_), log, (sums, diverged)
            )
            return state, log

        state, (sums, diverged) = base.repeat(num_rounds, body, (state, log))
        return state, sums, diverged

    def _round(self, state, hparams, stacks, keys):
        task, template = self._task, self._template
        weights, optimizer_state, client_states = state
        total: Any = None
        diverged = tf.fill([self._num_runs], -1)
        for stack in stacks:
            states = tf.nest.map_structure(
                lambda s, index=stack.index: tf.gather(s, index, axis=1), client_states
            )
            output = stacked_loop.run_stack(
                task,
                lambda h: self._build(h).work,
                template.work,
                hparams,
                weights,
                states,
                stack,
                keys,
            )
            # Of each run the weighted sum of updates, the sum of weights, the summed metrics.
            weighed = fedavg.weigh(output.update, output.weight), output.weight, output.metrics
            added = tf.nest.map_structure(lambda leaf: tf.reduce_sum(leaf, axis=1), weighed)
            total = added if total is None else tf.nest.map_structure(tf.add, total, added)
            diverged = tf.maximum(diverged, _diverged(output, stack.index))
            client_states = _scatter_clients(client_states, stack.index, output.client_state)
        update, weight, sums = total
        mean = fedavg.mean(update, weight)
        weights, optimizer_state = self._server_step(hparams, optimizer_state, weights, mean)
        return (weights, optimizer_state, client_states), sums, diverged

    def _server_step(self, hparams, optimizer_state, weights, update):
        def one_run(args):
            run_hparams, state, weights, update = args
            optimizer = self._build(run_hparams).server_optimizer
            return fedavg.server_step(optimizer, weights, state, update)

        runs = hparams, optimizer_state, weights, update
        if self._num_runs == 1:
            new = one_run(tf.nest.map_structure(lambda leaf: leaf[0], runs))
            return tf.nest.map_structure(lambda leaf: leaf[None], new)
        return stacked_loop.map_rows(one_run, runs)


class VectorizedTraining:
    """One run as a `base.TrainingProcess`; states are those of `VectorizedRuns`."""

    rounds_per_call = ROUNDS_PER_CALL

    def __init__(self, task: Task, algorithm: Algorithm, pays: Callable[[int, int], bool] = pays):
        self._task, self._algorithm, self._pays = task, algorithm, pays
        self._runs = VectorizedRuns([task], lambda _: algorithm, [{}])

    def initialize(self) -> Nest:
        """Returns the state before the first round."""
        return self._runs.initialize([self._algorithm])

    def next(
        self, state: Nest, rounds: Sequence[base.Round]
    ) -> tuple[Nest, list[base.RoundResult]]:
        """Runs rounds in a call, or the first of them in one and the others in another; see
        `base.TrainingProcess`.
        """
        numbers, results = self._runs.numbers(rounds[0].client_ids), []
        blocks = itertools.groupby(rounds, lambda round_: self._pays(round_.number, numbers))
        for is_compiled, block in blocks:
            state, new = self._next(state, list(block), is_compiled)
            results += new
        return state, results

    def _next(
        self, state: Nest, rounds: Sequence[base.Round], is_compiled: bool
    ) -> tuple[Nest, list[base.RoundResult]]:
        start, client_ids = time.perf_counter(), rounds[0].client_ids
        keys = np.stack([round_.key[None] for round_ in rounds])
        state, means, diverged = self._runs.next(state, client_ids, keys, is_compiled)
        seconds = (time.perf_counter() - start) / len(rounds)
        for round_, (position,) in zip(rounds, diverged, strict=True):
            if position >= 0:
                raise base.DivergedError(round_.number, self._task.train.ids[position])
        return state, [
            base.RoundResult(round_.number, len(client_ids), of_run, seconds)
            for round_, (of_run,) in zip(rounds, means, strict=True)
        ]

    def weights(self, state: Nest) -> Nest:
        """Returns the server's weights as NumPy arrays."""
        return tf.nest.map_structure(lambda w: np.asarray(w)[0], state[0])

    def client_states(self, state: Nest) -> dict[str, Nest]:
        """Returns the clients' own states by id as NumPy arrays."""
        if self._algorithm.initial_client_state is None:
            return {}
        states = tf.nest.map_structure(lambda s: np.asarray(s)[0], state[2])
        return {client_id: _row(states, i) for i, client_id in enumerate(self._task.train.ids)}


def _means(sums: learning.Sums, i: int, run: int) -> dict[str, float]:
    totals, weights = ({n: a[i, run] for n, a in half.items()} for half in sums)
    # In float32 as the sums are: `base.mean_metrics` would give tables other last digits.
    return {n: totals[n] / weights[n] if weights[n] else float("nan") for n in totals}


def _diverged(output: ClientOutput, index: tf.Tensor) -> tf.Tensor:
    """Returns for each run the largest index of a client whose loss is not finite, or -1."""
    finite = tf.math.is_finite(output.metrics.totals["loss"])
    return tf.reduce_max(tf.where(finite, -1, index[None]), axis=1)


def _scatter_clients(states: Nest, index: tf.Tensor, new: Nest) -> Nest:
    def scatter(all_, changed):
        by_client = tf.tensor_scatter_nd_update(
            tf.einsum("rc...->cr...", all_), index[:, None], tf.einsum("rc...->cr...", changed)
        )
        return tf.einsum("cr...->rc...", by_client)

    return tf.nest.map_structure(scatter, states, new)


def _row(nest: Nest, index: Any) -> Nest:
    """Returns `array[index]` of every array of a nest."""
    if isinstance(nest, np.ndarray):
        return nest[index]
    if isinstance(nest, dict):  # Metrics are, and `tf.nest` takes ten times as long.
        return {name: _row(inner, index) for name, inner in nest.items()}
    return tf.nest.map_structure(lambda array: array[index], nest)
