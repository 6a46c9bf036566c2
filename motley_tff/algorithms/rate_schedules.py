"""Learning rates that change from round to round, whatever the algorithm.

In round t of T, the clients' rate is `--client_learning_rate` times `factors` at t, the server's
likewise by a schedule of its own. `cosine` is Loshchilov and Hutter 2017
(https://arxiv.org/abs/1608.03983, equation 5, without restarts and with eta_min = 0); the warm-up
is Goyal et al. 2017 (https://arxiv.org/abs/1706.02677, section 2.2, by rounds).

The clients' factor travels with the server's weights, so that every backend hands it to compiled
work as any other input; the server's optimizer counts rounds and makes the next one. All
optimizers of a client's round follow the clients' factor, those of a silo's own model, too. What
happens at evaluations, such as fine-tuning, keeps its rates, and so does Per-FedAvg's adaptation,
which is trained for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from motley_tff.core import rows
from motley_tff.core.algorithm import (
    Algorithm,
    Communicated,
    Groups,
    Nest,
    Personalization,
    ServerOptimizer,
)
from motley_tff.core.client_work import Client, ClientOutput, ClientWork
from motley_tff.core.lazy import tf

Name = Literal["constant", "cosine", "step", "exponential"]
_RATE = "learning_rate"  # What TFF's optimizers call it in their states, and ours.


class RoundRates(NamedTuple):
    """The rates of a run's rounds.

    Attributes:
      client: The clients' rate in round t is `client_rate` times entry t - 1: [rounds + 1].
      server: The server's likewise.
      client_rate: None where a client's optimizer is not used.
      server_rate: None where the server's is not used.
    """

    client: np.ndarray
    server: np.ndarray
    client_rate: float | None
    server_rate: float | None

    def of_round(self, number: int) -> dict[str, float | None]:
        """Returns what a table says of a round's rates."""
        sides = ("client", self.client, self.client_rate), ("server", self.server, self.server_rate)
        return {
            f"{side}_{_RATE}": None if rate is None else float(rate * of_rounds[number - 1])
            for side, of_rounds, rate in sides
        }


def factors(
    name: Name, total_rounds: int, decay_factor: float, decay_rounds: int, warmup_rounds: int
) -> np.ndarray:
    """Returns what a rate is multiplied by in rounds 1 to `total_rounds` + 1: float64.

    With T rounds in all, d and p the decay's factor and rounds, and W of warm-up, round t has

        cosine        (1 + cos(pi (t - 1) / T)) / 2
        step          d to the power of floor((t - 1) / p)
        exponential   d to the power of (t - 1) / p

    times t / W in the first W rounds.
    """
    done = np.arange(total_rounds + 1)
    decayed = {
        "constant": lambda: np.ones(len(done)),
        "cosine": lambda: 0.5 * (1.0 + np.cos(np.pi * done / max(1, total_rounds))),
        "step": lambda: decay_factor ** (done // decay_rounds),
        "exponential": lambda: decay_factor ** (done / decay_rounds),
    }[name]()
    return decayed * np.minimum(1.0, (done + 1) / max(1, warmup_rounds))


class _ScheduledClient(NamedTuple):
    """A client in a round, and the rates of optimizers that it keeps, as they were."""

    inner: Any
    kept: tuple[tf.Tensor, ...]


def scheduled(algorithm: Algorithm, rates: RoundRates | None) -> Algorithm:
    """Returns the algorithm with rates that change; its weights are (its own, clients' factor)."""
    if rates is None:
        return algorithm
    first, communicated = algorithm.initial_weights, algorithm.communicated

    def of_weights(function: Callable[..., Any] | None) -> Any:
        return function and (lambda weights, *state: function(weights[0], *state))

    return dataclasses.replace(
        algorithm,
        initial_weights=(first, np.float32(rates.client[0])),
        work=_client_work(algorithm),
        server_optimizer=_ScheduledServer(algorithm.server_optimizer, rates),
        global_model=of_weights(algorithm.global_model),
        cluster_models=of_weights(algorithm.cluster_models),
        personal_model=of_weights(algorithm.personal_model),
        communicated=communicated or Communicated(first, first),
        groups=_groups(algorithm.groups or _WHOLE),
        rates=rates.of_round,
    )


def unscheduled(personalization: Personalization) -> Personalization:
    """Returns the personalization of a scheduled algorithm's weights as they are."""

    def work(*parts: Any) -> ClientWork:
        inner = personalization.work(*parts)

        def init(broadcast: Any, state: Any, client: Client) -> Any:
            return inner.init(broadcast[0], state, client)

        return dataclasses.replace(inner, init=init)

    if not personalization.wants_server_weights:
        return personalization
    return dataclasses.replace(personalization, work=work)


def _client_work(algorithm: Algorithm) -> ClientWork:
    work, first_state = algorithm.work, algorithm.initial_client_state
    # A silo that keeps its optimizer keeps the rate without the factor.
    keeps = first_state is not None and any(_rates(first_state(0)))

    def init(broadcast: Any, client_state: Any, client: Client) -> Any:
        weights, factor = broadcast
        carry = work.init(weights, client_state, client)
        carry = _with_rates(carry, (rate * factor for rate in _rates(carry)))
        return _ScheduledClient(carry, tuple(_rates(client_state))) if keeps else carry

    def finish(carry: Any) -> ClientOutput:
        output = work.finish(carry.inner if keeps else carry)
        if keeps:
            state = _with_rates(output.client_state, iter(carry.kept))
            output = output._replace(client_state=state)
        return output._replace(update=(output.update, rows.full([], 0.0)))

    def within(pass_: Any) -> Any:
        return pass_.within("inner") if keeps else pass_

    return work.map_passes(within, init=init, finish=finish)


_WHOLE = Groups(
    split=lambda update, weight: ((update, weight),),
    join=lambda means, totals: means[0],
    is_partial=(False,),
)


def _groups(inner: Groups) -> Groups:
    """Returns the groups of an update beside which nothing is sent for the factor."""
    return Groups(
        split=lambda update, weight: inner.split(update[0], weight),
        join=lambda means, totals: (inner.join(means, totals), tf.zeros([])),
        is_partial=inner.is_partial,
    )


class _ScheduledServer(ServerOptimizer):
    """A server optimizer at each round's rate, which makes the clients' next factor.

    Its state is (the inner optimizer's, rounds done).
    """

    def __init__(self, inner: ServerOptimizer, rates: RoundRates):
        self._inner, self._rates = inner, rates

    def initialize(self, specs: Nest) -> Nest:
        return self._inner.initialize(specs[0]), np.int32(0)

    def next(self, state: Nest, weights: Nest, gradients: Nest) -> tuple[Nest, Nest]:
        inner, done = state
        client, server = (tf.constant(f, tf.float32) for f in self._rates[:2])
        factor, base = tf.gather(server, done), tuple(_rates(inner))
        at_rate = _with_rates(inner, (rate * factor for rate in base))
        inner, new = self._inner.next(at_rate, weights[0], gradients[0])
        return (_with_rates(inner, iter(base)), done + 1), (new, tf.gather(client, done + 1))


def _rates(nest: Any) -> Iterator[Any]:
    """Yields the rates in the optimizers' states of a nest, in order."""
    if isinstance(nest, Mapping) and _RATE in nest:
        yield nest[_RATE]
    elif isinstance(nest, Mapping | tuple | list):
        for part in nest.values() if isinstance(nest, Mapping) else nest:
            yield from _rates(part)


def _with_rates(nest: Any, new: Iterator[Any]) -> Any:
    """Returns the nest with other rates, in the order of `_rates`."""
    kind: Any = type(nest)
    if isinstance(nest, Mapping) and _RATE in nest:
        return kind({**nest, _RATE: next(new)})
    if isinstance(nest, Mapping):
        return kind({name: _with_rates(part, new) for name, part in nest.items()})
    if not isinstance(nest, tuple | list):
        return nest
    parts = [_with_rates(part, new) for part in nest]
    return kind(*parts) if hasattr(nest, "_fields") else kind(parts)
