"""Runs a stack of clients' work at once: the counterpart of `client_loop` on a leading axis.

Every pure function of the work is mapped over the clients with `tf.vectorized_map`; loops run over
the steps of the longest client, and a client that has done its own keeps its carry. Keys hang on
the same positions as in `client_loop`, so both draw the same orders and the same dropout.
"""

from typing import Any

import tensorflow as tf

from motley_tff.backends import stacking
from motley_tff.core import client_work, learning, tensor_random
from motley_tff.core import task as task_lib

# Up to this many examples, counting ranks (quadratic, but plain arithmetic) beats XLA's sort.
_MAX_COUNTED = 256


def run_stack(
    task: task_lib.Task,
    work: client_work.ClientWork,
    broadcast: Any,
    client_states: Any,
    stack: stacking.Stack,
    round_key: tf.Tensor,
) -> client_work.ClientOutput:
    """Returns the clients' outputs, each leaf with a leading axis of clients.

    Args:
      task: Whose `preprocess` makes batches.
      work: The pure functions.
      broadcast: What the server sent.
      client_states: The clients' states stacked, `()` if stateless.
      stack: The clients' examples, as tensors.
      round_key: int32 [2].
    """

    def init(args):
        state, key, index, sizes = args
        # A captured tensor must pass through an op before the map may return it.
        sent = tf.nest.map_structure(tf.identity, broadcast)
        return work.init(sent, state, client_work.Client(key, index, sizes))

    keys = tensor_random.client_round_key(round_key, stack.client_keys)
    carry = tf.vectorized_map(init, (client_states, keys, stack.index, stack.sizes))

    def walk(passes, first, loop, carry):
        for i, one in enumerate(passes, first):
            pass_keys = tensor_random.fold(keys, tensor_random.PASS, i)
            carry = _run_pass(task, one, stack, pass_keys, loop, carry)
        return carry

    carry = walk(work.passes, 0, tf.constant(0), carry)
    if work.num_loops:
        period = work.loop_period or work.num_loops
        carry = repeat(
            work.num_loops, lambda i, c: walk(work.loop, len(work.passes), i % period, c), carry
        )
    return tf.vectorized_map(work.finish, carry)


def _run_pass(task, walk, stack, pass_keys, loop, carry):
    examples, n = stack.parts[walk.part], stack.sizes[walk.part]
    padded = next(iter(examples.values())).shape[1]
    batch_size = tf.minimum(walk.batch_size, tf.maximum(n, 1))
    columns = tf.range(min(walk.batch_size, padded))[None, :]
    steps = client_work.steps_per_epoch(n, walk)

    def one_client(args):
        carry, raw, mask, key, is_active = args
        x, y = task.preprocess(raw, walk.training, key)
        new = walk.step(carry, client_work.Batch(x, y, mask, key))
        return learning.select(is_active, new, carry)

    def epoch_body(epoch, carry):
        keys = tensor_random.fold(pass_keys, tensor_random.EPOCH, loop * walk.num_epochs + epoch)
        order = _orders(tensor_random.fold(keys, tensor_random.SHUFFLE, 0), n, padded, walk.shuffle)

        def step_body(step, carry):
            position = step * batch_size[:, None] + columns
            is_real = (columns < batch_size[:, None]) & (position < n[:, None])
            position = tf.where(is_real, position, 0)
            rows = position if order is None else tf.gather(order, position, batch_dims=1)
            raw = {f: tf.gather(v, rows, batch_dims=1) for f, v in examples.items()}
            step_keys = tensor_random.fold(keys, tensor_random.STEP, step)
            mask = tf.cast(is_real, tf.float32)
            return tf.vectorized_map(one_client, (carry, raw, mask, step_keys, step < steps))

        return repeat(tf.reduce_max(steps), step_body, carry)

    carry = _map_hook(walk.begin, carry)
    if walk.num_epochs == 1:
        carry = epoch_body(tf.constant(0), carry)
    elif walk.num_epochs > 1:
        carry = repeat(walk.num_epochs, epoch_body, carry)
    return _map_hook(walk.end, carry)


def _map_hook(hook, carry):
    return carry if hook is client_work.unchanged else tf.vectorized_map(hook, carry)


def _orders(keys, n, padded, shuffle):
    """Returns each client's order of its n real rows, int32 [clients, padded], or None for as is.

    The same permutations as `tensor_random.permutation`: ranks among the real rows.
    """
    if not shuffle:
        return None
    draws = tf.vectorized_map(lambda k: tensor_random.bits(k, [padded]), keys)
    rows = tf.range(padded)
    is_real = rows[None, :] < n[:, None]
    draws = tf.where(is_real, draws, tf.uint32.max)
    if padded <= _MAX_COUNTED:
        mine, other = draws[:, :, None], draws[:, None, :]
        # Padding draws the largest number and stands last, so it is never counted before a row.
        is_before = (other < mine) | (tf.equal(other, mine) & (rows[None, :] < rows[:, None])[None])
        return tf.reduce_sum(tf.cast(is_before, tf.int32), axis=2)
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
