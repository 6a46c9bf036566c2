"""Runs a stack of clients' work at once: the counterpart of `client_loop` on a leading axis.

The leading axis holds *rows*: (seed, client, setting of hyperparameters) triples, the settings of
a client under a seed side by side. These share their order, batches and dropout, so that a batch is
gathered once and meets the models of all settings in one matrix product. Work that takes rows
(`core.rows`) is called on them where there is one setting; else each function is mapped over them
with `tf.vectorized_map`, which takes several times as long to trace. Loops run over the steps of
the longest client, and a row that has done its own keeps what steps change. Keys hang on the same
positions as in `client_loop`, so both draw the same.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from motley_tff.backends import base
from motley_tff.backends.stacking import Stack
from motley_tff.core import client_work, rows, tensor_random
from motley_tff.core.task import Task

# The package exports a function of the same name.
pfor = importlib.import_module("tensorflow.python.ops.parallel_for.pfor")
# Up to this many examples, counting ranks (quadratic, but plain arithmetic) beats XLA's sort.
_MAX_COUNTED = 2048
# Distances that one step of the count compares over: each is one pass over contiguous memory.
_DISTANCES_PER_STEP = 8

# {name: scalar} -> the client work of a run with these hyperparameters.
WorkOf = Callable[[dict[str, Any]], client_work.ClientWork]


def map_rows(function: Callable[[Any], Any], elements: Any) -> Any:
    """Returns `function` of every row of `elements`, leaves [rows, ...].

    `tf.vectorized_map` turns autograph on over its body, whatever it is called from; our bodies
    are graph code already, and converting them took half of a silo run's tracing.
    """
    mapped = tf.vectorized_map(tf.autograph.experimental.do_not_convert(function), elements)
    number = tf.nest.flatten(elements)[0].shape[0]
    for leaf in tf.nest.flatten(mapped):
        leaf.set_shape([number, *leaf.shape[1:]])
    return mapped


def _with_static_shapes(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Returns a replacement for a private method of `tf.vectorized_map`'s in the pinned TensorFlow.

    It gives the stacked inputs of an operation the rank that all need to broadcast. TensorFlow adds
    operations that work out each new shape: of 1,313 of a training step of School's model, 1,003.
    Where shapes are known, as ours are, a reshape does.
    """

    def expanddim_inputs_for_broadcast(self):
        ranks = [entry.t.shape.rank for entry in self._inputs]
        if not all(entry.t.shape.is_fully_defined() for entry in self._inputs):
            return original(self)
        ranks = [r + (not entry.is_stacked) for r, entry in zip(ranks, self._inputs, strict=True)]
        for i, (rank, entry) in enumerate(zip(ranks, self._inputs, strict=True)):
            missing = max(ranks) - rank
            if entry.is_stacked and missing:
                length, *rest = entry.t.shape
                shape = [length, *[1] * missing, *rest]
                self._inputs[i] = pfor.wrap(tf.reshape(entry.t, shape), True)
        return None

    return expanddim_inputs_for_broadcast


pfor._PforInput.expanddim_inputs_for_broadcast = _with_static_shapes(
    pfor._PforInput.expanddim_inputs_for_broadcast
)


class RowLayout:
    """The order of a stack's rows, by which values of clients or of runs are spread over them.

    Runs are in the order of their settings, then seeds.
    """

    def __init__(self, num_runs: int, num_seeds: int, num_clients: int):
        self._seeds, self._clients = num_seeds, num_clients
        self.num_settings = num_runs // num_seeds
        self.num_rows = num_runs * num_clients

    def of_clients(self, nest: Any) -> Any:
        """Repeats leaves [seeds * clients, ...] for every setting: [rows, ...]."""
        return _repeated(nest, self.num_settings)

    def of_seeds(self, nest: Any) -> Any:
        """Repeats leaves [seeds, ...] for every client: [seeds * clients, ...]."""
        return _repeated(nest, self._clients)

    def under_seeds(self, nest: Any) -> Any:
        """Repeats leaves [clients, ...] for every seed: [seeds * clients, ...]."""
        times = self._seeds
        return tf.nest.map_structure(lambda t: tf.tile(t, [times] + [1] * (len(t.shape) - 1)), nest)

    def of_runs(self, nest: Any) -> Any:
        """Repeats leaves [runs, ...] for every client: [rows, ...]."""
        return self.of_states(
            tf.nest.map_structure(lambda t: tf.repeat(t[:, None], self._clients, axis=1), nest)
        )

    def of_states(self, nest: Any) -> Any:
        """Returns leaves [runs, clients, ...] as [rows, ...]."""

        def to_rows(leaf):
            if self.num_settings == 1:
                return tf.reshape(leaf, [-1, *leaf.shape[2:]])
            leaf = tf.reshape(leaf, [self.num_settings, -1, *leaf.shape[2:]])
            return tf.reshape(tf.einsum("sc...->cs...", leaf), [-1, *leaf.shape[2:]])

        return tf.nest.map_structure(to_rows, nest)

    def split(self, nest: Any) -> Any:
        """Returns leaves [rows, ...] as [runs, clients, ...]."""

        def to_runs(leaf):
            if self.num_settings == 1:
                return tf.reshape(leaf, [-1, self._clients, *leaf.shape[1:]])
            leaf = tf.reshape(leaf, [-1, self.num_settings, *leaf.shape[1:]])
            leaf = tf.einsum("cs...->sc...", leaf)
            return tf.reshape(leaf, [-1, self._clients, *leaf.shape[2:]])

        return tf.nest.map_structure(to_runs, nest)

    def map(self, function: Callable[..., Any], of_rows: Any, shared: Any = ()) -> Any:
        """Returns `function(*of_rows, *shared)` for every row; `shared` has leaves [seeds *
        clients, ...] or none.
        """
        if self.num_settings == 1 or not tf.nest.flatten(shared):
            return map_rows(lambda args: function(*args[0], *args[1]), (of_rows, shared))

        def one_client(args):
            of_settings, shared = args
            return map_rows(lambda row: function(*row, *shared), of_settings)

        grouped = tf.nest.map_structure(
            lambda t: tf.reshape(t, [-1, self.num_settings, *t.shape[1:]]), of_rows
        )
        new = map_rows(one_client, (grouped, shared))
        return tf.nest.map_structure(lambda t: tf.reshape(t, [-1, *t.shape[2:]]), new)


def _repeated(nest: Any, times: int) -> Any:
    if times == 1:
        return nest
    return tf.nest.map_structure(lambda t: tf.repeat(t, times, axis=0), nest)


def run_stack(
    task: Task,
    work_of: WorkOf,
    template: client_work.ClientWork,
    hparams: dict[str, tf.Tensor],
    broadcast: Any,
    client_states: Any,
    stack: Stack,
    round_keys: tf.Tensor,
) -> client_work.ClientOutput:
    """Returns the clients' outputs, each leaf with leading axes [runs, clients].

    Args:
      task: Whose `preprocess` makes batches.
      template: The work of some run: all runs go over the data alike.
      hparams: `{name: [runs]}`.
      broadcast: What the server of each run sent, leaves [runs, ...].
      client_states: Leaves [runs, clients, ...]; `()` if stateless.
      stack: The clients' examples, as tensors.
      round_keys: int32 [seeds, 2].
    """

    def capped(work):
        return client_work.capped(work, "train", task.max_train_examples)

    template = capped(template)
    num_runs = tf.nest.flatten(broadcast)[0].shape[0]
    layout = RowLayout(num_runs, round_keys.shape[0], stack.index.shape[0])
    row_hparams = layout.of_runs(hparams)
    keys = tensor_random.client_round_key(
        layout.of_seeds(round_keys), layout.under_seeds(stack.client_keys)
    )
    capacity = {part: _num_padded(examples) for part, examples in stack.parts.items()}
    known = layout.of_clients((keys, layout.under_seeds(stack.index), stack.sizes))
    client = client_work.Client(known[0], known[1], known[2], capacity)
    states = layout.of_states(client_states)
    # Settings of a client have its batch in common: mapped, which trains twice as fast then.
    takes_rows = template.takes_rows and layout.num_settings == 1
    with rows.stacked(layout if takes_rows else None):
        if takes_rows:
            work = capped(work_of(row_hparams))
        else:
            work = _mapped(template, lambda h: capped(work_of(h)), row_hparams, layout)
        carry = work.init(layout.of_runs(broadcast), states, client)

        def run_passes(indices, loop, carry):
            for i in indices:
                pass_ = work.all_passes[i]
                number = client_work.pass_number(pass_, i)
                pass_keys = tensor_random.fold(keys, tensor_random.PASS, number)
                carry = _run_pass(task, pass_, layout, stack, pass_keys, loop, carry)
            return carry

        carry = client_work.walk_over(work, run_passes, base.repeat, carry)
        return layout.split(work.finish(carry))


def _mapped(
    template: client_work.ClientWork, work_of: WorkOf, row_hparams: Any, layout: RowLayout
) -> client_work.ClientWork:
    """Returns the work of a stack whose clients' functions are mapped over the rows."""

    def over_rows(function_of, *of_rows, shared=()):
        def one_row(row_hparams, *args):
            return function_of(work_of(row_hparams))(*args)

        return layout.map(one_row, (row_hparams, *of_rows), shared)

    def init(broadcast, state, client):
        def function_of(work):
            return lambda sent, state, known: work.init(
                sent, state, known._replace(capacity=client.capacity)
            )

        return over_rows(function_of, broadcast, state, client._replace(capacity={}))

    @functools.cache  # Passes that are equal stay so: `walk_over` looks.
    def mapped_pass(pass_):
        i = template.all_passes.index(pass_)

        def hook(name):
            if getattr(pass_, name) is client_work.unchanged:
                return client_work.unchanged
            return lambda carry: over_rows(lambda w: getattr(w.all_passes[i], name), carry)

        def step(carry, batch):
            return over_rows(lambda w: w.all_passes[i].step, carry, shared=(batch,))

        hooks = {name: hook(name) for name in ("begin", "end")}
        return dataclasses.replace(pass_, step=step, changes=(), **hooks)

    return template.map_passes(
        mapped_pass, init=init, finish=lambda carry: over_rows(lambda w: w.finish, carry)
    )


def _run_pass(task, pass_, layout, stack, pass_keys, loop, carry):
    examples, num_all = stack.parts[pass_.part], stack.sizes[pass_.part]
    n = client_work.examples_per_epoch(num_all, pass_)
    padded = _num_padded(examples)
    batch_size = tf.minimum(pass_.batch_size, tf.maximum(n, 1))
    columns = tf.range(min(pass_.batch_size, padded))[None, :]
    steps = client_work.steps_per_epoch(num_all, pass_)

    def batch_of(raw, mask, keys):
        if getattr(task.preprocess, "takes_rows", False):
            x, y = task.preprocess(raw, pass_.training, keys)
        else:
            x, y = map_rows(lambda a: task.preprocess(a[0], pass_.training, a[1]), (raw, keys))
        return client_work.Batch(x, y, mask, keys)

    def epoch_body(epoch, part):
        number = loop * pass_.num_epochs + epoch
        keys = client_work.fold_key(pass_, pass_keys, tensor_random.EPOCH, number)
        taken = client_work.steps_of_epoch(steps, epoch, pass_)
        order = None
        if client_work.draws_order(pass_):
            shuffle_keys = tensor_random.fold(keys, tensor_random.SHUFFLE, 0)
            order = _orders(shuffle_keys, num_all, padded)

        def step_body(step, part):
            position = step * batch_size[:, None] + columns
            is_real = (columns < batch_size[:, None]) & (position < n[:, None])
            position = tf.where(is_real, position, 0)
            drawn = position if order is None else tf.gather(order, position, batch_dims=1)
            raw = {f: tf.gather(v, drawn, batch_dims=1) for f, v in examples.items()}
            step_keys = client_work.fold_key(pass_, keys, tensor_random.STEP, step)
            batch = batch_of(raw, tf.cast(is_real, tf.float32), step_keys)
            new = pass_.stepped(carry, part, batch)
            return rows.select(layout.of_clients(step < taken), new, part)

        return base.repeat(tf.reduce_max(taken), step_body, part)

    carry = pass_.begin(carry)
    part = pass_.changing(carry)
    epochs = client_work.num_epochs(steps, pass_)
    if not isinstance(epochs, int):
        part = base.repeat(tf.reduce_max(epochs), epoch_body, part)
    elif epochs == 1:
        part = epoch_body(tf.constant(0), part)
    elif epochs > 1:
        part = base.repeat(epochs, epoch_body, part)
    return pass_.end(pass_.changed(carry, part))


def _num_padded(examples) -> int:
    return next(iter(examples.values())).shape[1]


def _orders(keys: tf.Tensor, n: tf.Tensor, padded: int) -> tf.Tensor:
    """Returns each client's order of its n real rows, int32 [clients, padded].

    The same permutations as `tensor_random.permutation`: ranks among the real rows.
    """
    draws = tensor_random.bits_of_keys(keys, padded)
    # Padding draws the largest number and stands last, so it is never counted before a row.
    draws = tf.where(tf.range(padded)[None, :] < n[:, None], draws, tf.uint32.max)
    if padded <= _MAX_COUNTED:
        return _ranks(draws)
    return tf.argsort(tf.argsort(draws, axis=1, stable=True), axis=1)


def _ranks(draws: tf.Tensor) -> tf.Tensor:
    """Returns each entry's rank in its row, ties to the first: uint32 [rows, n] as int32.

    Every entry is compared with those at distance 1, 2, ... around its row. Behind the row stands
    the same row less one: an entry met there comes earlier, so that it counts on a tie, too.
    """
    rows, n = draws.shape
    steps = -(-(n - 1) // _DISTANCES_PER_STEP)
    # As many places as the steps pass_ around, the further ones behind all others.
    width = steps * _DISTANCES_PER_STEP + 1
    # Signed numbers in the same order, the smallest raised by one so that it has one below it.
    numbers = tf.maximum(tf.bitcast(draws ^ (1 << 31), tf.int32), tf.int32.min + 1)
    numbers = tf.pad(numbers, [[0, 0], [0, width - n]], constant_values=tf.int32.max)
    around = tf.concat([numbers, numbers - 1], axis=1)

    def body(i, ranks):
        for j in range(1, _DISTANCES_PER_STEP + 1):
            other = tf.slice(around, [0, i * _DISTANCES_PER_STEP + j], [rows, width])
            ranks += tf.cast(other < numbers, tf.int32)
        return ranks

    return base.repeat(steps, body, tf.zeros([rows, width], tf.int32))[:, :n]
