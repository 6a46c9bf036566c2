"""The parts of clients' data that models are scored on, and other parts than a data set has.

An evaluation may look at validation and test clients in other ways: with smaller personalization
sets, with a held-out part of these, and under distribution shift, on the examples of other clients.
Each way is a function that returns a task with derived clients. Their examples are loaded and cut
when they are asked for. What is drawn depends on the seed and the client's id alone, and smaller
sets are parts of larger ones.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from motley_tff.core import random_streams, tensor_random
from motley_tff.core.clients import DerivedClients, num_rows, num_rows_in_graph
from motley_tff.core.lazy import tf
from motley_tff.core.task import Task

SPLITS = ("valid", "test")
HOLDOUT, OOD = "holdout", "ood"
# Two buckets of one hash: together they are a client's key.
_BUCKETS = 2**31 - 1


def scored(task: Task, split: str) -> tuple[str, ...]:
    """Returns the parts that a split's clients are scored on, the evaluation part first."""
    further = (HOLDOUT, OOD) if split in SPLITS else ()
    spec = task.splits[split].spec
    return (task.evaluation_part(split), *(part for part in further if part in spec))


def smaller_personalization_sets(task: Task, fraction: float, seed: int) -> Task:
    """Returns the task with smaller personalization sets (Motley, Figure 6(c)).

    Of each client's set this fraction, in (0, 1], is left; at least one example is.
    """
    if fraction == 1.0:
        return task
    return _cut_personalization_sets(task, seed, lambda size: _share(size, fraction))


def held_out_part(task: Task, fraction: float, seed: int) -> Task:
    """Returns a cross-device task with a part `holdout` taken out of each personalization set.

    It is this fraction, in (0, 1), of the set; a client with one example holds nothing out. Silos
    have a validation part.
    """

    def num_left(size):
        return tf.maximum(size - _share(size, fraction), tf.minimum(size, 1))

    return _cut_personalization_sets(task, seed, num_left, HOLDOUT)


def distribution_shift(task: Task, num_examples: int, seed: int) -> Task:
    """Returns the task with a part `ood` of the other test clients' examples.

    Motley's out-of-distribution set (section 3.1, observation 3) is a random sample of the test
    clients' examples, without the client's own. It is drawn from evaluation parts only, and has as
    many examples of each client (all, if a client has fewer), so that large clients do not make up
    most of it. It has fewer than `num_examples` where small clients leave a gap.
    """
    pool, owners = _sample(task, num_examples, seed)

    def change(parts, client_id):
        is_other = tf.not_equal(tf.constant(owners), client_id)
        return {**parts, OOD: _masked(pool, is_other)}

    return dataclasses.replace(task, test=DerivedClients(task.test, change))


def _cut_personalization_sets(task, seed, num_left, rest=None) -> Task:
    """Returns the task with `num_left(size)` examples in each personalization set, in their old
    order; the other examples become the part `rest`.
    """
    name = task.personalization_part("test")

    def change(parts, client_id):
        examples = parts[name]
        size = num_rows_in_graph(examples)
        is_left = tensor_random.permutation(_key(seed, client_id), size) < num_left(size)
        cut = {**parts, name: _masked(examples, is_left)}
        return cut if rest is None else {**cut, rest: _masked(examples, tf.logical_not(is_left))}

    test = DerivedClients(task.test, change)
    valid = test if task.valid is task.test else DerivedClients(task.valid, change)
    return dataclasses.replace(task, valid=valid, test=test)


def _key(seed: int, client_id: tf.Tensor) -> tf.Tensor:
    words = [tf.strings.to_hash_bucket_fast(client_id + salt, _BUCKETS) for salt in ("", "#")]
    key = tf.cast(tf.stack(words), tf.int32)
    return tensor_random.client_round_key(random_streams.key(seed, "held_out", 0), key)


def _share(size: tf.Tensor, fraction: float) -> tf.Tensor:
    """Returns a share of a number of examples, rounded up."""
    # What is a whole number but for rounding is that number.
    return tf.cast(tf.math.ceil(tf.cast(size, tf.float64) * fraction - 1e-9), tf.int32)


def _masked(examples, is_left):
    return {field: tf.boolean_mask(array, is_left) for field, array in examples.items()}


def _sample(task, num_examples, seed):
    """Returns (examples {field: array}, ids of their owners)."""
    stream = random_streams.generator(seed, "held_out", 1)
    ids = task.test.ids
    order = stream.permutation(len(ids))[:num_examples]
    # As many of each as it takes when every client has enough; then cut to the size asked for.
    each = -(-num_examples // len(order))
    part = task.evaluation_part("test")
    rows: list[dict[str, np.ndarray]] = []
    owners: list[str] = []
    for i in order:
        examples = task.test.fetch(ids[i])[part]
        chosen = np.sort(stream.permutation(num_rows(examples))[:each])
        rows.append({f: np.asarray(a)[chosen] for f, a in examples.items()})
        owners.extend([ids[i]] * len(chosen))
    chosen = np.sort(stream.permutation(len(owners))[:num_examples])
    pool = {f: np.concatenate([r[f] for r in rows])[chosen] for f in rows[0]}
    return pool, np.array(owners)[chosen]
