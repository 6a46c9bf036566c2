"""The TFF backend: client work in TensorFlow Federated's runtime.

Stateless algorithms become a `tff.learning.templates` process: a distributor, our client work, a
pluggable aggregator, and the server optimizer as finalizer. Evaluation is one federated map whose
results stay apart by client. Data reach a client as a sequence of one element, all of its
examples; where a source can load by id inside the graph, only ids cross the wire.
"""

import collections
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import numpy as np
import tensorflow as tf

from motley_tff.algorithms import fedavg
from motley_tff.backends import base, client_loop
from motley_tff.backends.tff.aggregators import MEAN, Aggregator
from motley_tff.backends.tff.workers import NUM_EXAMPLES, RemoteComputationError
from motley_tff.core import random_streams, tensor_random
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import ClientOutput, ClientWork
from motley_tff.core.clients import Clients
from motley_tff.core.lazy import tff
from motley_tff.core.task import Task

Nest = Any
# Clients whose results are held at once during an evaluation.
_EVALUATION_BLOCK = 64


class TffBackend:
    """Runs client work in TFF's current execution context; the aggregator is by default a mean."""

    name = "tff"
    yields_each_client = False

    def __init__(self, aggregator: Aggregator | None = None):
        self._aggregator = aggregator or MEAN
        self._maps: dict[Any, tff.Computation] = {}

    def training(self, task: Task, algorithm: Algorithm) -> base.TrainingProcess:
        """Returns the algorithm's training process; see `base.Backend`."""
        if algorithm.initial_client_state is not None:
            return TffStatefulTraining(task, algorithm, self._aggregator)
        return TffTraining(task, algorithm, self._aggregator)

    def map_clients(self, call: base.ClientCall) -> Iterator[tuple[str, Nest]]:
        """Yields each client's metrics; see `base.Backend`."""
        inputs = _ClientInputs(call.clients, call.work.parts)
        cache_key = (id(call.task), call.work, str(inputs.type))
        if cache_key not in self._maps:
            self._maps[cache_key] = _build_map(call, inputs)
        for first in range(0, len(call.client_ids), _EVALUATION_BLOCK):
            block = slice(first, first + _EVALUATION_BLOCK)
            ids = call.client_ids[block]
            values = zip(inputs.values(ids, call.key), call.states[block], strict=True)
            with _naming_unreadable(call.clients, ids):
                results = self._maps[cache_key](call.broadcast, list(values))
            yield from zip(ids, results, strict=True)


class _FederatedTraining:
    """What both kinds of training share: running a round and reading measurements."""

    rounds_per_call = 1

    def __init__(self, task: Task, algorithm: Algorithm):
        self._task = task
        self._inputs = _ClientInputs(task.train, algorithm.work.parts)

    def next(
        self, state: Nest, rounds: Sequence[base.Round]
    ) -> tuple[Nest, list[base.RoundResult]]:
        """Runs a round; see `base.TrainingProcess`."""
        (round_,), start = rounds, time.perf_counter()
        with _naming_unreadable(self._task.train, round_.client_ids):
            state, measured = self._next(state, round_)
        if measured["diverged_index"] >= 0:
            client_id = self._task.train.ids[measured["diverged_index"]]
            raise base.DivergedError(round_.number, client_id)
        means, seconds = base.mean_metrics(*measured["sums"]), time.perf_counter() - start
        return state, [base.RoundResult(round_.number, len(round_.client_ids), means, seconds)]

    def _next(self, state: Nest, round_: base.Round) -> tuple[Nest, Any]:
        """Runs a round; returns the state after it and what `_measured` measured."""
        raise NotImplementedError


@contextlib.contextmanager
def _naming_unreadable(clients: Clients, client_ids: Sequence[str]) -> Iterator[None]:
    """Where data cannot be read, raises a UserError that says whose: the worker's names none."""
    try:
        yield
    except (grpc.RpcError, RemoteComputationError):
        if clients.in_graph:
            for client_id in client_ids:
                clients.fetch(client_id)
        raise


class TffTraining(_FederatedTraining):
    """A `tff.learning.templates.LearningProcess`; states are its states."""

    def __init__(self, task: Task, algorithm: Algorithm, aggregator: Aggregator):
        super().__init__(task, algorithm)
        self._process = build_learning_process(task, algorithm, aggregator, self._inputs)

    def initialize(self) -> Nest:
        """Returns the state before the first round."""
        return self._process.initialize()

    def _next(self, state: Nest, round_: base.Round) -> tuple[Nest, Any]:
        output = self._process.next(state, self._inputs.values(round_.client_ids, round_.key))
        return output.state, output.metrics["client_work"]

    def weights(self, state: Nest) -> Nest:
        """Returns the server's weights as NumPy arrays."""
        return _arrays(state.global_model_weights.trainable)

    def client_states(self, state: Nest) -> dict[str, Nest]:
        """Returns nothing: the templates' clients keep no state."""
        return {}


class TffStatefulTraining(_FederatedTraining):
    """Training whose clients have a state, a CLIENTS-placed value in and out of every round.

    TFF's templates know no client state, so the round is two federated computations of its own,
    with the same aggregators: a map over the clients, and what the server makes of their updates.
    One for both would run the clients' work twice where it is spread over several workers. A state
    is `(weights, optimizer state, aggregator state, {id: state})`.
    """

    def __init__(self, task: Task, algorithm: Algorithm, aggregator: Aggregator):
        super().__init__(task, algorithm)
        self._algorithm = algorithm
        self._work, results_type = _build_stateful_work(task, algorithm, self._inputs)
        self._initial_aggregator, self._server_step = _build_server_step(
            algorithm, aggregator, results_type
        )

    def initialize(self) -> Nest:
        """Returns the state before the first round."""
        algorithm = self._algorithm
        assert algorithm.initial_client_state is not None
        states = {
            client_id: _arrays(algorithm.initial_client_state(i))
            for i, client_id in enumerate(self._task.train.ids)
        }
        server = _arrays(base.initial_server_state(algorithm))
        return *server, self._initial_aggregator(), states

    def _next(self, state: Nest, round_: base.Round) -> tuple[Nest, Any]:
        weights, optimizer_state, aggregator_state, states = state
        values = self._inputs.values(round_.client_ids, round_.key)
        cohort_states = [states[client_id] for client_id in round_.client_ids]
        results = self._work(weights, list(zip(values, cohort_states, strict=True)))
        server, aggregator_state, measured = self._server_step(
            (weights, optimizer_state), aggregator_state, [result for _, result in results]
        )
        new_states = (new_state for new_state, _ in results)
        states = {**states, **dict(zip(round_.client_ids, new_states, strict=True))}
        return (*server, aggregator_state, states), measured

    def weights(self, state: Nest) -> Nest:
        """Returns the server's weights as NumPy arrays."""
        return _arrays(state[0])

    def client_states(self, state: Nest) -> dict[str, Nest]:
        """Returns the clients' own states by id as NumPy arrays."""
        return {client_id: _arrays(client_state) for client_id, client_state in state[3].items()}


class _ClientInputs:
    """What crosses the wire for each client, and the computation that makes data of it."""

    def __init__(self, clients: Clients, parts: tuple[str, ...]):
        self._clients, self._parts = clients, parts
        data = tf.TensorSpec([], tf.string) if clients.in_graph else self._select(clients.spec)
        key, number = tf.TensorSpec([2], tf.int32), tf.TensorSpec([], tf.int32)
        self.type = type_of(_input(key, data, number, number, key))

    def values(self, client_ids: Sequence[str], round_key: np.ndarray) -> list[Nest]:
        """Returns one CLIENTS-placed value: a structure per client."""
        clients = self._clients
        return [
            _input(
                random_streams.client_key(i),
                i if clients.in_graph else self._select(clients.fetch(i)),
                np.int32(clients.index[i]),
                np.int32(clients.sizes.get(i, 0)),
                round_key,
            )
            for i in client_ids
        ]

    def unpack(self, value: Nest) -> Nest:
        """Inside a graph: replaces an id by the parts it stands for."""
        value = collections.OrderedDict(value)
        if self._clients.in_graph:
            value["data"] = self._select(self._clients.load(value["data"]))
        return value

    def _select(self, parts: Nest) -> Nest:
        """Returns the work's parts as ordered dictionaries, sorted: TFF's types are ordered."""
        return collections.OrderedDict(
            (part, collections.OrderedDict(sorted(parts[part].items())))
            for part in sorted(self._parts)
        )


def _input(client_key: Any, data: Any, index: Any, num_examples: Any, round_key: Any) -> Nest:
    client = {"client_key": client_key, "data": data, "index": index, NUM_EXAMPLES: num_examples}
    return collections.OrderedDict(client, round_key=round_key)


def type_of(nest: Nest) -> tff.Type:
    """Returns TFF's type of a nest of arrays, tensors or tensor specs."""

    def type_of_leaf(leaf: Any) -> tff.TensorType:
        dtype = tf.as_dtype(leaf.dtype)
        dtype = np.str_ if dtype == tf.string else dtype.as_numpy_dtype
        return tff.TensorType(dtype, list(leaf.shape))

    return tff.to_type(tf.nest.map_structure(type_of_leaf, nest))


def _arrays(nest: Nest) -> Nest:
    return tf.nest.map_structure(np.asarray, nest)


def _run(task: Task, work: ClientWork, broadcast: Nest, value: Nest, state: Nest) -> ClientOutput:
    """Runs one client inside a graph."""
    key = tensor_random.client_round_key(value["round_key"], value["client_key"])
    return client_loop.run_client(task, work, broadcast, state, value["data"], key, value["index"])


def _diverged_index(output: ClientOutput, value: Nest) -> tf.Tensor:
    """Returns the client's position if its loss is not finite, else -1."""
    return tf.where(tf.math.is_finite(output.metrics.totals["loss"]), -1, value["index"])


def _measured(sums: Nest, diverged: Nest) -> Nest:
    """Returns the measurements of a round, placed at the server, of those of the clients."""
    return tff.federated_zip(
        collections.OrderedDict(
            sums=tff.federated_sum(sums), diverged_index=tff.federated_max(diverged)
        )
    )


def _build_map(call: base.ClientCall, inputs: _ClientInputs) -> tff.Computation:
    """Returns `(broadcast, clients' (value, state) pairs) -> clients' metrics`."""
    pair_type = tff.to_type((inputs.type, type_of(call.states[0])))

    @tff.tensorflow.computation(type_of(call.broadcast), pair_type)
    def client_metrics(broadcast, pair):
        value, state = pair
        return _run(call.task, call.work, broadcast, inputs.unpack(value), state).metrics

    return _federated_map(client_metrics)


def _federated_map(computation: tff.Computation) -> tff.Computation:
    """Returns the map over clients of a `(broadcast, client's value) -> result`."""
    broadcast_type, value_type = computation.type_signature.parameter

    @tff.federated_computation(
        tff.FederatedType(broadcast_type, tff.SERVER), tff.FederatedType(value_type, tff.CLIENTS)
    )
    def every_client(broadcast, values):
        return tff.federated_map(computation, (tff.federated_broadcast(broadcast), values))

    return every_client


def build_learning_process(
    task: Task, algorithm: Algorithm, aggregator: Aggregator, inputs: _ClientInputs
) -> tff.learning.templates.LearningProcess:
    """Composes the algorithm's process from `tff.learning.templates`."""

    @tff.tensorflow.computation
    def initial_weights():
        weights = tf.nest.map_structure(tf.constant, algorithm.initial_weights)
        return tff.learning.models.ModelWeights(weights, ())

    weights_type = initial_weights.type_signature.result

    @tff.tensorflow.computation(inputs.type)
    def one_element(value):
        return tf.data.Dataset.from_tensors(inputs.unpack(value))

    data_type = one_element.type_signature.result
    work = _build_client_work(task, algorithm.work, weights_type, data_type)
    process = tff.learning.templates.compose_learning_process(
        initial_weights,
        tff.learning.templates.build_broadcast_process(weights_type),
        work,
        aggregator.process(weights_type.trainable, algorithm.groups),
        tff.learning.templates.build_apply_optimizer_finalizer(
            algorithm.server_optimizer, weights_type
        ),
    )
    return tff.simulation.compose_dataset_computation_with_learning_process(one_element, process)


def _build_client_work(
    task: Task, work: ClientWork, weights_type: tff.Type, data_type: tff.SequenceType
) -> tff.learning.templates.ClientWorkProcess:
    """Returns the algorithm's work as a `ClientWorkProcess` without state."""

    @tff.tensorflow.computation(weights_type, data_type)
    def one_client(weights, dataset):
        value = dataset.get_single_element()
        output = _run(task, work, weights.trainable, value, ())
        return (
            tff.learning.templates.ClientResult(output.update, output.weight),
            output.metrics,
            _diverged_index(output, value),
        )

    @tff.federated_computation
    def initialize():
        return tff.federated_value((), tff.SERVER)

    @tff.federated_computation(
        initialize.type_signature.result,
        tff.FederatedType(weights_type, tff.CLIENTS),
        tff.FederatedType(data_type, tff.CLIENTS),
    )
    def next_round(state, weights, datasets):
        result, sums, diverged = tff.federated_map(one_client, (weights, datasets))
        return tff.templates.MeasuredProcessOutput(state, result, _measured(sums, diverged))

    return tff.learning.templates.ClientWorkProcess(initialize, next_round)


def _build_stateful_work(
    task: Task, algorithm: Algorithm, inputs: _ClientInputs
) -> tuple[tff.Computation, tff.Type]:
    """Returns (`(weights, clients' (value, state)) -> clients' (new state, result)`, result type).

    A result is `(update, weight, metrics, position if the client diverged)`.
    """
    assert algorithm.initial_client_state is not None
    weights_type = type_of(_arrays(algorithm.initial_weights))
    state_type = type_of(_arrays(algorithm.initial_client_state(0)))

    @tff.tensorflow.computation(weights_type, tff.to_type((inputs.type, state_type)))
    def one_client(weights, pair):
        value, state = pair
        value = inputs.unpack(value)
        output = _run(task, algorithm.work, weights, value, state)
        result = output.update, output.weight, output.metrics, _diverged_index(output, value)
        return output.client_state, result

    return _federated_map(one_client), one_client.type_signature.result[1]


def _build_server_step(
    algorithm: Algorithm, aggregator: Aggregator, results_type: tff.Type
) -> tuple[tff.Computation, tff.Computation]:
    """Returns (computation of the aggregator's first state, computation of a round's end).

    The latter: `(server, aggregator's state, clients' results) -> (server, aggregator's state,
    measurements)`.
    """
    weights_type, optimizer_type = map(type_of, _arrays(base.initial_server_state(algorithm)))
    server_type = tff.to_type((weights_type, optimizer_type))
    aggregation = aggregator.process(weights_type, algorithm.groups)

    @tff.tensorflow.computation(server_type, weights_type)
    def apply(server, update):
        weights, optimizer_state = server
        return fedavg.server_step(algorithm.server_optimizer, weights, optimizer_state, update)

    @tff.federated_computation(
        tff.FederatedType(server_type, tff.SERVER),
        aggregation.initialize.type_signature.result,
        tff.FederatedType(results_type, tff.CLIENTS),
    )
    def server_step(server, aggregator_state, results):
        update, weight, sums, diverged = results
        aggregated = aggregation.next(aggregator_state, update, weight)
        server = tff.federated_map(apply, (server, aggregated.result))
        return server, aggregated.state, _measured(sums, diverged)

    return aggregation.initialize, server_step
