"""Silos whose optimizers go on where their last round ended, whatever the algorithm.

A silo keeps, beside its own state, that of every optimizer that trained it. The learning rate is
each round's.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from motley_tff.algorithms.fedavg import FedAvg
from motley_tff.core import errors, learning
from motley_tff.core.algorithm import Algorithm, Nest
from motley_tff.core.client_work import Client
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.task import Task


class SiloState(NamedTuple):
    """A silo's state: what the algorithm keeps of it, and its optimizers' states."""

    own: Nest
    optimizers: tuple[Any, ...]


def build(algorithm: FedAvg, task: Task, initial_weights: Any) -> Algorithm:
    """Returns the algorithm as a run trains it; a UserError if devices are to keep optimizers, or
    there is nothing to keep. (Generators see to it themselves.)
    """
    built = algorithm.build(task, initial_weights)
    keeps = algorithm.keep_optimizer_state and algorithm.is_personalized
    return _keeping(built, task) if keeps else built


def check_silos(task: Task) -> None:
    """Raises a UserError if a task's clients are devices."""
    if task.setting != "cross_silo":
        silos = f"silos; the clients of {task.dataset} are devices, which keep nothing"
        _refuse(silos, f"leave it out, or give {errors.name('setting')}=cross_silo")


def _refuse(expected: str, advice: str = "leave it out") -> None:
    raise UserError(errors.name("keep_optimizer_state"), True, expected, advice)


def _keeping(algorithm: Algorithm, task: Task) -> Algorithm:
    check_silos(task)
    work, own = algorithm.work, algorithm.initial_client_state or (lambda index: ())

    def init(broadcast: Nest, state: SiloState, client: Client) -> Any:
        kept = iter(state.optimizers)
        carry = work.init(broadcast, state.own, client)
        return _mapped(carry, lambda fresh: learning.resumed(fresh, next(kept)))

    def finish(carry: Any) -> Any:
        output = work.finish(carry)
        return output._replace(client_state=SiloState(output.client_state, _states(carry)))

    def fresh() -> tuple[Any, ...]:
        counts = dict.fromkeys(work.parts, tf.constant(1))
        client = Client(tf.zeros([2], tf.int32), tf.constant(0), counts, counts)
        arguments = algorithm.initial_weights, own(0), client
        return _states(work.init(*tf.nest.map_structure(tf.convert_to_tensor, arguments)))

    @functools.cache
    def first() -> tuple[Any, ...]:
        return tf.nest.map_structure(lambda t: t.numpy(), fresh())

    if algorithm.cluster_models is not None:
        _refuse("one model for each silo, not clusters")
    if not any(len(state) > 1 for state in fresh()):  # Beside a rate.
        _refuse("clients' or personal optimizers with a state, such as momentum or adam")
    return dataclasses.replace(
        algorithm,
        work=dataclasses.replace(work, init=init, finish=finish),
        initial_client_state=lambda index: SiloState(own(index), first()),
        own_state=lambda state: algorithm.own_state(state.own),
    )


def _states(carry: Any) -> tuple[Any, ...]:
    """Returns the states of the learners' optimizers in a client's carry."""
    if isinstance(carry, learning.Learner):
        return (carry.optimizer_state,)
    parts = carry if isinstance(carry, tuple) else ()
    return tuple(state for part in parts for state in _states(part))


def _mapped(carry: Any, change: Callable[[Any], Any]) -> Any:
    """Returns the carry with other such states, in the same order."""
    if isinstance(carry, learning.Learner):
        return carry._replace(optimizer_state=change(carry.optimizer_state))
    if not isinstance(carry, tuple):
        return carry
    parts = [_mapped(part, change) for part in carry]
    return type(carry)(*parts) if hasattr(carry, "_fields") else tuple(parts)
