"""Stacks: padding, groups."""

import itertools

import numpy as np
from hypothesis import given, strategies as st

from motley_tff.backends import stacking
from motley_tff.core import client_work
from tests import toy


def test_padding_and_sizes():
    task = toy.scalar_task({"a": [1.0], "b": [2.0, 3.0, 4.0]})
    stack = stacking.build(task.train, ("b", "a"), ("train",))
    np.testing.assert_array_equal(stack.index, [1, 0])
    np.testing.assert_array_equal(stack.sizes["train"], [3, 1])
    np.testing.assert_array_equal(stack.parts["train"]["x"], [[2, 3, 4], [1, 0, 0]])
    small = stacking.take(stack, np.array([1]))
    np.testing.assert_array_equal(small.parts["train"]["x"], [[1]])


def test_numbers_by_hand():
    """Batches of 4, or of the client's size, of examples of 3 numbers; an empty client has none."""

    def walk(**kwargs):
        return client_work.Pass("train", lambda c, b: c, 4, **kwargs)

    sizes = np.array([0, 3, 4, 9])
    examples = {"x": np.zeros([4, 9, 2]), "y": np.zeros([4, 9])}
    stack = stacking.Stack(np.arange(4), np.zeros([4, 2]), {"train": sizes}, {"train": examples})
    work = client_work.ClientWork(
        lambda *a: a, (walk(), walk(num_epochs=2, drop_remainder=True)), lambda c: c,
        loop=(walk(),), num_loops=3,
    )  # fmt: skip
    batches = np.array([0, 1 + 2 + 3, 1 + 2 + 3, 3 + 4 + 9])
    np.testing.assert_array_equal(stacking.numbers(stack, work), batches * [1, 3, 4, 4] * 3)


_MILLION = 1_000_000


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.integers(1, 50)),
        min_size=1,
        max_size=9,
        unique_by=lambda pair: pair[0],
    ),
    st.sampled_from([1000, 100_000, _MILLION]),
    st.randoms(use_true_random=False),
)
def test_groups_hold_everyone_once_and_little_padding(counted, unit, random):
    numbers = np.array([unit * n for n, count in counted for _ in range(count)])
    random.shuffle(numbers)
    groups = stacking.groups(numbers)
    np.testing.assert_array_equal(np.sort(np.concatenate(groups)), np.arange(len(numbers)))
    assert all(np.all(np.diff(group) > 0) for group in groups), "in their order"

    lengths, counts = np.unique(numbers, return_counts=True)

    def cost(cuts):
        bounds = [0, *cuts, len(lengths)]
        return sum(counts[a:b].sum() * lengths[b - 1] for a, b in itertools.pairwise(bounds))

    def is_much(cost):
        bound = max(stacking.MAX_PADDING * cost, stacking.MAX_PADDING_NUMBERS)
        return cost - numbers.sum() > bound

    # Of all ways to cut, none into as many groups costs less, and none into fewer would do.
    costs = [
        min(map(cost, itertools.combinations(range(1, len(lengths)), num)))
        for num in range(len(groups))
    ]
    assert sum(len(g) * numbers[g].max() for g in groups) == costs[-1]
    assert [is_much(cost) for cost in costs] == [True] * (len(groups) - 1) + [False]


def test_fewest_groups_by_hand():
    # One group: 24 of 60 are real. {10, 10} and {1, 1, 1, 1}: all of them.
    numbers = 6 * _MILLION * np.array([1, 10, 1, 1, 10, 1]) // 4

    def of(numbers):
        return [list(group) for group in stacking.groups(np.array(numbers))]

    assert of(numbers) == [[1, 4], [0, 2, 3, 5]]
    # The same of fewer numbers: 30 million of padding are not worth a group.
    assert of(numbers // 2) == [[0, 1, 2, 3, 4, 5]]
    assert of([3, 3, 2]) == of([0, 0, 0]) == [[0, 1, 2]]
