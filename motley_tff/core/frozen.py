"""Frozen layers of a client's model are computed once: a table of features of the client's examples
that its passes read in place of the examples.

What a pass evaluates on are the inputs of the first layer that is trained; what it trains on ends
before the first layer that draws (dropout), so that each batch draws as it does without a table.

The vectorized backend computes them anew. Of a perceptron's 20 epochs with 50 clients they took at
most 0.1 s there, of 3.6 s that were nearly all tracing and compiling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from motley_tff.core import layer_groups
from motley_tff.core.client_work import ClientWork, Pass
from motley_tff.core.clients import num_rows_in_graph
from motley_tff.core.layer_groups import Cut, Features
from motley_tff.core.lazy import tf
from motley_tff.core.task import Task

# A client whose table would take more is computed without one. An EMNIST writer's takes 8 MB at
# most, a StackOverflow user's 4 MB.
MOST_BYTES = 64_000_000
# Bounds the memory of the layers themselves.
_BATCH_SIZE = 128

# {(part, whether it is to train on): table}
FeatureTables = Mapping[tuple[str, bool], "FeatureTable"]


class FeatureTable(NamedTuple):
    """Features of a part's examples.

    Attributes:
      values: float32 [examples, ...], or [0, ...] where they do not fit.
      fits: Whether they do, bool []; None if they do for all clients.
    """

    values: tf.Tensor
    fits: tf.Tensor | None
    cut: Cut

    def features(self, rows: tf.Tensor) -> Features:
        """Returns those of some examples, int32 [batch]."""
        return Features(tf.gather(self.values, rows), self.cut)


def feature_tables(
    task: Task, work: ClientWork, parts: Mapping[str, Mapping[str, tf.Tensor]], carry: Any
) -> FeatureTables:
    """Returns a table for each kind of pass of the work that has a use for one; none of passes that
    read a few examples of many.

    Args:
      parts: The client's examples, `{part: {field: tensor [n, ...]}}`.
      carry: What the work's `init` returned.
    """
    tables: dict[tuple[str, bool], FeatureTable] = {}
    if work.frozen is None or work.frozen.is_trained[0]:  # Nothing to look for cuts for.
        return tables
    for pass_ in work.all_passes:
        kind = pass_.part, pass_.training
        cut = layer_groups.last_cut(task.model.cuts, work.frozen.is_trained, pass_.training)
        if cut is None or kind in tables or pass_.max_examples is not None:
            continue
        if not (pass_.draws_noise or _draws_inputs(task, pass_, parts[pass_.part])):
            weights = work.frozen.weights(carry)
            tables[kind] = _table(task, weights, cut, pass_.training, parts[pass_.part])
    return tables


def reads(work: ClientWork, table: FeatureTable, carry: Any) -> tf.Tensor | None:
    """Returns whether a pass that begins with this carry reads the table, bool []; None for yes."""
    assert work.frozen is not None
    holds = None if work.frozen.holds is None else work.frozen.holds(carry)
    conditions = [condition for condition in (table.fits, holds) if condition is not None]
    return tf.reduce_all(tf.stack(conditions)) if conditions else None


def _draws_inputs(task: Task, pass_: Pass, examples: Mapping[str, tf.Tensor]) -> bool:
    """Returns whether a batch's inputs depend on its key (augmentation)."""

    def inputs(key, raw):
        return task.preprocess(raw, pass_.training, key)[0]

    spec = {f: tf.TensorSpec([None, *v.shape[1:]], v.dtype) for f, v in examples.items()}
    traced = tf.function(inputs, autograph=False)
    graph = traced.get_concrete_function(tf.TensorSpec([2], tf.int32), spec).graph
    return bool(graph.inputs[0].consumers())


def _table(task, weights, cut, training, examples) -> FeatureTable:
    rows, fits = num_rows_in_graph(examples), None
    most = MOST_BYTES // (4 * math.prod(cut.shape))
    if not 0 < _largest(task) <= most:
        fits = rows <= most
        rows = tf.where(fits, rows, 0)
    batches = (rows + _BATCH_SIZE - 1) // _BATCH_SIZE

    def body(i, values):
        batch = tf.range(i * _BATCH_SIZE, tf.minimum((i + 1) * _BATCH_SIZE, rows))
        raw = {field: tf.gather(values, batch) for field, values in examples.items()}
        x, _ = task.preprocess(raw, training, tf.zeros([2], tf.int32))
        return i + 1, values.write(i + 1, task.model.features(weights, x, cut, training))

    shape = [None, *cut.shape]
    values = tf.TensorArray(tf.float32, batches + 1, infer_shape=False, element_shape=shape)
    values = values.write(0, tf.zeros([0, *cut.shape]))  # There may be no other.
    _, values = tf.while_loop(lambda i, _: i < batches, body, (0, values), parallel_iterations=1)
    return FeatureTable(values.concat(), fits, cut)


def _largest(task: Task) -> int:
    """Returns how many examples the largest client has; 0 if that is not known of all splits."""
    sizes = [max(clients.sizes.values(), default=0) for clients in task.splits.values()]
    return max(sizes) if all(sizes) else 0
