"""What a training algorithm and a personalization are, for every backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from motley_tff.core.client_work import ClientWork
from motley_tff.core.lazy import tf

Nest = Any


# (server weights, client state) -> model weights
PersonalModel = Callable[[Nest, Nest], tuple[Any, ...]]


class ServerOptimizer(Protocol):
    """The server's part, with the signature of `tff.learning.optimizers.Optimizer`.

    TFF's own optimizers fit as they are; an algorithm that does more (a step per cluster, a
    relationship matrix) wraps one.
    """

    def initialize(self, specs: Nest) -> Nest:
        """Returns the first state for weights of these shapes and types."""

    def next(self, state: Nest, weights: Nest, gradients: Nest) -> tuple[Nest, Nest]:
        """Returns (new state, new weights) after an aggregated update."""


class AdjustedOptimizer:
    """The server optimizer of a model that is the first of the server's weights.

    `(mean update, *others of the weights) -> (what the model's optimizer gets, *others)`, `adjust`,
    sees to the rest.
    """

    def __init__(self, optimizer: ServerOptimizer, adjust: Callable[..., Nest]):
        self._optimizer, self._adjust = optimizer, adjust

    def initialize(self, specs: Nest) -> Nest:
        """Returns the model's optimizer's first state."""
        return self._optimizer.initialize(specs[0])

    def next(self, state: Nest, weights: Nest, update: Nest) -> tuple[Nest, Nest]:
        """Returns (new state, new weights)."""
        model, *others = weights
        direction, *others = self._adjust(update, *others)
        state, model = self._optimizer.next(state, model, direction)
        return state, (tuple(model), *others)


class Communicated(NamedTuple):
    """Nests of arrays of the sizes that cross the wire for one client."""

    down: Nest
    up: Nest


class Bytes(NamedTuple):
    """How much was sent to clients, and how much they sent back."""

    down: int
    up: int


NO_BYTES = Bytes(0, 0)


@dataclasses.dataclass(frozen=True)
class Groups:
    """How an update falls into groups that are aggregated apart, each with weights of its own.

    What bounds or quantizes a client's update (TFF's aggregators) then does so to one group at a
    time. The plain mean is linear: it gives the same with and without groups.

    Attributes:
      split: `(update, weight) -> ((value, weight), ...)`, a pair a group. A client outside a group
        has a value of zeros and weight 0 there.
      join: `(means, totals) -> update`: the groups' means (zeros for a group without clients) and
        the partial groups' total weights, in order, to the mean of the whole updates.
      is_partial: For each group, whether clients may be outside.
    """

    split: Callable[[Nest, tf.Tensor], tuple[tuple[Nest, tf.Tensor], ...]]
    join: Callable[[Sequence[Nest], Sequence[tf.Tensor]], Nest]
    is_partial: tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A federated training algorithm: client work and a server optimizer.

    The optimizer gets the mean of the clients' updates, weighted by their weights.

    Attributes:
      initial_weights: What the server starts from and broadcasts: the model's weights, or any
        nest of float arrays (k models stacked, a matrix of local models).
      initial_client_state: `client index -> state`, for stateful algorithms only.
      global_model: `server weights -> model weights`, the model that is exported and that
        personalization starts from.
      cluster_models: `server weights -> every cluster's model`, which are exported, too.
      own_state: `client state -> that of which the personal model, its scoring and the matrices
        are made`, where clients keep more.
      matrices: `states of all training clients -> {name: [clients, clients]}`, what relates the
        clients to each other; each becomes a CSV file.
      shares: Names of sums beside the loss and the metrics that the work's metrics hold (the share
        of clients in each cluster, say); their means become columns of `rounds.csv`.
      communicated: For counting bytes; by default `initial_weights` both ways.
      groups: The groups of an update; by default it is one.
      bytes_since: `rounds since the server's weights were a client's (None: never) -> bytes of a
        broadcast and of an update`, where that depends on it; else None.
      rates: `a round's number -> {column of rounds.csv: rate}`; None where rates stay the same.
    """

    name: str
    initial_weights: Nest
    work: ClientWork
    server_optimizer: ServerOptimizer
    initial_client_state: Callable[[int], Nest] | None = None
    global_model: Callable[[Nest], tuple[np.ndarray, ...]] = lambda weights: weights
    cluster_models: Callable[[Nest], Sequence[tuple[np.ndarray, ...]]] | None = None
    personal_model: PersonalModel | None = None
    own_state: Callable[[Nest], Nest] = lambda state: state
    matrices: Callable[[Sequence[Nest]], Mapping[str, np.ndarray]] | None = None
    shares: tuple[str, ...] = ()
    communicated: Communicated | None = None
    groups: Groups | None = None
    bytes_since: Callable[[int | None], Bytes] | None = None
    rates: Callable[[int], Mapping[str, float | None]] | None = None

    @property
    def bytes_per_client(self) -> Bytes:
        """Bytes of one broadcast and of one update."""
        sides = self.communicated or Communicated(self.initial_weights, self.initial_weights)
        sizes = (sum(int(np.asarray(a).nbytes) for a in tf.nest.flatten(nest)) for nest in sides)
        return Bytes(*sizes)


@dataclasses.dataclass(frozen=True)
class Personalization:
    """A way to personalize: client work that scores every candidate on held-out parts.

    The work's metrics are `{"curves": {part: {name: float32 [num_candidates]}}, "num_examples":
    {part: int32}, "example_sums": {part: {"values": float32 [capacity, num_candidates], "weights":
    float32 [capacity]}}}`, where the names are the task's metrics and `loss`, and the sums those of
    `core.paired`; with an int32 `cluster` (0-based) where clients belong to one.

    Attributes:
      candidates: Labels; candidate 0 is the baseline, the global model as it came.
      work: `evaluation parts, personalization part -> client work`; its broadcast is the global
        model's weights, or the server's weights as they are. The work of a training algorithm with
        client states gets those as well.
      wants_server_weights: Which of the two.
      scores_train: Whether silos are also scored on their training part.
    """

    name: str
    candidates: tuple[str, ...]
    work: Callable[[tuple[str, ...], str], ClientWork]
    wants_server_weights: bool = False
    scores_train: bool = False
