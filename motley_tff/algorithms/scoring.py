"""How client work scores candidates: a board of curves that evaluation passes fill in.

A carry that has a field `board` and holds the model to score can be given `evaluation_pass`es; the
metrics that `output` makes of the board are what `core.algorithm.Personalization` promises.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from motley_tff.core import client_work, learning
from motley_tff.core import task as task_lib

# Bounds memory only: metrics are sums over entries.
EVALUATION_BATCH_SIZE = 128


class Kept(NamedTuple):
    """Labels and outputs of a part's examples in order; the last place is for padding.

    Attributes:
      labels: float32 [capacity + 1].
      outputs: float32 [capacity + 1].
      count: int32 scalar, how many are there.
    """

    labels: tf.Tensor
    outputs: tf.Tensor
    count: tf.Tensor


class Board(NamedTuple):
    """One client's scores.

    Attributes:
      sums: The evaluation in progress.
      kept: `{part: Kept}` for metrics that compare examples with each other; `{}` without such.
      curves: `{part: {metric: float32 [num_candidates]}}` so far.
      candidate: int32 scalar, the candidate being trained or evaluated.
      num_examples: `{part: int32 scalar}`.
    """

    sums: learning.Sums
    kept: dict[str, Kept]
    curves: dict[str, dict[str, tf.Tensor]]
    candidate: tf.Tensor
    num_examples: dict[str, tf.Tensor]


def start(
    task: task_lib.Task,
    parts: tuple[str, ...],
    num_candidates: int,
    client: client_work.Client,
) -> Board:
    """Returns an empty board whose current candidate is 0."""
    zeros = {name: tf.zeros([num_candidates]) for name in ("loss", *(m.name for m in task.metrics))}
    return Board(
        sums=learning.zero_sums(task),
        kept={part: _nothing(client.capacity[part]) for part in parts if _ranking(task)},
        curves={part: dict(zeros) for part in parts},
        candidate=tf.constant(0),
        num_examples=client.num_examples,
    )


def _ranking(task: task_lib.Task) -> list[task_lib.Metric]:
    return [metric for metric in task.metrics if metric.ranks]


def _nothing(capacity) -> Kept:
    return Kept(tf.zeros([capacity + 1]), tf.zeros([capacity + 1]), tf.constant(0))


def _keep(kept: Kept, batch: client_work.Batch, outputs: tf.Tensor) -> Kept:
    """Appends a batch's real rows."""
    is_real = batch.mask > 0.0
    last = tf.shape(kept.labels)[0] - 1
    places = tf.where(is_real, kept.count + tf.range(tf.shape(batch.mask)[0]), last)[:, None]
    return Kept(
        tf.tensor_scatter_nd_update(kept.labels, places, tf.cast(batch.y, tf.float32)),
        tf.tensor_scatter_nd_update(kept.outputs, places, outputs),
        kept.count + tf.reduce_sum(tf.cast(is_real, tf.int32)),
    )


def evaluation_pass(
    task: task_lib.Task, part: str, weights_of: Callable[[Any], learning.Weights]
) -> client_work.Pass:
    """Returns a pass that scores `weights_of(carry)` on a part, at the board's candidate."""
    ranking = _ranking(task)

    def begin(carry):
        board = carry.board._replace(sums=learning.zero_sums(task))
        if ranking:
            fresh = board.kept[part]._replace(count=tf.constant(0))
            board = board._replace(kept={**board.kept, part: fresh})
        return carry._replace(board=board)

    def step(carry, batch):
        board = carry.board
        outputs = task.model.predict(weights_of(carry), batch.x, False, batch.key)
        board = board._replace(sums=learning.add(task, batch, outputs, board.sums))
        if ranking:
            kept = _keep(board.kept[part], batch, outputs)
            board = board._replace(kept={**board.kept, part: kept})
        return carry._replace(board=board)

    def end(carry):
        board = carry.board
        values = learning.means(board.sums)
        if ranking:
            labels, outputs, count = board.kept[part]
            is_real = tf.range(tf.shape(labels)[0]) < count
            values |= {m.name: m.function(labels, outputs, is_real) for m in ranking}
        # Not `==`, which compares Python objects in the graphs that TFF traces.
        is_current = tf.equal(tf.range(tf.shape(board.curves[part]["loss"])[0]), board.candidate)
        curves = {
            name: tf.where(is_current, values[name], curve)
            for name, curve in board.curves[part].items()
        }
        return carry._replace(board=board._replace(curves={**board.curves, part: curves}))

    return client_work.Pass(part, step, EVALUATION_BATCH_SIZE, begin=begin, end=end)


def output(board: Board) -> client_work.ClientOutput:
    """Returns a board's curves as a client's output."""
    metrics = {"curves": board.curves, "num_examples": board.num_examples}
    return client_work.ClientOutput((), tf.zeros([]), (), metrics)
