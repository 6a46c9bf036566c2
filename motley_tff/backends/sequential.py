"""The sequential backend: one compiled function per client, several clients at once.

Clients of a cohort run in a few threads of this process, one client a thread, the largest first, so
that no thread waits long for the last. Their updates are added in that order, so that results do
not depend on how many run at once. Memory holds the clients that are running, a few results that
wait for their turn, and nothing else of the cohort.
"""

import concurrent.futures
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from motley_tff.algorithms import fedavg
from motley_tff.backends import base, client_loop
from motley_tff.core import (
    clients as clients_lib,
    random_streams,
    robust_mean,
    tensor_random,
)
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import ClientOutput
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task

Nest = Any
T = TypeVar("T")
# Examples of a function's call for nothing: enough for whole batches, little for a large client.
_WARM_UP_ROWS = 256
# Clients a thread that run or wait for their turn; what waits takes memory. By the sizes of
# EMNIST's writers, 100 clients took 8 threads 1.27 times their work where one client more than
# threads was held, and 1.02 times with two a thread; with more no less.
_HELD = 2


class SequentialBackend:
    """Runs client work in this process, `parallel_clients` at once."""

    name = "sequential"
    yields_each_client = True

    def __init__(
        self, parallel_clients: int = 1, robust: str | None = None, trim_share: float = 0.0
    ):
        """`robust` is a name of `robust_mean`, or None for the weighted mean."""
        self._threads, self.robust, self.trim_share = parallel_clients, robust, trim_share
        self._functions: dict[Any, Callable[..., ClientOutput]] = {}
        self._warm: set[Callable[..., ClientOutput]] = set()
        self._warming = threading.Lock()

    def training(self, task: Task, algorithm: Algorithm) -> "SequentialTraining":
        """Returns the algorithm's training process; see `base.Backend`."""
        return SequentialTraining(self, task, algorithm)

    def map_clients(self, call: base.ClientCall) -> Iterator[tuple[str, Nest]]:
        """Yields each client's metrics; see `base.Backend`."""
        for client_id, output in zip(call.client_ids, self.run_clients(call), strict=True):
            yield client_id, tf.nest.map_structure(lambda t: t.numpy(), output.metrics)

    def run_clients(
        self, call: base.ClientCall, seconds: list[float] | None = None
    ) -> Iterator[ClientOutput]:
        """Yields each client's output (eager tensors) in order, holding a few at a time; what each
        took is appended to `seconds`.
        """
        task, work, clients = call.task, call.work, call.clients
        broadcast = tf.nest.map_structure(tf.convert_to_tensor, call.broadcast)
        # Traced once for a work and a client type.
        spec = tuple((p, tuple(clients.spec[p].items())) for p in work.parts)
        cache_key = (id(task), work, spec)
        if cache_key not in self._functions:
            self._functions[cache_key] = _compile(
                task, work, broadcast, clients.spec, call.states[0]
            )
        function = self._functions[cache_key]
        round_key = tf.constant(call.key, tf.int32)

        def run(client_id: str, state: Nest) -> ClientOutput:
            parts = clients.fetch(client_id)
            arguments = (
                broadcast,
                tf.nest.map_structure(tf.convert_to_tensor, state),
                {part: dict(parts[part]) for part in work.parts},
                round_key,
                tf.constant(random_streams.client_key(client_id)),
                # Of a Python number TensorFlow would keep the tensor, one a client, for ever.
                tf.constant(np.int32(clients.index[client_id])),
            )
            try:
                if seconds is not None:
                    self._warm_up(function, arguments)
                start = time.perf_counter()
                output = function(*arguments)
            except tf.errors.InvalidArgumentError as error:
                reason = f"examples that cannot be used ({clients_lib.reason(error)})"
                advice = "mend or leave out that client's data"
                raise UserError(f"client {client_id!r}", reason, advice=advice) from error
            if seconds is not None:
                seconds.append(time.perf_counter() - start)
            return output

        arguments = list(zip(call.client_ids, call.states, strict=True))
        sizes = [clients.sizes.get(client_id, 0) for client_id in call.client_ids]
        order = _begun_in_order(sizes, self._threads)
        return _ordered_map(run, arguments, order, self._threads)

    def _warm_up(self, function: Callable[..., ClientOutput], arguments: Sequence[Nest]) -> None:
        """Has a function's first call over, on some of a client's examples and for nothing: that
        TensorFlow makes its graph ready then is not what a client takes.
        """
        if tf.config.functions_run_eagerly():  # There is no graph.
            return
        with self._warming:  # Or other threads would wait for that inside their own calls.
            if function in self._warm:
                return
            broadcast, state, parts, *others = arguments
            some = tf.nest.map_structure(lambda values: values[:_WARM_UP_ROWS], parts)
            function(broadcast, state, some, *others)
            self._warm.add(function)


class SequentialTraining:
    """Training in this process; a state is `(weights, optimizer state, {client id: state})`."""

    rounds_per_call = 1

    def __init__(self, backend: SequentialBackend, task: Task, algorithm: Algorithm):
        self._backend, self._task, self._algorithm = backend, task, algorithm
        self._weigh = tf.function(_weigh, autograph=False)
        self._add: Callable[..., Nest] | None = None  # Compiled for the first output.
        self._step = tf.function(self._server_step, autograph=False)

    def initialize(self) -> Nest:
        """Returns the state before the first round."""
        algorithm = self._algorithm
        first = algorithm.initial_client_state
        states = {c: first(i) for i, c in enumerate(self._task.train.ids)} if first else {}
        return *base.initial_server_state(algorithm), states

    def next(
        self, state: Nest, rounds: Sequence[base.Round]
    ) -> tuple[Nest, list[base.RoundResult]]:
        """Runs a round; see `base.TrainingProcess`."""
        (round_,), start = rounds, time.perf_counter()
        weights, optimizer_state = tf.nest.map_structure(tf.convert_to_tensor, state[:2])
        call = self._client_call(weights, state[2], round_)
        client_states, server_seconds = dict(state[2]), 0.0
        client_seconds: list[float] = []
        total: Any = None
        updates: list[Nest] = []
        # Each client starts from the server's weights and trains.
        outputs = self._backend.run_clients(call, client_seconds)
        for client_id, output in zip(call.client_ids, outputs, strict=True):
            if not np.isfinite(output.metrics.totals["loss"]):
                raise base.DivergedError(round_.number, client_id)
            add = self._warm_up(weights, optimizer_state, output)
            added_at = time.perf_counter()
            if self._backend.robust:  # The median needs all updates, the mean their sum.
                updates.append(output.update)
                output = output._replace(update=())
            total = self._weigh(output) if total is None else add(total, output)
            if call.client_states is not None:
                client_states[client_id] = output.client_state
            server_seconds += time.perf_counter() - added_at
        # The server takes a step along the mean of the updates.
        stepped_at = time.perf_counter()
        update, weight, sums = total
        if self._backend.robust:
            update = self._combine(self._backend.robust, updates, weight)
        weights, optimizer_state = self._step(weights, optimizer_state, update, weight)
        means = base.mean_metrics(sums.totals, sums.weights)
        end = time.perf_counter()
        server_seconds += end - stepped_at
        result = base.RoundResult(
            round_.number, len(call.client_ids), means, end - start, max(client_seconds),
            server_seconds,
        )  # fmt: skip
        return (weights, optimizer_state, client_states), [result]

    def weights(self, state: Nest) -> Nest:
        """Returns the server's weights as NumPy arrays."""
        return tf.nest.map_structure(lambda w: np.asarray(w), state[0])

    def client_states(self, state: Nest) -> dict[str, Nest]:
        """Returns the clients' own states by id as NumPy arrays."""
        return tf.nest.map_structure(np.asarray, state[2])

    def _client_call(
        self, weights: Nest, client_states: Mapping[str, Nest], round_: base.Round
    ) -> base.ClientCall:
        """Returns the work of a round's clients, of which the largest is the first."""
        train, stateful = self._task.train, self._algorithm.initial_client_state is not None
        ids = sorted(round_.client_ids, key=lambda i: -train.sizes.get(i, 0))
        states = [client_states[i] for i in ids] if stateful else None
        work = self._algorithm.work
        return base.ClientCall(self._task, work, weights, train, ids, round_.key, states)

    def _warm_up(
        self, weights: Nest, optimizer_state: Nest, output: ClientOutput
    ) -> Callable[..., Nest]:
        """Returns `_add`, compiled. Has the server's first calls over, on one output and for
        nothing: tracing is not what a round takes.
        """
        if self._add:
            return self._add
        name = self._backend.robust
        added = output._replace(update=()) if name else output
        first = self._weigh(added)
        add = _concrete(tf.function(_add, autograph=False), first, added)
        update, weight, _ = add(first, added)
        if name:
            update = self._combine(name, [output.update], weight)
        self._step(weights, optimizer_state, update, weight)
        self._add = add
        return add

    def _combine(self, name: str, updates: Sequence[Nest], weight: tf.Tensor) -> Nest:
        """Returns the robust mean of the clients' updates times their weight, by which the server's
        step divides.
        """
        share = self._backend.trim_share
        return tf.nest.map_structure(
            lambda *leaves: weight * robust_mean.combine(name, share, tf.stack(leaves)), *updates
        )

    def _server_step(self, weights, optimizer_state, update, weight):
        optimizer, mean = self._algorithm.server_optimizer, fedavg.mean(update, weight)
        return fedavg.server_step(optimizer, weights, optimizer_state, mean)


def _weigh(output: ClientOutput) -> Nest:
    """Returns a client's update times its weight, its weight and its sums."""
    return fedavg.weigh(output.update, output.weight), output.weight, output.metrics


def _add(total: Nest, output: ClientOutput) -> Nest:
    """Returns the total with a client's."""
    return tf.nest.map_structure(tf.add, total, _weigh(output))


def _compile(task, work, broadcast, spec, state):
    """Returns a client function for the given types."""

    def run(broadcast, state, parts, round_key, client_key, index):
        key = tensor_random.client_round_key(round_key, client_key)
        return client_loop.run_client(task, work, broadcast, state, parts, key, index)

    key_type = tf.TensorSpec([2], tf.int32)
    signature = (
        *tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), (broadcast, state)),
        {part: dict(spec[part]) for part in work.parts},
        *(key_type, key_type, tf.TensorSpec([], tf.int32)),
    )
    return _concrete(tf.function(run, input_signature=signature, autograph=False))


def _concrete(function, *arguments):
    """Returns a function that does not look at every argument's type again, a millisecond a call.

    Where TensorFlow is told to run functions eagerly, to debug one or in tests, this one is, too.
    """
    if tf.config.functions_run_eagerly():
        return function
    return function.get_concrete_function(*arguments)


def _ordered_map(
    function: Callable[..., T], arguments: Sequence[tuple], order: Sequence[int], threads: int
) -> Iterator[T]:
    """Maps in `threads` threads and yields the results in the order of the arguments.

    At most `_HELD` calls a thread have begun and are not yet yielded, so that a large client keeps
    no other thread waiting. `order` has the positions as they begin; see `_begun_in_order`.
    """
    if threads == 1:
        yield from itertools.starmap(function, arguments)
        return
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        held: dict[int, concurrent.futures.Future[T]] = {}
        waiting = iter(order)
        try:
            for position in range(len(arguments)):
                for i in itertools.islice(waiting, _HELD * threads - len(held)):
                    held[i] = pool.submit(function, *arguments[i])
                yield held.pop(position).result()
        finally:
            for future in held.values():
                future.cancel()


def _begun_in_order(sizes: Sequence[int], threads: int) -> list[int]:
    """Returns the order in which clients begin: as they come, but the largest of the last ones
    first, so that all threads end at about the same time. The last ones are held together.
    """
    first = max(0, len(sizes) - _HELD * threads)
    last = sorted(range(first, len(sizes)), key=lambda i: -sizes[i])
    return [*range(first), *last]
