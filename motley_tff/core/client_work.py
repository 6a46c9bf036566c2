"""A client's work as pure functions over its batches, written once and run by every backend.

    carry = init(broadcast, client_state, client)
    carry = step(carry, batch)            for every batch of every pass
    output = finish(carry)

A *pass* goes over one part of the client's examples with its own batching; most algorithms have
one. Passes listed in `loop` are repeated `num_loops` times after `passes` (fine-tuning: train an
epoch, evaluate, again). Functions hold no state and use TensorFlow ops only; what they need they
carry. Backends differ in how they walk over batches and clients, never in what is computed.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from motley_tff.core import tensor_random
from motley_tff.core.lazy import tf


class Client(NamedTuple):
    """What a client's work knows about the client.

    Attributes:
      key: int32 [2], the client's own random key in this round.
      index: int32 scalar, the client's position in the task's list (a silo's row).
      num_examples: `{part: int32 scalar}`.
      capacity: `{part: size}`, at least `num_examples` and the same for all clients of a stack, as
        a number where graphs need one.
    """

    key: tf.Tensor
    index: tf.Tensor
    num_examples: dict[str, tf.Tensor]
    capacity: dict[str, Any]

    @property
    def weight(self) -> tf.Tensor:
        """The client's training examples as a float32 scalar: its update's weight in a mean."""
        return tf.cast(self.num_examples["train"], tf.float32)


class Batch(NamedTuple):
    """One batch.

    Attributes:
      x: Model inputs [batch, ...].
      y: Labels [batch, ...].
      mask: float32 [batch], 1.0 for real rows, 0.0 for padding.
      key: int32 [2], for the batch's own random choices (dropout). In a pass that draws nothing
        (see `draws`) all batches have the same one.
    """

    x: Any
    y: tf.Tensor
    mask: tf.Tensor
    key: tf.Tensor


class ClientOutput(NamedTuple):
    """What a client sends back.

    Attributes:
      update: What the server aggregates: initial minus final weights, so that it acts as a
        gradient (TFF's convention); `()` for evaluation.
      weight: float32 scalar, the update's weight in the mean.
      client_state: New state, `()` of a client without one.
    """

    update: Any
    weight: tf.Tensor
    client_state: Any
    metrics: Any


def unchanged(carry: Any) -> Any:
    """Returns the carry: the hook of a pass that needs none."""
    return carry


@dataclasses.dataclass(frozen=True)
class Pass:
    """One way over a part of the client's examples.

    Attributes:
      step: `(carry, batch) -> carry`; the carry keeps its structure, types and shapes.
      batch_size: At most this many examples a batch; a smaller client has one batch of its size.
      shuffle: Draw a new order every epoch.
      max_examples: An epoch takes the first so many of a new order, whether or not `shuffle` is
        set; all if None.
      num_steps: So many batches in place of `num_epochs`: as many epochs as they take, the last
        one cut. Not in a loop.
      drop_remainder: Leave out an epoch's short last batch (unless it is the only one).
      training: Whether `preprocess` may augment.
      draws_noise: Whether `preprocess` or the model draws though the pass does not train.
      draws_as: Number of the pass whose random choices these are, if not its own: of two passes
        with one number only one may draw anything but the order of `max_examples`, which is then
        the same.
      begin: Applied to the carry before the first batch; `end` after the last.
      changes: Where in the carry is what steps change, as names of fields, each of the one before;
        all if empty. Loops carry no more: the rest would take as long to trace and to compile.
    """

    part: str
    step: Callable[[Any, Batch], Any]
    batch_size: int
    num_epochs: int = 1
    num_steps: int | None = None
    shuffle: bool = False
    max_examples: int | None = None
    drop_remainder: bool = False
    training: bool = False
    draws_noise: bool = False
    draws_as: int | None = None
    begin: Callable[[Any], Any] = unchanged
    end: Callable[[Any], Any] = unchanged
    changes: tuple[str, ...] = ()

    def changing(self, carry: Any) -> Any:
        """Returns the part of the carry that steps change."""
        return functools.reduce(getattr, self.changes, carry)

    def stepped(self, carry: Any, part: Any, batch: Batch) -> Any:
        """Returns that part, which may be newer than the carry's, after a step on a batch."""
        before = self.changed(carry, part)
        after = self.step(before, batch)
        rest = (tf.nest.flatten(self.changed(whole, ())) for whole in (before, after))
        if not all(map(operator.is_, *rest)):
            raise ValueError(f"A step changes more of its carry than {'.'.join(self.changes)}.")
        return self.changing(after)

    def changed(self, carry: Any, part: Any) -> Any:
        """Returns the carry with another such part."""

        def put(whole: Any, path: tuple[str, ...]) -> Any:
            if not path:
                return part
            return whole._replace(**{path[0]: put(getattr(whole, path[0]), path[1:])})

        return put(carry, self.changes)

    def within(self, field: str) -> Pass:
        """Returns the pass over a larger carry, which has this pass's own carry in a field."""

        def inside(function: Any) -> Callable[..., Any]:
            def apply(carry: Any, *batch: Batch) -> Any:
                return carry._replace(**{field: function(getattr(carry, field), *batch)})

            return apply

        begin, step, end = (inside(f) for f in (self.begin, self.step, self.end))
        changes = field, *self.changes
        return dataclasses.replace(self, begin=begin, step=step, end=end, changes=changes)


class Frozen(NamedTuple):
    """What of a model the passes leave as it is, see `core.frozen`.

    Attributes:
      weights: `carry -> weights`, of whose first layers those that are not trained stay the same.
      is_trained: For each weight, whether a pass may train it.
      holds: `carry -> bool []`, whether that is so in the pass that begins; None if it always is.
    """

    weights: Callable[[Any], Any]
    is_trained: tuple[bool, ...]
    holds: Callable[[Any], tf.Tensor] | None = None


@dataclasses.dataclass(frozen=True)
class ClientWork:
    """The pure functions of one algorithm's client side.

    Attributes:
      init: `(broadcast, client_state, client: Client) -> carry`.
      finish: `carry -> ClientOutput`.
      loop: Passes that are repeated after `passes`, `num_loops` times.
      loop_period: Loops this far apart draw the same orders and dropout, so that candidates which
        differ in a hyperparameter only see the same batches; `num_loops` if 0.
      frozen: What all passes leave as it is, so that backends may compute it once; None if nothing.
      takes_rows: Whether the functions also take a stack of clients, see `rows`.
    """

    init: Callable[[Any, Any, Client], Any]
    passes: tuple[Pass, ...]
    finish: Callable[[Any], ClientOutput]
    loop: tuple[Pass, ...] = ()
    num_loops: int = 0
    loop_period: int = 0
    frozen: Frozen | None = None
    takes_rows: bool = False

    @property
    def all_passes(self) -> tuple[Pass, ...]:
        """The passes, then those of the loop."""
        return (*self.passes, *self.loop)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that are read, sorted."""
        return tuple(sorted({p.part for p in self.all_passes}))

    def map_passes(self, change: Callable[[Pass], Pass], **changes: Any) -> ClientWork:
        """Returns the work with `change` of each pass, in order, and other `changes`."""
        passes, loop = (tuple(map(change, part)) for part in (self.passes, self.loop))
        return dataclasses.replace(self, passes=passes, loop=loop, **changes)


def pass_number(pass_: Pass, position: int) -> int:
    """Returns what a pass's random choices depend on: by default its position among all passes."""
    return position if pass_.draws_as is None else pass_.draws_as


def walk_over(
    work: ClientWork,
    walk: Callable[[range, Any, Any], Any],
    repeat: Callable[[int, Callable[[Any, Any], Any], Any], Any],
    carry: Any,
) -> Any:
    """Returns the carry after all passes.

    Where the loop ends in `passes` (fine-tuning evaluates first, then after every epoch), they are
    traced once: the loop runs once more and its first time skips what comes before them.

    Args:
      walk: `(which, loop, carry) -> carry`, passes `which` of `all_passes` in the loop of
        number `loop` (int32 scalar).
      repeat: `(times, body, carry) -> carry`, folds `body(i, carry)` over `range(times)`.
    """
    passes, loop = range(len(work.passes)), range(len(work.passes), len(work.all_passes))
    period = work.loop_period or work.num_loops
    if not (work.num_loops and _ends_in_passes(work)):
        carry = walk(passes, tf.constant(0), carry)
        if work.num_loops:
            carry = repeat(work.num_loops, lambda i, c: walk(loop, i % period, c), carry)
        return carry

    leading = loop[: -len(passes)]

    def body(i, carry):
        def walk_leading():
            new = walk(leading, (i - 1) % period, carry)
            return tf.nest.map_structure(tf.convert_to_tensor, new)

        return walk(passes, tf.constant(0), tf.cond(i > 0, walk_leading, lambda: carry))

    return repeat(work.num_loops + 1, body, carry)


def _ends_in_passes(work: ClientWork) -> bool:
    """Whether a loop's last passes are `passes` again, which draw nothing."""
    again = work.loop[-len(work.passes) :] == work.passes
    return bool(work.passes) and again and not any(map(draws, work.passes))


def capped(work: ClientWork, part: str, max_examples: int | None) -> ClientWork:
    """Returns the work with at most `max_examples` of a part in an epoch, drawn anew for each.

    The client counts as one of no more examples, so that an update's weight is how many an epoch
    uses. None changes nothing.
    """
    if max_examples is None:
        return work

    def init(broadcast: Any, client_state: Any, client: Client) -> Any:
        sizes = dict(client.num_examples)
        if part in sizes:
            sizes[part] = tf.minimum(sizes[part], max_examples)
        return work.init(broadcast, client_state, client._replace(num_examples=sizes))

    def cap(pass_: Pass) -> Pass:
        return (
            dataclasses.replace(pass_, max_examples=max_examples) if pass_.part == part else pass_
        )

    return work.map_passes(cap, init=init)


def examples_per_epoch(num_examples: tf.Tensor, pass_: Pass) -> tf.Tensor:
    """Returns how many examples an epoch takes, in the shape of `num_examples`."""
    if pass_.max_examples is None:
        return num_examples
    return tf.minimum(num_examples, pass_.max_examples)


def draws(pass_: Pass) -> bool:
    """Returns whether a pass makes random choices: it trains, draws noise, shuffles, or takes some
    examples.
    """
    return pass_.training or pass_.draws_noise or draws_order(pass_)


def fold_key(pass_: Pass, key: tf.Tensor, purpose: int, number: Any) -> tf.Tensor:
    """Returns a new key as `tensor_random.fold` does, or the same in a pass that draws nothing."""
    return tensor_random.fold(key, purpose, number) if draws(pass_) else key


def draws_order(pass_: Pass) -> bool:
    """Returns whether every epoch has an order of its own."""
    return pass_.shuffle or pass_.max_examples is not None


def steps_per_epoch(num_examples: tf.Tensor, pass_: Pass) -> tf.Tensor:
    """Returns how many batches an epoch has, as int32 (shapes broadcast).

    A client with fewer examples than a batch has one batch of all of them; an empty part none.
    """
    num_examples = examples_per_epoch(num_examples, pass_)
    size = tf.minimum(pass_.batch_size, tf.maximum(num_examples, 1))
    rounding = 0 if pass_.drop_remainder else size - 1
    return (num_examples + rounding) // size


def steps_of_epoch(steps: tf.Tensor, epoch: Any, pass_: Pass) -> tf.Tensor:
    """Returns how many of an epoch's steps an epoch takes, in the shape of `steps`."""
    if pass_.num_steps is None:
        return steps
    return tf.clip_by_value(pass_.num_steps - epoch * steps, 0, steps)


def num_epochs(steps: tf.Tensor, pass_: Pass) -> Any:
    """Returns how many epochs a pass has, of so many steps each: a number, or a tensor in the shape
    of `steps`.
    """
    if pass_.num_steps is None:
        return pass_.num_epochs
    return tf.where(steps > 0, -(-pass_.num_steps // tf.maximum(steps, 1)), 0)


def num_steps(num_examples: tf.Tensor, pass_: Pass) -> tf.Tensor:
    """Returns how many steps a pass has, in the shape of `num_examples`."""
    steps = steps_per_epoch(num_examples, pass_)
    if pass_.num_steps is None:
        return pass_.num_epochs * steps
    return tf.where(steps > 0, pass_.num_steps, 0)
