"""Runs one client's work inside a graph: what the TFF and the sequential backend share.

Random choices hang on the client's key in this round and on positions alone (pass, epoch, step),
so another backend that loops in another order draws the same.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from motley_tff.backends import base
from motley_tff.core import client_work, frozen, tensor_random
from motley_tff.core.clients import num_rows_in_graph
from motley_tff.core.task import Task


def run_client(
    task: Task,
    work: client_work.ClientWork,
    broadcast: Any,
    client_state: Any,
    parts: Mapping[str, Mapping[str, tf.Tensor]],
    key: tf.Tensor,
    index: tf.Tensor,
) -> client_work.ClientOutput:
    """Returns the output of one client.

    Args:
      task: Whose `preprocess` makes batches.
      client_state: The client's own state, `()` if stateless.
      parts: The client's examples, `{part: {field: tensor [n, ...]}}`.
      key: int32 [2], the client's key in this round.
      index: int32 scalar, the client's position in the task's list.
    """
    work = client_work.capped(work, "train", task.max_train_examples)
    num_examples = {part: num_rows_in_graph(examples) for part, examples in parts.items()}
    client = client_work.Client(key, index, num_examples, capacity=num_examples)
    carry = work.init(broadcast, client_state, client)
    passes = work.all_passes
    keys = [
        tensor_random.fold(key, tensor_random.PASS, client_work.pass_number(pass_, i))
        for i, pass_ in enumerate(passes)
    ]

    tables = frozen.feature_tables(task, work, parts, carry)

    def run_passes(indices, loop, carry):
        for i in indices:
            pass_ = passes[i]
            arguments = task, pass_, parts[pass_.part], keys[i], loop, pass_.begin(carry)
            table = tables.get((pass_.part, pass_.training))
            carry = pass_.end(_run_reading(work, table, arguments))
        return carry

    return work.finish(client_work.walk_over(work, run_passes, base.repeat, carry))


def _run_reading(work, table, arguments):
    """Returns the carry after a pass over its examples, or over what a table has of them."""
    reads = None if table is None else frozen.reads(work, table, arguments[-1])
    if reads is None:
        return _run_pass(table, *arguments)

    def run(table):
        return tf.nest.map_structure(tf.convert_to_tensor, _run_pass(table, *arguments))

    return tf.cond(reads, lambda: run(table), lambda: run(None))


def _run_pass(table, task, pass_, examples, pass_key, loop, carry):
    num_all = num_rows_in_graph(examples)
    n = client_work.examples_per_epoch(num_all, pass_)
    batch_size = tf.minimum(pass_.batch_size, tf.maximum(n, 1))
    steps = client_work.steps_per_epoch(num_all, pass_)

    def epoch_body(epoch, carry):
        number = loop * pass_.num_epochs + epoch
        epoch_key = client_work.fold_key(pass_, pass_key, tensor_random.EPOCH, number)
        if client_work.draws_order(pass_):
            order = tensor_random.permutation(
                tensor_random.fold(epoch_key, tensor_random.SHUFFLE, 0), num_all
            )
        else:
            order = tf.range(n)

        def step_body(step, carry):
            rows = order[step * batch_size : tf.minimum((step + 1) * batch_size, n)]
            raw = {field: tf.gather(values, rows) for field, values in examples.items()}
            key = client_work.fold_key(pass_, epoch_key, tensor_random.STEP, step)
            x, y = task.preprocess(raw, pass_.training, key)
            if table is not None:  # What makes x is then pruned.
                x = table.features(rows)
            mask = tf.ones([tf.shape(rows)[0]])
            return pass_.step(carry, client_work.Batch(x, y, mask, key))

        taken = client_work.steps_of_epoch(steps, epoch, pass_)
        return base.repeat(taken, step_body, carry, _not_inlined)

    epochs = client_work.num_epochs(steps, pass_)
    if isinstance(epochs, int) and epochs == 1:
        carry = epoch_body(tf.constant(0), carry)
    elif not isinstance(epochs, int) or epochs > 1:
        carry = base.repeat(epochs, epoch_body, carry)
    return carry


def _not_inlined(function):
    """Keeps a loop's body a graph of its own.

    TensorFlow turns a loop into a graph with a cycle. oneDNN's rewriting goes through a graph in
    an order that is random where there are cycles, and leaves a gradient that it meets before its
    operation (max pooling) as it is: one trace of the EMNIST CNN in four ran 20% slower.
    """
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})
