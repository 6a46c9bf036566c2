"""FedSTC: FedAvg with sparse ternary compression (Sattler et al. 2019,
https://arxiv.org/abs/1903.02891, Algorithm 2), the fifth mechanism of FedEval.

A client sends STC(w - w_i + r_i) and keeps the rest as its residual r_i; the server adds the
weighted mean to its own residual r, applies and sends STC(r), and keeps the rest. STC leaves of
each of the model's arrays, as FedEval's code does, the share `sparsity` of largest magnitude, one
at least (of equal ones the first), and sets those to plus or minus their mean magnitude.

Silos keep residuals. Devices keep none: `fedstc_server` is the same with the server's alone. A
client who drops out trains nothing and keeps its residual.

Bytes: of n numbers k are sent by their places, Golomb-coded (the paper's equations 15 to 17), a bit
of sign each and a float of 4 bytes; or, as FedEval's sparse vectors, by 4 bytes of place and 4 of
value each. A client who was last there some rounds ago is sent the updates of all rounds since, the
whole model where that is less or it is new.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from motley_tff.algorithms import fedavg, optimizers
from motley_tff.algorithms.card import Card
from motley_tff.core import learning
from motley_tff.core.algorithm import Algorithm, Bytes, ServerOptimizer
from motley_tff.core.client_work import Client, ClientWork
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.options import ABOVE_0, option
from motley_tff.core.task import Task

_GOLDEN_RATIO = (1 + math.sqrt(5)) / 2
_COMPRESSES = "it compresses updates itself and keeps what that leaves out"


@dataclasses.dataclass(frozen=True)
class FedStcServer(fedavg.FedAvg):
    """FedAvg's hyperparameters, the share of numbers that is sent, and how places are coded."""

    card: ClassVar[Card] = Card(
        "fedstc_server",
        "FedSTC (server's residual)",
        ("finetuning_trainer",),
        "sparse ternary updates without clients' residuals",
        wants_mean=_COMPRESSES,
    )
    sparsity: float = option(
        0.01, "Share of an array's numbers that is sent", lower=ABOVE_0, upper=1
    )
    coding: str = option(
        "golomb", "How their places are counted in bytes", choices=("golomb", "plain")
    )

    def check(self) -> None:
        """Raises a UserError if the server's step is not as sparse as the update it takes."""
        reason = f"whose step is as sparse as the update that {self.card.name} sends"
        optimizers.check_plain_sgd(self.server_optimizer, "server_optimizer", reason)

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns FedAvg with compressed updates both ways; a UserError as `check`."""
        built = super().build(task, initial_weights)
        return dataclasses.replace(
            built,
            work=self._compressed(built.work),
            server_optimizer=_Compressing(built.server_optimizer, self.sparsity),
            bytes_since=functools.partial(self._bytes_since, initial_weights),
        )

    def _compressed(self, work: ClientWork) -> ClientWork:
        def finish(carry):
            output = work.finish(carry)
            return output._replace(update=compress(output.update, self.sparsity))

        return dataclasses.replace(work, finish=finish)

    def _bytes_since(self, model: Weights, rounds: int | None) -> Bytes:
        sparse = num_bytes([np.size(leaf) for leaf in model], self.sparsity, self.coding)
        whole = sum(np.asarray(leaf).nbytes for leaf in model)
        return Bytes(whole if rounds is None else min(whole, rounds * sparse), sparse)


@dataclasses.dataclass(frozen=True)
class FedStc(FedStcServer):
    """The same with clients' residuals, for silos."""

    card: ClassVar[Card] = Card(
        "fedstc",
        "FedSTC",
        ("finetuning_trainer",),
        "sparse ternary updates, residuals kept; for silos",
        wants_mean=_COMPRESSES,
        silos_keep="residuals (fedstc_server does without)",
    )

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns FedSTC; a client's state is its residual."""
        zeros = tuple(np.zeros_like(leaf) for leaf in initial_weights)
        built = super().build(task, initial_weights)
        return dataclasses.replace(built, initial_client_state=lambda index: zeros)

    def _compressed(self, work: ClientWork) -> ClientWork:
        def init(broadcast: Any, residual: Any, client: Client) -> FedStcClient:
            return FedStcClient(work.init(broadcast, (), client), tuple(residual))

        def finish(carry):
            output = work.finish(carry.base)
            whole = tuple(map(tf.add, output.update, carry.residual))
            sent = compress(whole, self.sparsity)
            return output._replace(update=sent, client_state=learning.subtract(whole, sent))

        return work.map_passes(lambda pass_: pass_.within("base"), init=init, finish=finish)


class FedStcClient(NamedTuple):
    """A silo in a round: FedAvg's client, and what its updates left out so far."""

    base: Any
    residual: Weights


class _Compressing(ServerOptimizer):
    """A server optimizer that gets what is left of the mean update and its residual."""

    def __init__(self, inner: ServerOptimizer, sparsity: float):
        self._inner, self._sparsity = inner, sparsity

    def initialize(self, specs: Any) -> Any:
        residual = tuple(tf.zeros(spec.shape, spec.dtype) for spec in specs)
        return self._inner.initialize(specs), residual

    def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
        inner, residual = state
        whole = tuple(map(tf.add, gradients, residual))
        applied = compress(whole, self._sparsity)
        inner, weights = self._inner.next(inner, weights, applied)
        return (inner, learning.subtract(whole, applied)), weights


def compress(update: Weights, sparsity: float) -> Weights:
    """Returns STC of each array of an update (the paper's Algorithm 1)."""
    return tuple(_ternary(leaf, num_sent(leaf.shape.num_elements(), sparsity)) for leaf in update)


def _ternary(values: tf.Tensor, count: int) -> tf.Tensor:
    flat = tf.reshape(values, [-1])
    largest, places = tf.math.top_k(tf.abs(flat), count)
    sent = tf.reduce_mean(largest) * tf.sign(tf.gather(flat, places))
    return tf.reshape(tf.scatter_nd(places[:, tf.newaxis], sent, tf.shape(flat)), values.shape)


def num_sent(size: int, sparsity: float) -> int:
    """Returns how many of an array's numbers are sent, one at least."""
    return max(1, int(size * sparsity))


def num_bytes(sizes: list[int], sparsity: float, coding: str) -> int:
    """Returns the bytes of one compressed update of arrays of these sizes."""
    sent = [num_sent(size, sparsity) for size in sizes]
    if coding == "plain":
        return 8 * sum(sent)
    pairs = zip(sent, sizes, strict=True)
    bits = sum(count * (1 + bits_of_place(count / size)) + 32 for count, size in pairs)
    return math.ceil(bits / 8)


def bits_of_place(share: float) -> float:
    """Returns the mean bits of a Golomb-coded distance between places that hold a share of all
    (the paper's equations 15 to 17); none if all places do.
    """
    if share >= 1:
        return 0.0
    log = math.log(_GOLDEN_RATIO - 1) / math.log(1 - share)
    width = max(0, 1 + math.floor(math.log2(log)))
    return width + 1 / (1 - (1 - share) ** 2**width)
