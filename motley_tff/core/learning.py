"""Pieces that client work is built from: one training step, one evaluation step, running sums."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from motley_tff.core import real_tokens, rows, task as task_lib
from motley_tff.core.client_work import Batch
from motley_tff.core.lazy import tf

Weights = tuple["tf.Tensor", ...]
# weights -> scalar that is added to a batch's loss.
Penalty = Callable[[Weights], Any]
# (a batch's loss, the model's outputs) -> what is minimized in its place.
Objective = Callable[["tf.Tensor", "tf.Tensor"], "tf.Tensor"]


class Sums(NamedTuple):
    """Running sums that end as weighted means: totals and their weights, float32 by name."""

    totals: dict[str, tf.Tensor]
    weights: dict[str, tf.Tensor]


class Learner(NamedTuple):
    """A model in training.

    Attributes:
      optimizer_state: The optimizer's state for the trained ones.
      sums: Loss and metrics of the batches seen, each under the weights it was trained from.
    """

    weights: Weights
    optimizer_state: Any
    sums: Sums


def entry_functions(task: task_lib.Task) -> dict[str, task_lib.EntryFunction]:
    """Returns the loss and every metric of a task that is a mean of entries, by name."""
    return {"loss": task.loss, **{m.name: m.function for m in task.metrics if m.is_mean}}


def zero_sums(task: task_lib.Task, more: Sequence[str] = ()) -> Sums:
    """Returns sums over nothing, of `more` names beside the loss and the metrics."""
    zeros = {name: rows.full([], 0.0) for name in (*entry_functions(task), *more)}
    return Sums(zeros, dict(zeros))


def means(sums: Sums) -> dict[str, tf.Tensor]:
    """Returns total / weight by name; not-a-number where nothing was seen."""
    return {name: sums.totals[name] / sums.weights[name] for name in sums.totals}


def scores(task: task_lib.Task, sums: Sums) -> dict[str, tf.Tensor]:
    """Returns the loss and every metric by name, float32 [] or [candidates]: not-a-number of what
    has no entries, and the worst infinity of a model that diverged.
    """
    worst = {"loss": float("inf"), **{metric.name: metric.worst for metric in task.metrics}}
    return {
        name: tf.where(tf.math.is_finite(mean) | (sums.weights[name] == 0.0), mean, worst[name])
        for name, mean in means(sums).items()
    }


def entry_sums(task: task_lib.Task, batch: Batch, outputs: tf.Tensor) -> Sums:
    """Returns the sums of a batch's loss and metrics. A total is not-a-number where an output of an
    example that counts is not finite, though the metric may hide that: of scores that are not a
    number the first would be taken for the largest.
    """
    functions = entry_functions(task)
    # A metric that is the loss itself is summed once.
    distinct = tuple(dict.fromkeys(functions.values()))
    sums = task_lib.masked_sums(distinct, batch.y, outputs, batch.mask, rows_are_finite(outputs))
    by_function = dict(zip(distinct, sums, strict=True))
    return Sums(*({name: by_function[f][i] for name, f in functions.items()} for i in (0, 1)))


def rows_are_finite(outputs: tf.Tensor) -> tf.Tensor:
    """Returns whether all outputs of an example are finite: [batch, ...] -> bool [batch]."""
    batch_axis = len(rows.leading())
    axes = list(range(batch_axis + 1, outputs.shape.rank))
    return tf.reduce_all(tf.math.is_finite(outputs), axis=axes)


def add(task: task_lib.Task, batch: Batch, outputs: tf.Tensor, sums: Sums) -> Sums:
    """Adds a batch's loss and metrics under the model's outputs to the running sums."""
    return tf.nest.map_structure(tf.add, sums, entry_sums(task, batch, outputs))


def start(
    task: task_lib.Task, optimizer: Any, weights: Weights, trained: Sequence[bool]
) -> Learner:
    """Returns a learner with a fresh optimizer state; see `train`."""
    shapes = itertools.compress(task.model.shapes, trained)
    return Learner(tuple(weights), first_state(optimizer, shapes), zero_sums(task))


def first_state(optimizer: Any, shapes: Iterable[Sequence[int]]) -> Any:
    """Returns an optimizer's state before its first step on float32 weights of these shapes."""
    specs = tuple(tf.TensorSpec([*rows.leading(), *shape], tf.float32) for shape in shapes)
    # Hyperparameters in the state are Python floats at first; a loop's carry holds tensors.
    state = tf.nest.map_structure(tf.convert_to_tensor, optimizer.initialize(specs))
    return tf.nest.map_structure(lambda s: s if s.shape.rank else rows.full([], s), state)


def resumed(fresh: Any, kept: Any) -> Any:
    """Returns an optimizer's state that was kept, at the learning rate of a fresh one."""
    return type(fresh)(kept, learning_rate=fresh["learning_rate"])


def train(
    task: task_lib.Task,
    optimizer: Any,
    learner: Learner,
    batch: Batch,
    trained: Sequence[bool],
    penalty: Penalty | None = None,
    objective: Objective | None = None,
) -> Learner:
    """Takes one optimizer step on a batch.

    Args:
      optimizer: A `tff.learning.optimizers.Optimizer`.
      trained: For each weight, whether it is trained.
      penalty: Added to the loss that is minimized; the reported loss leaves it out.
      objective: Takes the place of the loss that is minimized, not of the reported one.
    """
    gradients_, sums = gradients(
        task, learner.weights, batch, learner.sums, trained, penalty, objective
    )
    return step(optimizer, learner, gradients_, trained)._replace(sums=sums)


def step(optimizer: Any, learner: Learner, gradients: Weights, trained: Sequence[bool]) -> Learner:
    """Returns the learner after an optimizer's step along the gradients of its trained weights."""
    variables = tuple(itertools.compress(learner.weights, trained))
    before = learner.optimizer_state, variables, gradients
    state, new = rows.each(optimizer.next, *before)
    return Learner(merge(learner.weights, new, trained), state, learner.sums)


def gradients(
    task: task_lib.Task,
    weights: Weights,
    batch: Batch,
    sums: Sums,
    trained: Sequence[bool],
    penalty: Penalty | None = None,
    objective: Objective | None = None,
) -> tuple[Weights, Sums]:
    """Returns (gradients of the trained weights, sums with the batch added); see `train`."""
    variables = tuple(itertools.compress(weights, trained))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        if objective is None:
            batch, outputs = real_tokens.predict(task, weights, batch, True)
        else:  # It may compare outputs with others of the whole batch.
            outputs = task.model.predict(weights, batch.x, True, batch.key)
        total, weight = task_lib.masked_sum(task.loss, batch.y, outputs, batch.mask)
        loss = tf.math.divide_no_nan(total, weight)
        if objective is not None:
            loss = objective(loss, outputs)
        if task.regularizer is not None:
            loss += rows.each(task.regularizer, weights)
        if penalty is not None:
            loss += penalty(weights)
    derivatives = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    pairs = zip(derivatives, variables, strict=True)
    # Through a model that is mapped, a gradient does not know how many rows there are.
    shaped = tuple(tf.ensure_shape(g, variable.shape) for g, variable in pairs)
    return shaped, add(task, batch, outputs, sums)


def merge(weights: Weights, new: Weights, trained: Sequence[bool]) -> Weights:
    """Returns `weights` with the trained ones replaced, in order, by `new`."""
    replacements = iter(new)
    return tuple(next(replacements) if t else w for w, t in zip(weights, trained, strict=True))


def subtract(a: Weights, b: Weights) -> Weights:
    """Returns a - b, leaf by leaf."""
    return tuple(x - y for x, y in zip(a, b, strict=True))


def squared_distance(a: Weights, b: Weights) -> tf.Tensor:
    """Returns the squared Euclidean distance of two sets of weights."""
    return tf.add_n([rows.total(tf.square(x - y)) for x, y in zip(a, b, strict=True)])
