"""Clients of a cohort that attack, whatever the algorithm: their labels or updates are wrong.

A seeded share of the training clients attacks in every round it is in. `label_flip:SHARE` trains on
class C - 1 - y in place of y (Fang et al. 2020, https://arxiv.org/abs/1911.11815, section 3.3),
personal models too; `sign_flip:SHARE:FACTOR` sends the update times -FACTOR (Li et al. 2019,
https://arxiv.org/abs/1811.03761, section 6). A silo that attacks is not evaluated: tables are of
the others, as Ditto's are of benign devices (Li et al. 2021, https://arxiv.org/abs/2012.04221).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from motley_tff.core import clients as clients_lib, errors, random_streams, rows
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import Client, Pass
from motley_tff.core.clients import Clients
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.task import Task

_NAME = errors.name("attack")
EXPECTED = "none, label_flip:SHARE or sign_flip:SHARE:FACTOR, such as sign_flip:0.1:10"


class Attack(NamedTuple):
    """What some clients do.

    Attributes:
      kind: `label_flip` or `sign_flip`.
      share: Of the training clients, above 0 and below 1; rounded, one client at least.
      factor: Of `sign_flip`, above 0.
    """

    kind: str
    share: float
    factor: float = 1.0

    @property
    def text(self) -> str:
        """The text that `parse` makes this attack of."""
        return f"{self.kind}:{self.share:g}" + f":{self.factor:g}" * (self.kind == "sign_flip")


class PossibleAttacker(NamedTuple):
    """A client in a round: the algorithm's own carry, and whether it attacks."""

    inner: Any
    attacks: tf.Tensor


def parse(text: str) -> Attack | None:
    """Returns the attack of a text, None for `none`; UserError if it is no such text."""
    if text == "none":
        return None
    kind, *numbers = text.split(":")
    if (kind, len(numbers)) not in (("label_flip", 1), ("sign_flip", 2)):
        raise UserError(_NAME, text, EXPECTED)
    try:
        attack = Attack(kind, *map(float, numbers))
    except ValueError:
        raise UserError(_NAME, text, EXPECTED) from None
    if not 0 < attack.share < 1:
        raise UserError(_NAME, text, "a share above 0 and below 1")
    if not 0 < attack.factor < math.inf:
        raise UserError(_NAME, text, "a factor above 0")
    return attack


def attackers(task: Task, attack: Attack, seed: int) -> list[str]:
    """Returns the ids of the clients that attack, in the task's order; UserError if all do."""
    ids = task.train.ids
    count = max(1, round(attack.share * len(ids)))
    if count >= len(ids):
        expected = f"a smaller share, as all {len(ids)} training clients would attack"
        raise UserError(_NAME, attack.text, expected)
    stream = random_streams.generator(seed, "attack", 0)
    return [ids[i] for i in sorted(stream.choice(len(ids), count, replace=False))]


def unevaluated(task: Task, attack: Attack | None, seed: int) -> Task:
    """Returns the task with attackers named in its facts and left out of evaluations; UserError if
    nobody else is evaluated.
    """
    if attack is None:
        return task
    chosen = set(attackers(task, attack, seed))

    @functools.cache  # Silos are the same in both splits.
    def honest(clients: Clients) -> Clients:
        others = [client_id for client_id in clients.ids if client_id not in chosen]
        if not others:
            split = "valid" if clients is task.valid else "test"
            expected = f"a smaller share, as all {len(clients)} {split} clients would attack"
            raise UserError(_NAME, attack.text, expected)
        return clients if len(others) == len(clients) else clients_lib.subset(clients, others)

    facts = {**task.facts, "attackers": sorted(chosen)}
    return dataclasses.replace(task, valid=honest(task.valid), test=honest(task.test), facts=facts)


def attacked(algorithm: Algorithm, task: Task, attack: Attack | None, seed: int) -> Algorithm:
    """Returns the algorithm with clients that attack.

    UserError if the task has no classes to flip, or the algorithm sends other than a model's
    change.
    """
    if attack is None:
        return algorithm
    if not _sends_one_model(algorithm, task):
        expected = f"an algorithm that sends one model's change; {algorithm.name} sends more"
        raise UserError(_NAME, attack.text, expected, "leave it out")
    chosen = set(attackers(task, attack, seed))
    attacks = np.array([client_id in chosen for client_id in task.train.ids])
    last_class = _last_class(task, attack) if attack.kind == "label_flip" else None
    work = algorithm.work

    def init(broadcast: Any, state: Any, client: Client) -> PossibleAttacker:
        inner = work.init(broadcast, state, client)
        return PossibleAttacker(inner, tf.gather(attacks, client.index))

    def finish(carry):
        output = work.finish(carry.inner)
        if last_class is not None:
            return output
        scale = tf.where(carry.attacks, -attack.factor, 1.0)
        return output._replace(update=rows.scaled(scale, output.update))

    def attacked_pass(pass_: Pass) -> Pass:
        outer = pass_.within("inner")

        def step(carry, batch):
            # -1 is a label of no class.
            flips = rows.aligned(carry.attacks, batch.y) & (batch.y >= 0)
            flipped = tf.where(flips, last_class - batch.y, batch.y)
            return outer.step(carry, batch._replace(y=flipped))

        flips_labels = pass_.training and last_class is not None
        return dataclasses.replace(outer, step=step) if flips_labels else outer

    attacked_work = work.map_passes(attacked_pass, init=init, finish=finish)
    return dataclasses.replace(algorithm, work=attacked_work)


def _sends_one_model(algorithm: Algorithm, task: Task) -> bool:
    """Returns whether an update is one model's change; a server may keep other models, such as a
    mean, of which clients send nothing.
    """
    model, kept = list(task.model.shapes), _shapes(algorithm.initial_weights)
    if algorithm.groups is not None or algorithm.cluster_models is not None:
        return False
    if algorithm.communicated is None:
        return kept == model
    if kept in (model, _shapes(algorithm.communicated.up)):  # All of it, or the shared layers.
        return True
    # Beside models, an update may have a client's place in it, which is nothing to be flipped.
    is_of_models = kept == model * (len(kept) // len(model))
    return is_of_models and _shapes(algorithm.communicated.up) == model


def _shapes(nest: Any) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in tf.nest.flatten(nest)]


def _last_class(task: Task, attack: Attack) -> int:
    count = task.facts.get("num_classes")
    if task.label_field is None or count is None:
        expected = f"classes to flip; the examples of {task.dataset} have none"
        raise UserError(_NAME, attack.text, expected, f"give {_NAME}=sign_flip:SHARE:FACTOR")
    return int(count) - 1
