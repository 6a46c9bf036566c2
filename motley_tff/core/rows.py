"""Client work that is written once for one client and for a stack of them, on a leading axis.

A stack's *rows* are clients (under several seeds: under each of them). In it, what is a
number of one client, such as a rate or a loss, is an array [rows], weights are [rows, ...], and a
batch's labels and mask [rows, batch, ...]. Rows do not meet each other, so the gradient of the
*sum* of their losses with respect to stacked weights is every client's own gradient. Client work
whose card says `takes_rows` is made of operations on single numbers and of the functions below,
which do the same with and without rows. A backend says while it traces that it stacks (`stacked`).
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from motley_tff.core.lazy import tf


class Layout(Protocol):
    """A stack's rows.

    Attributes:
      num_rows: How many there are.
    """

    num_rows: int

    def map(self, function: Callable[..., Any], of_rows: Any) -> Any:
        """Returns `function(*of_rows)` of every row; `of_rows` have leaves [rows, ...]."""


_layout: contextvars.ContextVar[Layout | None] = contextvars.ContextVar("layout", default=None)


@contextlib.contextmanager
def stacked(layout: Layout | None) -> Iterator[None]:
    """What is traced inside is work of a stack, or with None of one client."""
    token = _layout.set(layout)
    try:
        yield
    finally:
        _layout.reset(token)


def leading() -> list[int]:
    """Returns the leading axes: `[rows]` of a stack, `[]` of one client."""
    layout = _layout.get()
    return [] if layout is None else [layout.num_rows]


def taken(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function that takes rows, as `each` needs not map it over them."""
    function.takes_rows = True  # type: ignore[attr-defined]
    return function


def each(function: Callable[..., Any], *of_rows: Any) -> Any:
    """Returns `function(*of_rows)` of a client, or of every row."""
    layout = _layout.get()
    if layout is None or getattr(function, "takes_rows", False):
        return function(*of_rows)
    with stacked(None):
        return layout.map(function, of_rows)


def by_example(function: Callable[..., Any], *arrays: tf.Tensor) -> Any:
    """Returns a nest of arrays [..., batch, ...] that a function makes of arrays [batch, ...], an
    example at a time; a stack's examples are one large batch to it.
    """
    if not leading():
        return function(*arrays)
    results = function(*(tf.reshape(a, [-1, *a.shape[2:]]) for a in arrays))
    shape = arrays[0].shape[:2]
    return tf.nest.map_structure(lambda r: tf.reshape(r, [*shape, *r.shape[1:]]), results)


def total(array: tf.Tensor) -> tf.Tensor:
    """Returns the sum of a client's numbers: [..., any shape] -> [...]."""
    return tf.reduce_sum(array, axis=list(range(len(leading()), len(array.shape))))


def full(shape: Any, value: Any) -> tf.Tensor:
    """Returns a client's array of one value, [..., *shape]; `shape` may hold tensors."""
    return tf.fill([*leading(), *shape], value)


def aligned(number: Any, array: tf.Tensor) -> Any:
    """Returns a client's number, [] or [...], with trailing axes of size 1, so that it meets all
    numbers of an array [..., any shape].
    """
    rank = len(getattr(number, "shape", ()))
    if rank in (0, len(array.shape)):
        return number
    # A reshape would need to know how long a batch is.
    return number[(..., *[None] * (len(array.shape) - rank))]


def scaled(number: Any, arrays: Any) -> Any:
    """Returns a client's arrays times a number of its."""
    return tf.nest.map_structure(lambda array: aligned(number, array) * array, arrays)


def outer(vector: tf.Tensor, array: tf.Tensor) -> tf.Tensor:
    """Returns a client's vector [..., k] times an array [..., any shape]: [..., k, any shape]."""
    array = tf.expand_dims(array, len(leading()))
    return aligned(vector, array) * array


def select(condition: tf.Tensor, a: Any, b: Any) -> Any:
    """Returns nest `a` where a client's condition holds, else `b`."""
    # A condition is aligned once with all leaves of a rank. It is asked even where both are the
    # same: what a loop hands on as it is, from one loop to the next, XLA in TensorFlow 2.14 loses.
    conditions = {}

    def leaf(x, y):
        rank = tf.convert_to_tensor(x).shape.rank
        if rank not in conditions:
            conditions[rank] = aligned(condition, x)
        return tf.where(conditions[rank], x, y)

    return tf.nest.map_structure(leaf, a, b)
