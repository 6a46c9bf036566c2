"""The vectorized backend: clients stacked on a leading axis, many rounds in one compiled call.

For models and data that fit, linear models first: XLA fuses the small arithmetic of all clients of
a round, the aggregation and the server's step, and no Python runs between rounds.
"""

import time
from collections.abc import Iterator, Sequence
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


class VectorizedBackend:
    """Runs stacks of clients in this process."""

    name = "vectorized"

    def __init__(self) -> None:
        self._stacks: dict[Any, list[tuple[np.ndarray, stacking.Stack]]] = {}
        self._functions: dict[Any, Any] = {}

    def training(
        self, task: task_lib.Task, algorithm: algorithm_lib.Algorithm
    ) -> "VectorizedTraining":
        """Returns the algorithm's training process; see `base.Backend`."""
        return VectorizedTraining(self, task, algorithm)

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
        function = self._map_function(task, work)
        broadcast = tf.nest.map_structure(tf.convert_to_tensor, broadcast)
        results: list[Nest] = [None] * len(client_ids)
        for positions, stack in self.grouped(clients, tuple(client_ids), work):
            metrics = function(broadcast, stack, tf.constant(key, tf.int32))
            metrics = tf.nest.map_structure(lambda t: t.numpy(), metrics)
            for row, position in enumerate(positions):
                results[position] = _row(metrics, row)
        yield from zip(client_ids, results, strict=True)

    def _map_function(self, task, work):
        if (id(task), work) not in self._functions:

            def run(broadcast, stack, key):
                return stacked_loop.run_stack(task, work, broadcast, (), stack, key).metrics

            self._functions[id(task), work] = tf.function(run, jit_compile=True, autograph=False)
        return self._functions[id(task), work]

    def grouped(
        self, clients: clients_lib.Clients, ids: tuple[str, ...], work: client_work.ClientWork
    ) -> list[tuple[np.ndarray, stacking.Stack]]:
        """Returns (positions in `ids`, stack of tensors) of groups of similar clients."""
        cache_key = (id(clients), ids, work)
        if cache_key not in self._stacks:
            whole = stacking.build(clients, ids, work.parts)
            self._stacks = {k: v for k, v in self._stacks.items() if k[2] is not work}
            self._stacks[cache_key] = [
                (positions, _tensors(stacking.take(whole, positions)))
                for positions in stacking.groups(stacking.batches(whole.sizes, work))
            ]
        return self._stacks[cache_key]


class VectorizedTraining:
    """Training in compiled blocks of rounds.

    A state is `(weights, optimizer state, client states)`, the last stacked in the order of the
    task's clients.
    """

    def __init__(
        self,
        backend: VectorizedBackend,
        task: task_lib.Task,
        algorithm: algorithm_lib.Algorithm,
    ):
        self._backend, self._task, self._algorithm = backend, task, algorithm
        self._block = tf.function(self._run_block, jit_compile=True, autograph=False)

    def initialize(self) -> Nest:
        """Returns the state before the first round."""
        algorithm = self._algorithm
        weights = tf.nest.map_structure(tf.convert_to_tensor, algorithm.initial_weights)
        specs = tf.nest.map_structure(lambda w: tf.TensorSpec(w.shape, w.dtype), weights)
        optimizer_state = tf.nest.map_structure(
            tf.convert_to_tensor, algorithm.server_optimizer.initialize(specs)
        )
        return weights, optimizer_state, self._initial_client_states()

    def _initial_client_states(self) -> Nest:
        if self._algorithm.initial_client_state is None:
            return ()
        states = [self._algorithm.initial_client_state(i) for i in range(len(self._task.train))]
        return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *states)

    def run(
        self, state: Nest, rounds: Sequence[base.Round], on_round: base.OnRound
    ) -> Nest:
        """Runs rounds in compiled blocks; see `base.TrainingProcess`."""
        state = tf.nest.map_structure(tf.convert_to_tensor, state)
        for block in _blocks(rounds):
            state = self._run(state, block, on_round)
        return state

    def weights(self, state: Nest) -> Nest:
        """Returns the server's weights as NumPy arrays."""
        return tf.nest.map_structure(np.asarray, state[0])

    def _run(self, state, block, on_round):
        start = time.perf_counter()
        groups = self._backend.grouped(
            self._task.train, block[0].client_ids, self._algorithm.work
        )
        keys = np.zeros((_ROUNDS_PER_CALL, 2), np.int32)
        keys[: len(block)] = [one.key for one in block]
        stacks = [stack for _, stack in groups]
        new_state, sums, diverged = self._block(
            state, stacks, tf.constant(keys), tf.constant(len(block))
        )
        seconds = (time.perf_counter() - start) / len(block)
        sums = tf.nest.map_structure(lambda t: t.numpy(), sums)
        for i, one in enumerate(block):
            if diverged[i] >= 0:
                raise base.DivergedError(one.number, self._task.train.ids[int(diverged[i])])
            means = base.mean_metrics(_row(sums.totals, i), _row(sums.weights, i))
            result = base.RoundResult(one.number, len(one.client_ids), means, seconds)
            on_round(result, new_state if one is block[-1] else None)
        return new_state

    def _run_block(self, state, stacks, keys, num_rounds):
        """Runs up to `_ROUNDS_PER_CALL` rounds; returns (state, sums by round, who diverged)."""
        shape = [_ROUNDS_PER_CALL]
        sums = learning.zero_sums(self._task)
        log = tf.nest.map_structure(lambda t: tf.zeros(shape, t.dtype), (sums, tf.constant(0)))

        def body(i, carry):
            state, log = carry
            state, sums, diverged = self._round(state, stacks, keys[i])
            is_now = tf.equal(tf.range(_ROUNDS_PER_CALL), i)
            log = tf.nest.map_structure(
                lambda all_, one: tf.where(is_now, one, all_), log, (sums, diverged)
            )
            return state, log

        state, (sums, diverged) = stacked_loop.repeat(num_rounds, body, (state, log))
        return state, sums, diverged

    def _round(self, state, stacks, key):
        weights, optimizer_state, client_states = state
        work, optimizer = self._algorithm.work, self._algorithm.server_optimizer
        total: Any = None
        diverged = tf.constant(-1)
        for stack in stacks:
            mine = tf.nest.map_structure(lambda s: tf.gather(s, stack.index), client_states)  # noqa: B023
            output = stacked_loop.run_stack(self._task, work, weights, mine, stack, key)
            total = _add(total, self._sum(output))
            diverged = tf.maximum(diverged, _diverged(output, stack.index))
            client_states = tf.nest.map_structure(
                lambda s, new: tf.tensor_scatter_nd_update(s, stack.index[:, None], new),  # noqa: B023
                client_states,
                output.client_state,
            )
        update, weight, sums = total
        if self._algorithm.aggregation == "weighted_mean":
            update = tf.nest.map_structure(lambda u: tf.math.divide_no_nan(u, weight), update)
        optimizer_state, weights = optimizer.next(optimizer_state, weights, update)
        return (weights, optimizer_state, client_states), sums, diverged

    def _sum(self, output):
        """Returns (weighted sum of updates, sum of weights, summed metrics) over a stack."""
        weight = output.weight
        if self._algorithm.aggregation == "sum":
            weight = tf.ones_like(weight)
        update = tf.nest.map_structure(lambda u: tf.tensordot(weight, u, 1), output.update)
        sums = tf.nest.map_structure(lambda m: tf.reduce_sum(m, axis=0), output.metrics)
        return update, tf.reduce_sum(weight), sums


def _diverged(output, index):
    """Returns the largest index of a client whose loss is not finite, or -1."""
    finite = tf.math.is_finite(output.metrics.totals["loss"])
    return tf.reduce_max(tf.where(finite, -1, index))


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
