"""How client work scores candidates: a board of curves that evaluation passes fill in.

A carry that has a field `board` and holds the model to score can be given `evaluation_pass`es; the
metrics that `output` makes of the board are what `core.algorithm.Personalization` promises.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from motley_tff.core import learning, paired, real_tokens, rows
from motley_tff.core.client_work import Batch, Client, ClientOutput, ClientWork, Pass
from motley_tff.core.lazy import tf
from motley_tff.core.task import Metric, Task

# Bounds memory only: metrics are sums over entries.
EVALUATION_BATCH_SIZE = 128


class RankedExamples(NamedTuple):
    """Labels and outputs of a part's examples in order; the last place is for padding.

    Attributes:
      labels: float32 [capacity + 1].
      outputs: float32 [capacity + 1, columns]: the task's `num_kept` for each candidate after the
        other, or for all candidates in turn.
      count: int32 scalar, how many are there.
    """

    labels: tf.Tensor
    outputs: tf.Tensor
    count: tf.Tensor


class Board(NamedTuple):
    """One client's scores.

    Attributes:
      sums: The evaluation in progress.
      examples: `{part: RankedExamples}`; `{}` where no metric compares examples.
      example_sums: `{part: (the current candidate's, all candidates' [capacity, num_candidates])}`.
      curves: `{part: {metric: float32 [num_candidates]}}` so far.
      candidate: int32 scalar, the candidate being trained or evaluated.
      num_examples: `{part: int32 scalar}`.
    """

    sums: learning.Sums
    examples: dict[str, RankedExamples]
    example_sums: dict[str, tuple[paired.ExampleSums, tf.Tensor]]
    curves: dict[str, dict[str, tf.Tensor]]
    candidate: tf.Tensor
    num_examples: dict[str, tf.Tensor]


def start(task: Task, parts: tuple[str, ...], num_candidates: int, client: Client) -> Board:
    """Returns an empty board whose current candidate is 0."""
    names = ("loss", *(metric.name for metric in task.metrics if not metric.by_client))
    zeros = {name: rows.full([num_candidates], 0.0) for name in names}
    places = {part: client.capacity[part] for part in parts}
    kept = num_candidates if task.keeps_examples else 1
    return Board(
        sums=learning.zero_sums(task),
        examples=empty_examples(task, parts, kept, client),
        example_sums={
            p: (paired.empty(n), rows.full([n, num_candidates], 0.0)) for p, n in places.items()
        },
        curves={part: dict(zeros) for part in parts},
        candidate=rows.full([], 0),
        num_examples=client.num_examples,
    )


def ranking(task: Task) -> list[Metric]:
    """Returns the metrics that compare examples with each other."""
    return [metric for metric in task.metrics if metric.ranks]


def empty_examples(
    task: Task, parts: tuple[str, ...], num_candidates: int, client: Client
) -> dict[str, RankedExamples]:
    """Returns room for each part's examples, `{}` if nothing compares them."""
    if not ranking(task) and not task.keeps_examples:
        return {}
    columns = num_candidates * task.num_kept
    places = {part: client.capacity[part] + 1 for part in parts}
    return {
        part: RankedExamples(rows.full([n], 0.0), rows.full([n, columns], 0.0), rows.full([], 0))
        for part, n in places.items()
    }


def append(
    examples: RankedExamples, batch: Batch, outputs: tf.Tensor, columns: tf.Tensor
) -> RankedExamples:
    """Appends a batch's real rows: `outputs`, float32 [batch, n], go into `columns`, int32 [n]."""
    is_real = batch.mask > 0.0
    last = tf.shape(examples.labels)[0] - 1
    places = tf.where(is_real, examples.count + tf.range(tf.shape(batch.mask)[0]), last)
    cells = tf.stack(tf.meshgrid(places, columns, indexing="ij"), axis=-1)
    labels = tf.cast(batch.y, tf.float32)
    return RankedExamples(
        tf.tensor_scatter_nd_update(examples.labels, places[:, None], labels),
        tf.tensor_scatter_nd_update(examples.outputs, cells, outputs),
        examples.count + tf.reduce_sum(tf.cast(is_real, tf.int32)),
    )


def ranking_metrics(
    task: Task, examples: RankedExamples, column: tf.Tensor | int
) -> dict[str, tf.Tensor]:
    """Returns the metrics that compare examples, of one column; `{}` if there are none."""
    if not ranking(task):
        return {}
    is_real = tf.range(tf.shape(examples.labels)[0]) < examples.count
    outputs = tf.gather(examples.outputs, column, axis=1)
    is_finite = tf.math.is_finite(outputs)
    finite = tf.where(is_finite, outputs, 0.0)
    values = {m: m.function(examples.labels, finite, is_real) for m in ranking(task)}
    # Not-a-number of examples that cannot be compared (of one class), whatever their outputs are.
    is_kept = tf.reduce_all(is_finite | ~is_real)
    return {m.name: tf.where(is_kept | tf.math.is_nan(v), v, m.worst) for m, v in values.items()}


def kept_of_examples(task: Task, outputs: tf.Tensor) -> tf.Tensor:
    """Returns what is kept of a batch's examples, float32 [batch, num_kept]; not-a-number of one
    whose outputs are not all finite.
    """
    is_finite = learning.rows_are_finite(outputs)
    kept = rows.by_example(task.kept_of, outputs)
    return tf.where(is_finite[..., None], kept, float("nan"))


def evaluation_pass(task: Task, part: str, weights_of: Callable[[Any], learning.Weights]) -> Pass:
    """Returns a pass that scores `weights_of(carry)` on a part, at the board's candidate."""

    def first_column(board):
        return board.candidate * (task.num_kept if task.keeps_examples else 0)

    def begin(carry):
        board = carry.board._replace(sums=learning.zero_sums(task))
        if part in board.examples:
            fresh = board.examples[part]._replace(count=rows.full([], 0))
            board = board._replace(examples={**board.examples, part: fresh})
        sums, of_all = board.example_sums[part]
        restarted = (sums._replace(count=rows.full([], 0)), of_all)
        return carry._replace(
            board=board._replace(example_sums={**board.example_sums, part: restarted})
        )

    def step(carry, batch):
        board = carry.board
        entries, outputs = real_tokens.predict(task, weights_of(carry), batch, False)
        board = board._replace(sums=learning.add(task, entries, outputs, board.sums))
        labels = batch._replace(x=(), key=())
        if part in board.examples:
            columns = first_column(board)[..., None] + tf.range(task.num_kept)
            kept = kept_of_examples(task, outputs)
            examples = rows.each(append, board.examples[part], labels, kept, columns)
            board = board._replace(examples={**board.examples, part: examples})
        sums, of_all = board.example_sums[part]
        of_entries = paired.of_batch(task, entries, outputs)
        of_examples = [real_tokens.by_example(task, batch, values) for values in of_entries]
        appended = rows.each(paired.append, sums, labels, *of_examples)
        both = {**board.example_sums, part: (appended, of_all)}
        return carry._replace(board=board._replace(example_sums=both))

    def end(carry):
        board = carry.board
        values = learning.scores(task, board.sums)
        if ranking(task):
            metrics = functools.partial(ranking_metrics, task)
            values |= rows.each(metrics, board.examples[part], first_column(board))
        # Not `==`, which compares Python objects in the graphs that TFF traces.
        places = tf.range(tf.shape(board.curves[part]["loss"])[-1])
        is_current = tf.equal(places, board.candidate[..., None])
        curves = {
            name: tf.where(is_current, values[name][..., None], curve)
            for name, curve in board.curves[part].items()
        }
        sums, of_all = board.example_sums[part]
        of_all = tf.where(is_current[..., None, :], sums.values[..., None], of_all)
        example_sums = {**board.example_sums, part: (sums, of_all)}
        curves = {**board.curves, part: curves}
        return carry._replace(board=board._replace(curves=curves, example_sums=example_sums))

    # What makes pictures draws noise to be scored, another in each batch.
    noise = task.generate is not None
    return Pass(
        part, step, EVALUATION_BATCH_SIZE,
        draws_noise=noise, begin=begin, end=end, changes=("board",),
    )  # fmt: skip


class TwoModels(NamedTuple):
    """A client whose two candidates are scored: the current one, what the second is made of, and
    the scores.
    """

    current: learning.Weights
    memory: Any
    board: Board


def two_candidates(
    task: Task,
    evaluation_parts: tuple[str, ...],
    first: Callable[[Any, Any], tuple[learning.Weights, Any]],
    second: Callable[[Any], learning.Weights],
    passes_before: tuple[Pass, ...] = (),
) -> ClientWork:
    """Returns work that scores one model, then another.

    Args:
      first: `(broadcast, client state) -> (the first model, a memory)`.
      second: `memory -> the second model`, called after the first is scored.
      passes_before: Passes over the memory before the first evaluation.
    """
    passes = tuple(
        evaluation_pass(task, part, lambda carry: carry.current) for part in evaluation_parts
    )

    def init(broadcast: Any, client_state: Any, client: Client) -> TwoModels:
        return TwoModels(*first(broadcast, client_state), start(task, evaluation_parts, 2, client))

    def turn_and_begin(carry):
        board = carry.board._replace(candidate=carry.board.candidate + 1)
        return passes[0].begin(carry._replace(current=second(carry.memory), board=board))

    return ClientWork(
        init,
        (*(pass_.within("memory") for pass_ in passes_before), *passes),
        lambda carry: board_output(task, carry.board),
        loop=(dataclasses.replace(passes[0], begin=turn_and_begin), *passes[1:]),
        num_loops=1,
    )


def board_output(task: Task, board: Board) -> ClientOutput:
    """Returns the output of a client with a board; see `output`."""
    sums = {p: (of_all, last.weights) for p, (last, of_all) in board.example_sums.items()}
    return output(task, board, board.curves, sums)


def output(
    task: Task,
    scored: Any,
    curves: dict[str, dict[str, tf.Tensor]],
    example_sums: dict[str, tuple[tf.Tensor, tf.Tensor]],
) -> ClientOutput:
    """Returns a client's output: its curves, the sums of its examples, and, where they are kept,
    what all candidates say of its examples.

    Args:
      scored: Has `examples` and `num_examples`, as a `Board`.
      example_sums: `{part: (of each candidate [capacity, num_candidates], weights [capacity])}`.
    """
    sums = {p: {"values": v, "weights": w} for p, (v, w) in example_sums.items()}
    metrics: dict[str, Any] = {
        "curves": curves, "num_examples": scored.num_examples, "example_sums": sums
    }  # fmt: skip
    if task.keeps_examples:
        metrics["scores"] = {
            part: {"labels": e.labels, "outputs": e.outputs} for part, e in scored.examples.items()
        }
    return ClientOutput((), rows.full([], 0.0), (), metrics)
