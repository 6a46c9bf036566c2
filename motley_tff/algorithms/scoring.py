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


class Board(NamedTuple):
    """One client's scores.

    Attributes:
      sums: The evaluation in progress.
      curves: `{part: {metric: float32 [num_candidates]}}` so far.
      candidate: int32 scalar, the candidate being trained or evaluated.
      num_examples: `{part: int32 scalar}`.
    """

    sums: learning.Sums
    curves: dict[str, dict[str, tf.Tensor]]
    candidate: tf.Tensor
    num_examples: dict[str, tf.Tensor]


def start(
    task: task_lib.Task,
    parts: tuple[str, ...],
    num_candidates: int,
    num_examples: dict[str, tf.Tensor],
) -> Board:
    """Returns an empty board whose current candidate is 0."""
    zeros = {name: tf.zeros([num_candidates]) for name in learning.entry_functions(task)}
    return Board(
        sums=learning.zero_sums(task),
        curves={part: dict(zeros) for part in parts},
        candidate=tf.constant(0),
        num_examples=num_examples,
    )


def evaluation_pass(
    task: task_lib.Task, part: str, weights_of: Callable[[Any], learning.Weights]
) -> client_work.Pass:
    """Returns a pass that scores `weights_of(carry)` on a part, at the board's candidate."""

    def begin(carry):
        return carry._replace(board=carry.board._replace(sums=learning.zero_sums(task)))

    def step(carry, batch):
        sums = learning.evaluate(task, weights_of(carry), batch, carry.board.sums)
        return carry._replace(board=carry.board._replace(sums=sums))

    def end(carry):
        board = carry.board
        means = learning.means(board.sums)
        # Not `==`, which compares Python objects in the graphs that TFF traces.
        is_current = tf.equal(tf.range(tf.shape(board.curves[part]["loss"])[0]), board.candidate)
        curves = {
            name: tf.where(is_current, means[name], curve)
            for name, curve in board.curves[part].items()
        }
        return carry._replace(board=board._replace(curves={**board.curves, part: curves}))

    return client_work.Pass(part, step, EVALUATION_BATCH_SIZE, begin=begin, end=end)


def output(board: Board) -> client_work.ClientOutput:
    """Returns a board's curves as a client's output."""
    metrics = {"curves": board.curves, "num_examples": board.num_examples}
    return client_work.ClientOutput((), tf.zeros([]), (), metrics)
