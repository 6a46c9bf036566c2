"""Other looks at validation and test clients: smaller personalization sets, parts held out, shift.

Each function returns a task whose held-out clients are derived from the given one's; examples are
loaded and cut when they are asked for. What is drawn depends on the seed and the client's id alone,
and smaller sets are parts of larger ones.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from motley_tff.core import random_streams, tensor_random
from motley_tff.core.clients import DerivedClients, num_rows, num_rows_in_graph
from motley_tff.core.task import Task

HOLDOUT, OOD = "holdout", "ood"
# Two buckets of one hash: together they are a client's key.
_BUCKETS = 2**31 - 1


def with_fraction(task: Task, fraction: float, seed: int) -> Task:
    """Returns the task with smaller personalization sets (Motley, Figure 6(c)).

    Of each client's set this fraction, in (0, 1], is left; at least one example is.
    """
    if fraction == 1.0:
        return task
    name = task.personalization_part("test")

    def change(parts, client_id):
        whole = parts[name]
        chosen, _ = _cut(whole, _share(num_rows_in_graph(whole), fraction), _key(seed, client_id))
        return {**parts, name: chosen}

    return _derive(task, change)


def with_holdout(task: Task, fraction: float, seed: int) -> Task:
    """Returns a cross-device task with a part `holdout` taken out of each personalization set.

    It is this fraction, in (0, 1), of the set; a client with one example holds nothing out. Silos
    have a validation part.
    """
    name = task.personalization_part("test")

    def change(parts, client_id):
        whole = parts[name]
        size = num_rows_in_graph(whole)
        count = tf.maximum(size - _share(size, fraction), tf.minimum(size, 1))
        remaining, held = _cut(whole, count, _key(seed, client_id))
        return {**parts, name: remaining, HOLDOUT: held}

    return _derive(task, change)


def with_ood(task: Task, num_examples: int, seed: int) -> Task:
    """Returns the task with a part `ood` of the other test clients' examples.

    Motley's out-of-distribution set (section 3.1, observation 3) is a random sample of the test
    clients' examples; a client's own are left out of its. Drawn from evaluation parts only, of each
    client as many (all, if it has fewer), so that large clients do not make up most of it. It has
    fewer than `num_examples` where small clients leave a gap.
    """
    pool, owners = _sample(task, num_examples, seed)

    def change(parts, client_id):
        is_other = tf.not_equal(tf.constant(owners), client_id)
        return {**parts, OOD: {f: tf.boolean_mask(a, is_other) for f, a in pool.items()}}

    return dataclasses.replace(task, test=DerivedClients(task.test, change))


def _derive(task, change) -> Task:
    test = DerivedClients(task.test, change)
    same = task.valid is task.test
    valid = test if same else DerivedClients(task.valid, change)
    return dataclasses.replace(task, valid=valid, test=test)


def _key(seed: int, client_id: tf.Tensor) -> tf.Tensor:
    words = [tf.strings.to_hash_bucket_fast(client_id + salt, _BUCKETS) for salt in ("", "#")]
    key = tf.cast(tf.stack(words), tf.int32)
    return tensor_random.client_round_key(random_streams.key(seed, "held_out", 0), key)


def _share(size: tf.Tensor, fraction: float) -> tf.Tensor:
    """Returns a share of a number of examples, rounded up."""
    # What is a whole number but for rounding is that number.
    return tf.cast(tf.math.ceil(tf.cast(size, tf.float64) * fraction - 1e-9), tf.int32)


def _cut(examples, count: tf.Tensor, key: tf.Tensor):
    """Returns (so many of the examples, the rest), both in their old order."""
    is_chosen = tensor_random.permutation(key, num_rows_in_graph(examples)) < count
    chosen = {f: tf.boolean_mask(a, is_chosen) for f, a in examples.items()}
    return chosen, {f: tf.boolean_mask(a, tf.logical_not(is_chosen)) for f, a in examples.items()}


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
        examples = {f: np.asarray(a) for f, a in task.test.fetch(ids[i])[part].items()}
        chosen = np.sort(stream.permutation(num_rows(examples))[:each])
        rows.append({f: a[chosen] for f, a in examples.items()})
        owners.extend([ids[i]] * len(chosen))
    chosen = np.sort(stream.permutation(len(owners))[:num_examples])
    pool = {f: np.concatenate([r[f] for r in rows])[chosen] for f in rows[0]}
    return pool, np.array(owners)[chosen]
