"""What a backend offers, and the pieces that all of them use."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from motley_tff.core import algorithm as algorithm_lib
from motley_tff.core import client_work
from motley_tff.core import clients as clients_lib
from motley_tff.core import task as task_lib
from motley_tff.core.errors import UserError

Nest = Any


class Round(NamedTuple):
    """One round to run.

    Attributes:
      number: 1-based.
      client_ids: The cohort, in order.
      key: int32 [2], the round's random key.
    """

    number: int
    client_ids: tuple[str, ...]
    key: np.ndarray


class RoundResult(NamedTuple):
    """What is known after a round.

    Attributes:
      number: 1-based.
      num_clients: Size of the cohort.
      means: Weighted mean over the cohort's training entries of the loss and each metric, each
        batch under the weights it was trained from.
      seconds: Wall time.
    """

    number: int
    num_clients: int
    means: dict[str, float]
    seconds: float


OnRound = Callable[[RoundResult, Nest | None], None]


class TrainingProcess(Protocol):
    """A training algorithm on one backend. States are opaque nests of arrays."""

    def initialize(self) -> Nest:
        """Returns the state before the first round; also the structure checkpoints load into."""

    def run(self, state: Nest, rounds: Sequence[Round], on_round: OnRound) -> Nest:
        """Runs consecutive rounds and returns the state after the last.

        Args:
          state: The state before the first of them.
          rounds: The rounds.
          on_round: Called after each with its result and the state then, or None where a backend
            runs several rounds at once and has no state in between.

        Raises:
          DivergedError: If a client's training loss is not finite; `state` stays as it was.
        """

    def weights(self, state: Nest) -> Nest:
        """Returns the server's weights as NumPy arrays."""

    def client_states(self, state: Nest) -> dict[str, Nest]:
        """Returns the clients' own states by id as NumPy arrays; none of a stateless algorithm."""


class Backend(Protocol):
    """A way to run client work. All backends give the same numbers, to float tolerance."""

    name: str

    def training(self, task: task_lib.Task, algorithm: algorithm_lib.Algorithm) -> TrainingProcess:
        """Returns the algorithm's training process over the task's training clients."""

    def map_clients(
        self,
        task: task_lib.Task,
        work: client_work.ClientWork,
        broadcast: Nest,
        clients: clients_lib.Clients,
        client_ids: Sequence[str],
        key: np.ndarray,
        client_states: Sequence[Nest] | None = None,
    ) -> Iterator[tuple[str, Nest]]:
        """Yields (client id, the work's metrics as NumPy arrays) in the order of `client_ids`.

        Args:
          task: Whose data it is.
          work: Client work, such as a personalization's.
          broadcast: What every client gets.
          clients: The source.
          client_ids: Which of its clients.
          key: int32 [2], the random key of this evaluation.
          client_states: The clients' states, where the work wants them.
        """


class DivergedError(UserError):
    """A client's training loss is not finite."""

    def __init__(self, round_number: int, client_id: str):
        super().__init__(
            f"round {round_number}: the training loss of client {client_id!r} is not finite; "
            "what was saved before is kept. Lower the learning rates or look at that client's data"
        )


def check_finite(round_number: int, client_id: str, loss_total: float) -> None:
    """Raises DivergedError if a client's summed loss is infinite or not a number."""
    if not np.isfinite(loss_total):
        raise DivergedError(round_number, client_id)


def mean_metrics(totals: dict[str, float], weights: dict[str, float]) -> dict[str, float]:
    """Returns total / weight by name, not-a-number over nothing."""
    return {n: totals[n] / weights[n] if weights[n] else float("nan") for n in totals}
