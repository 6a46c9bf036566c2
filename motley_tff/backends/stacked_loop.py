"""Runs a stack of clients' work at once: the counterpart of `client_loop` on a leading axis.

The leading axis holds *rows*: (run, client) pairs, run by run; a run is a setting of
hyperparameters under a seed, and the runs of one setting lie together. Runs of one seed share the
orders, the batches and the dropout of their clients. Every pure function of the work is mapped over
the rows with `tf.vectorized_map`; loops run over the steps of the longest client, and a row that
has done its own keeps its carry. Keys hang on the same positions as in `client_loop`, so both draw
the same.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from motley_tff.backends import stacking
from motley_tff.core import client_work, tensor_random
from motley_tff.core import task as task_lib

# Up to this many examples, counting ranks (quadratic, but plain arithmetic) beats XLA's sort.
_MAX_COUNTED = 256

# {name: scalar} -> the client work of a run with these hyperparameters.
WorkOf = Callable[[dict[str, Any]], client_work.ClientWork]


class Rows:
    """The rows of a stack: how to spread what belongs to clients or to runs over them.

    Args:
      num_runs: Runs.
      num_seeds: How many different seeds they have.
      num_clients: Clients of the stack.
    """

    def __init__(self, num_runs: int, num_seeds: int, num_clients: int):
        self._runs, self._seeds, self._clients = num_runs, num_seeds, num_clients

    def of_clients(self, nest: Any) -> Any:
        """Repeats leaves [seeds * clients, ...] for every setting: [rows, ...]."""
        return _tiled(nest, self._runs // self._seeds)

    def of_seeds(self, nest: Any) -> Any:
        """Repeats leaves [seeds, ...] for every client: [seeds * clients, ...]."""
        return tf.nest.map_structure(lambda t: tf.repeat(t, self._clients, axis=0), nest)

    def under_seeds(self, nest: Any) -> Any:
        """Repeats leaves [clients, ...] for every seed: [seeds * clients, ...]."""
        return _tiled(nest, self._seeds)

    def of_runs(self, nest: Any) -> Any:
        """Repeats leaves [runs, ...] for every client: [rows, ...]."""
        return tf.nest.map_structure(lambda t: tf.repeat(t, self._clients, axis=0), nest)

    def split(self, nest: Any) -> Any:
        """Returns leaves [rows, ...] as [runs, clients, ...]."""
        return tf.nest.map_structure(
            lambda t: tf.reshape(t, [self._runs, self._clients, *t.shape[1:]]), nest
        )


def _tiled(nest: Any, times: int) -> Any:
    if times == 1:
        return nest
    return tf.nest.map_structure(lambda t: tf.tile(t, [times] + [1] * (len(t.shape) - 1)), nest)


def run_stack(
    task: task_lib.Task,
    work_of: WorkOf,
    template: client_work.ClientWork,
    hparams: dict[str, tf.Tensor],
    broadcast: Any,
    client_states: Any,
    stack: stacking.Stack,
    round_keys: tf.Tensor,
) -> client_work.ClientOutput:
    """Returns the clients' outputs, each leaf with leading axes [runs, clients].

    Args:
      task: Whose `preprocess` makes batches.
      work_of: The pure functions of a run.
      template: The work of some run: all runs walk over the data alike.
      hparams: `{name: [runs]}`.
      broadcast: What the server of each run sent, leaves [runs, ...].
      client_states: The clients' states, leaves [runs, clients, ...]; `()` if stateless.
      stack: The clients' examples, as tensors.
      round_keys: int32 [seeds, 2].
    """
    num_runs = tf.nest.flatten(broadcast)[0].shape[0]
    rows = Rows(num_runs, round_keys.shape[0], stack.index.shape[0])
    row_hparams = rows.of_runs(hparams)
    keys = tensor_random.client_round_key(
        rows.of_seeds(round_keys), rows.under_seeds(stack.client_keys)
    )

    capacity = {part: _num_padded(examples) for part, examples in stack.parts.items()}

    def init(args):
        row_hparams, sent, state, key, index, sizes = args
        client = client_work.Client(key, index, sizes, capacity)
        return work_of(row_hparams).init(sent, state, client)

    states = tf.nest.map_structure(lambda t: tf.reshape(t, [-1, *t.shape[2:]]), client_states)
    clients = rows.of_clients((keys, rows.under_seeds(stack.index), stack.sizes))
    carry = tf.vectorized_map(init, (row_hparams, rows.of_runs(broadcast), states, *clients))

    def walk(kind, first, loop, carry):
        for i, one in enumerate(getattr(template, kind)):
            pass_keys = tensor_random.fold(keys, tensor_random.PASS, first + i)

            def pass_of(row_hparams, kind=kind, i=i):
                return getattr(work_of(row_hparams), kind)[i]

            carry = _run_pass(task, one, pass_of, row_hparams, rows, stack, pass_keys, loop, carry)
        return carry

    carry = walk("passes", 0, tf.constant(0), carry)
    if template.num_loops:
        period = template.loop_period or template.num_loops
        first = len(template.passes)
        carry = repeat(template.num_loops, lambda i, c: walk("loop", first, i % period, c), carry)

    def finish(args):
        return work_of(args[0]).finish(args[1])

    return rows.split(tf.vectorized_map(finish, (row_hparams, carry)))


def _run_pass(task, walk, pass_of, row_hparams, rows, stack, pass_keys, loop, carry):
    examples, n = stack.parts[walk.part], stack.sizes[walk.part]
    padded = _num_padded(examples)
    batch_size = tf.minimum(walk.batch_size, tf.maximum(n, 1))
    columns = tf.range(min(walk.batch_size, padded))[None, :]
    steps = client_work.steps_per_epoch(n, walk)

    def one_row(args):
        row_hparams, carry, raw, mask, key = args
        x, y = task.preprocess(raw, walk.training, key)
        return pass_of(row_hparams).step(carry, client_work.Batch(x, y, mask, key))

    def epoch_body(epoch, carry):
        keys = tensor_random.fold(pass_keys, tensor_random.EPOCH, loop * walk.num_epochs + epoch)
        shuffle_keys = tensor_random.fold(keys, tensor_random.SHUFFLE, 0)
        order = _orders(shuffle_keys, n, padded) if walk.shuffle else None

        def step_body(step, carry):
            position = step * batch_size[:, None] + columns
            is_real = (columns < batch_size[:, None]) & (position < n[:, None])
            position = tf.where(is_real, position, 0)
            drawn = position if order is None else tf.gather(order, position, batch_dims=1)
            raw = {f: tf.gather(v, drawn, batch_dims=1) for f, v in examples.items()}
            step_keys = tensor_random.fold(keys, tensor_random.STEP, step)
            batch = rows.of_clients((raw, tf.cast(is_real, tf.float32), step_keys))
            new = tf.vectorized_map(one_row, (row_hparams, carry, *batch))
            return _select(rows.of_clients(step < steps), new, carry)

        return repeat(tf.reduce_max(steps), step_body, carry)

    carry = _map_hook("begin", walk, pass_of, row_hparams, carry)
    if walk.num_epochs == 1:
        carry = epoch_body(tf.constant(0), carry)
    elif walk.num_epochs > 1:
        carry = repeat(walk.num_epochs, epoch_body, carry)
    return _map_hook("end", walk, pass_of, row_hparams, carry)


def _num_padded(examples) -> int:
    return next(iter(examples.values())).shape[1]


def _select(is_new, new, old):
    """Takes `new` for the rows where `is_new` [rows] holds, else `old`."""

    def one(a, b):
        return tf.where(tf.reshape(is_new, [-1] + [1] * (len(a.shape) - 1)), a, b)

    return tf.nest.map_structure(one, new, old)


def _map_hook(name, walk, pass_of, row_hparams, carry):
    if getattr(walk, name) is client_work.unchanged:
        return carry
    return tf.vectorized_map(
        lambda args: getattr(pass_of(args[0]), name)(args[1]), (row_hparams, carry)
    )


def _orders(keys, n, padded):
    """Returns each client's order of its n real rows, int32 [clients, padded].

    The same permutations as `tensor_random.permutation`: ranks among the real rows.
    """
    draws = tf.vectorized_map(lambda k: tensor_random.bits(k, [padded]), keys)
    places = tf.range(padded)
    # Padding draws the largest number and stands last, so it is never counted before a row.
    draws = tf.where(places[None, :] < n[:, None], draws, tf.uint32.max)
    if padded <= _MAX_COUNTED:
        mine, other = draws[:, :, None], draws[:, None, :]
        is_tie_before = tf.equal(other, mine) & (places[None, :] < places[:, None])[None]
        return tf.reduce_sum(tf.cast((other < mine) | is_tie_before, tf.int32), axis=2)
    return tf.argsort(tf.argsort(draws, axis=1, stable=True), axis=1)


def repeat(times, body, carry):
    """Folds `body(i, carry) -> carry` over `range(times)`."""
    carry = tf.nest.map_structure(tf.convert_to_tensor, carry)
    _, carry = tf.while_loop(
        lambda i, _: i < times,
        lambda i, c: (i + 1, tf.nest.map_structure(tf.convert_to_tensor, body(i, c))),
        (tf.constant(0), carry),
        parallel_iterations=1,
    )
    return carry
