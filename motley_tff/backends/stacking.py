"""Stacks of clients: examples padded and put on a leading axis, in groups of similar size."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motley_tff.core import random_streams
from motley_tff.core.client_work import ClientWork
from motley_tff.core.clients import Clients, num_rows

# Padding may be this share of the numbers that a compiled call goes through,
MAX_PADDING = 0.3
# or this many: a group takes a second to compile. With School's 11 million of padding in an
# evaluation, one group ended a whole run of 500 rounds and 51 evaluations sooner than two. Three
# times that many is a guess at where a second group begins to pay.
MAX_PADDING_NUMBERS = 32_000_000


class Stack(NamedTuple):
    """A group of clients as arrays, once or under several seeds.

    Seeds split the same clients' data differently: with S of them, an array's rows are those of
    the first seed's clients, then the second's.

    Attributes:
      index: int32 [clients], positions in the source's list.
      client_keys: int32 [clients, 2].
      sizes: `{part: int32 [S * clients]}`, the real numbers of examples.
      parts: `{part: {field: [S * clients, max size, ...]}}`, padded with zeros.
    """

    index: Any
    client_keys: Any
    sizes: dict[str, Any]
    parts: dict[str, dict[str, Any]]


def build(
    clients: Clients, ids: Sequence[str], parts: Sequence[str], room_for: Sequence[str] = ()
) -> Stack:
    """Returns the stack of some clients, padded as if those of `room_for` were among them."""
    fetched = [clients.fetch(client_id) for client_id in ids]
    return Stack(
        index=np.array([clients.index[client_id] for client_id in ids], np.int32),
        client_keys=np.stack([random_streams.client_key(client_id) for client_id in ids]),
        sizes={part: np.array([num_rows(f[part]) for f in fetched], np.int32) for part in parts},
        parts={
            part: {
                field: _pad([np.asarray(f[part][field]) for f in fetched], least)
                for field in clients.spec[part]
            }
            for part in parts
            for least in [max((num_rows(clients.fetch(i)[part]) for i in room_for), default=1)]
        },
    )


def take(stack: Stack, positions: np.ndarray) -> Stack:
    """Returns the stack of some of a stack's clients, padded no more than they need."""
    sizes = {part: n[positions] for part, n in stack.sizes.items()}
    return Stack(
        stack.index[positions],
        stack.client_keys[positions],
        sizes,
        {
            part: {f: a[positions, : max(1, sizes[part].max())] for f, a in examples.items()}
            for part, examples in stack.parts.items()
        },
    )


def join(stacks: Sequence[Stack]) -> Stack:
    """Returns the stack of the same clients under several seeds."""
    if len(stacks) == 1:
        return stacks[0]
    sizes, parts = [s.sizes for s in stacks], [s.parts for s in stacks]
    return Stack(
        stacks[0].index,
        stacks[0].client_keys,
        {part: np.concatenate([n[part] for n in sizes]) for part in sizes[0]},
        {
            part: {f: _pad([row for p in parts for row in p[part][f]]) for f in examples}
            for part, examples in parts[0].items()
        },
    )


def _pad(arrays: Sequence[np.ndarray], least: int = 1) -> np.ndarray:
    # At least one row, so that a part that is empty everywhere can still be indexed.
    longest = max(1, least, max(len(a) for a in arrays))
    padded = np.zeros((len(arrays), longest, *arrays[0].shape[1:]), arrays[0].dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded


def numbers(stack: Stack, work: ClientWork) -> np.ndarray:
    """Returns how many numbers each client's work goes through in whole batches: int [clients]."""
    total = np.zeros(len(next(iter(stack.sizes.values()))), int)
    for i, pass_ in enumerate(work.all_passes):
        sizes, examples = stack.sizes[pass_.part], stack.parts[pass_.part].values()
        size = np.minimum(pass_.batch_size, np.maximum(sizes, 1))
        rounding = 0 if pass_.drop_remainder else size - 1
        times = 1 if i < len(work.passes) else work.num_loops
        per_batch = size * sum(int(np.prod(field.shape[2:])) for field in examples)
        batches = (sizes + rounding) // size * pass_.num_epochs
        if pass_.num_steps is not None:
            batches = np.where(batches > 0, pass_.num_steps, 0)
        total += batches * times * per_batch
    return total


def groups(numbers: np.ndarray) -> list[np.ndarray]:
    """Splits clients into as few groups of similar size as keep padding within the bounds.

    Each group is compiled on its own, so few groups matter as much as little padding. Each is an
    array of client positions in ascending order.
    """
    lengths, counts = np.unique(numbers, return_counts=True)
    for num_groups in range(1, len(lengths) + 1):
        ends, cost = _cheapest_cuts(lengths, counts, num_groups)
        if cost - numbers.sum() <= max(MAX_PADDING * cost, MAX_PADDING_NUMBERS):
            break
    bounds = lengths[ends]
    group_of_client = np.searchsorted(bounds, numbers)
    return [np.flatnonzero(group_of_client == g) for g in reversed(range(len(bounds)))]


def _cheapest_cuts(lengths: np.ndarray, counts: np.ndarray, num_groups: int):
    """Returns (index of each group's last length, total cost) of the cheapest groups.

    Lengths ascend; in a group each client costs the longest.
    """
    total = np.concatenate([[0], np.cumsum(counts)])
    # best[j]: least cost of the first j lengths in the groups so far.
    best = np.full(len(lengths) + 1, np.inf)
    best[0] = 0
    cuts = []
    for _ in range(num_groups):
        # [i, j]: the last group holds lengths i..j-1.
        costs = best[:, None] + (total[None, 1:] - total[:, None]) * lengths[None, :]
        costs[np.arange(len(lengths) + 1)[:, None] > np.arange(len(lengths))[None, :]] = np.inf
        cuts.append(costs.argmin(axis=0))
        best = np.concatenate([[np.inf], costs.min(axis=0)])
    ends, j = [], len(lengths)
    for cut in reversed(cuts):
        ends.append(j - 1)
        j = cut[j - 1]
    return np.array(ends[::-1]), best[-1]
