"""What a backend offers, and the pieces that all of them use."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import ClientWork
from motley_tff.core.clients import Clients
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task

Nest = Any


class Round(NamedTuple):
    """One round to run.

    Attributes:
      number: 1-based.
      client_ids: The cohort, in order.
      key: int32 [2].
    """

    number: int
    client_ids: tuple[str, ...]
    key: np.ndarray


class RoundResult(NamedTuple):
    """What is known after a round: its number, the cohort's size, the wall time.

    Attributes:
      means: Weighted mean over the cohort's training entries of the loss and each metric, each
        batch under the weights it was trained from.
      slowest_client_seconds: What the slowest client of the cohort took to train; None where
        clients are not trained one by one.
      server_seconds: What adding updates up and the server's step took; None likewise.
    """

    number: int
    num_clients: int
    means: dict[str, float]
    seconds: float
    slowest_client_seconds: float | None = None
    server_seconds: float | None = None


class ClientCall(NamedTuple):
    """Client work to run on some clients of a source, such as a personalization's.

    Attributes:
      key: int32 [2], the random key of this round or evaluation.
      client_states: The clients' states, where the work wants them.
      times: Which time it is that such work is done, from 1 on: a backend may compile what is done
        often. A resumed run says the same.
    """

    task: Task
    work: ClientWork
    broadcast: Nest
    clients: Clients
    client_ids: Sequence[str]
    key: np.ndarray
    client_states: Sequence[Nest] | None = None
    times: int = 1

    @property
    def states(self) -> Sequence[Nest]:
        """The clients' states, `()` of clients without one."""
        return self.client_states or [()] * len(self.client_ids)


class TrainingProcess(Protocol):
    """A training algorithm on one backend. States are opaque nests of arrays.

    Attributes:
      rounds_per_call: How many rounds of one cohort `next` can run, 1 or more.
    """

    rounds_per_call: int

    def initialize(self) -> Nest:
        """Returns the state before the first round; also the structure checkpoints load into."""

    def next(self, state: Nest, rounds: Sequence[Round]) -> tuple[Nest, list[RoundResult]]:
        """Runs rounds: in each the cohort trains, its updates are averaged, the server steps.

        Args:
          rounds: Consecutive rounds of one cohort, see `by_call`.

        Returns:
          The state after the last round, and what is known of each.

        Raises:
          DivergedError: If a client's training loss is not finite; `state` stays as it was.
        """

    def weights(self, state: Nest) -> Nest:
        """Returns the server's weights as NumPy arrays."""

    def client_states(self, state: Nest) -> dict[str, Nest]:
        """Returns the clients' own states by id as NumPy arrays; none of a stateless algorithm."""


class Backend(Protocol):
    """A way to run client work. All backends give the same numbers, to float tolerance.

    Attributes:
      yields_each_client: Whether `map_clients` gives each client as soon as it is done, with
        numbers that do not depend on which clients share a call.
    """

    name: str
    yields_each_client: bool

    def training(self, task: Task, algorithm: Algorithm) -> TrainingProcess:
        """Returns the algorithm's training process over the task's training clients."""

    def map_clients(self, call: ClientCall) -> Iterator[tuple[str, Nest]]:
        """Yields (client id, the work's metrics as NumPy arrays) in the order of the call."""


def by_call(rounds: Iterable[Round], rounds_per_call: int) -> Iterator[list[Round]]:
    """Yields consecutive rounds of one cohort, as many as one call can run; reads no further."""
    for _, cohort_rounds in itertools.groupby(rounds, lambda round_: round_.client_ids):
        while block := list(itertools.islice(cohort_rounds, rounds_per_call)):
            yield block


class DivergedError(UserError):
    """A client's training loss is not finite."""

    def __init__(self, round_number: int, client_id: str):
        place = f"round {round_number}, client {client_id!r}"
        advice = "lower the learning rates or look at that client's data: what was saved is kept"
        super().__init__(place, "a training loss not finite", advice=advice)


def mean_metrics(totals: Mapping[str, Any], weights: Mapping[str, Any]) -> dict[str, float]:
    """Returns total / weight of scalars by name, not-a-number over nothing."""
    pairs = {name: (float(total), float(weights[name])) for name, total in totals.items()}
    return {n: total / weight if weight else float("nan") for n, (total, weight) in pairs.items()}


def initial_server_state(algorithm: Algorithm) -> tuple[Nest, Nest]:
    """Returns (weights, the server optimizer's state) before the first round, as tensors."""
    weights = tf.nest.map_structure(tf.convert_to_tensor, algorithm.initial_weights)
    specs = tf.nest.map_structure(lambda w: tf.TensorSpec(w.shape, w.dtype), weights)
    state = algorithm.server_optimizer.initialize(specs)
    return weights, tf.nest.map_structure(tf.convert_to_tensor, state)


def repeat(
    times: Any,
    body: Callable[[tf.Tensor, Nest], Nest],
    carry: Nest,
    wrap: Callable[[Callable[..., Nest]], Callable[..., Nest]] = lambda function: function,
) -> Nest:
    """Folds `body(i, carry) -> carry` over `range(times)` in a graph, one iteration at a time."""
    carry = tf.nest.map_structure(tf.convert_to_tensor, carry)

    def next_carry(i, carry):
        return i + 1, tf.nest.map_structure(tf.convert_to_tensor, body(i, carry))

    _, carry = tf.while_loop(
        lambda i, _: i < times, wrap(next_carry), (tf.constant(0), carry), parallel_iterations=1
    )
    return carry
