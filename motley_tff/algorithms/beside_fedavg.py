"""What stateful algorithms have in common: every silo trains a model of its own beside FedAvg.

FedAvg's global model is trained as ever, on the same shuffles as without company. It is Ditto's
anchor and APFL's other half; for the others it is the baseline that "% clients hurt" is counted
against. What an algorithm shares beside it is a group of its own: an aggregator that bounds updates
bounds either by itself, and one that adds noise (differential privacy) protects either by itself.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from motley_tff.algorithms import fedavg
from motley_tff.core import algorithm, client_work, learning
from motley_tff.core import task as task_lib

Nest = Any


class Mine(NamedTuple):
    """One client's own training: its model, and what else its steps need."""

    learner: learning.Learner
    memory: Nest


class Carry(NamedTuple):
    """One client's round: the global model's training, and its own."""

    base: fedavg.Carry
    own: Mine


def _nothing_shared(own: Mine) -> Nest:
    return ()


@dataclasses.dataclass(frozen=True)
class Own:
    """What a client does for itself.

    Attributes:
      start: `(shared, client state, client) -> Mine`; shared is what the server keeps and sends
        beside FedAvg's weights.
      step: `(own, batch, FedAvg's carry) -> own`.
      finish: `own -> client state`.
      num_epochs: Local epochs a round.
      same_batches: Step on the same batches as FedAvg, each right before FedAvg does (so that both
        gradients are taken where the batch found the models), not in a pass with shuffles of its
        own.
      contribution: `own -> update` of the shared nest.
    """

    start: Callable[[Nest, Nest, client_work.Client], Mine]
    step: Callable[[Mine, client_work.Batch, fedavg.Carry], Mine]
    finish: Callable[[Mine], Nest]
    num_epochs: int = 1
    same_batches: bool = False
    contribution: Callable[[Mine], Nest] = _nothing_shared


def build(
    task: task_lib.Task,
    name: str,
    params: fedavg.Params,
    initial_weights: learning.Weights,
    own: Own,
    initial_client_state: Callable[[int], Nest],
    personal_model: algorithm.PersonalModel,
    communicated: Nest,
    shared: Nest = (),
    shared_optimizer: algorithm.ServerOptimizer | None = None,
) -> algorithm.Algorithm:
    """Returns FedAvg with something beside it; the server's weights are (FedAvg's, shared).

    Args:
      task: The task.
      name: The algorithm's registered name.
      params: FedAvg's hyperparameters.
      initial_weights: The global model's first weights.
      own: What clients do for themselves.
      initial_client_state: `client index -> state`.
      personal_model: `(server weights, client state) -> model weights`.
      communicated: What crosses the wire for the algorithm's sake, each way.
      shared: What the server keeps beside FedAvg's weights.
      shared_optimizer: Updates that from the weighted mean of the contributions.
    """
    base = fedavg.build(task, params, initial_weights)
    return dataclasses.replace(
        base,
        name=name,
        initial_weights=(base.initial_weights, shared),
        work=_client_work(base.work, own),
        server_optimizer=_Server(base.server_optimizer, shared_optimizer or _NothingShared()),
        initial_client_state=initial_client_state,
        global_model=lambda weights: weights[0],
        personal_model=personal_model,
        communicated=algorithm.Communicated(communicated, communicated),
        groups=_TWO_HALVES if shared_optimizer else None,
    )


_TWO_HALVES = algorithm.Groups(
    split=lambda update, weight: tuple((half, weight) for half in update),
    join=lambda means, totals: tuple(means),
    is_partial=(False, False),
)


class _NothingShared:
    """The optimizer of an empty nest."""

    def initialize(self, specs: Nest) -> Nest:
        """Returns no state."""
        return ()

    def next(self, state: Nest, weights: Nest, gradients: Nest) -> tuple[Nest, Nest]:
        """Returns the nothing it was given."""
        return state, weights


class _Server:
    """One optimizer on FedAvg's half, another on the shared one."""

    def __init__(self, first: algorithm.ServerOptimizer, second: algorithm.ServerOptimizer):
        self._optimizers = (first, second)

    def initialize(self, specs: Nest) -> Nest:
        """Returns both first states; see `algorithm.ServerOptimizer`."""
        return tuple(
            one.initialize(mine) for one, mine in zip(self._optimizers, specs, strict=True)
        )

    def next(self, state: Nest, weights: Nest, gradients: Nest) -> tuple[Nest, Nest]:
        """Returns (new states, new weights); see `algorithm.ServerOptimizer`."""
        done = [
            one.next(*mine)
            for one, *mine in zip(self._optimizers, state, weights, gradients, strict=True)
        ]
        return tuple(new for new, _ in done), tuple(new for _, new in done)


def _client_work(base: client_work.ClientWork, own: Own) -> client_work.ClientWork:
    (global_pass,) = base.passes

    def init(broadcast, client_state, client):
        weights, shared = broadcast
        return Carry(base.init(weights, (), client), own.start(shared, client_state, client))

    def global_step(carry, batch):
        return carry._replace(base=global_pass.step(carry.base, batch))

    def own_step(carry, batch):
        return carry._replace(own=own.step(carry.own, batch, carry.base))

    def finish(carry):
        output = base.finish(carry.base)
        # A personal model may diverge where the global one does not: its loss tells.
        totals = dict(output.metrics.totals)
        totals["loss"] += tf.zeros([]) * carry.own.learner.sums.totals["loss"]
        return output._replace(
            update=(output.update, own.contribution(carry.own)),
            client_state=own.finish(carry.own),
            metrics=output.metrics._replace(totals=totals),
        )

    if own.same_batches:
        both = dataclasses.replace(
            global_pass, step=lambda carry, batch: global_step(own_step(carry, batch), batch)
        )
        return client_work.ClientWork(init, (both,), finish)
    passes = (
        dataclasses.replace(global_pass, step=global_step),
        dataclasses.replace(global_pass, step=own_step, num_epochs=own.num_epochs),
    )
    return client_work.ClientWork(init, passes, finish)
