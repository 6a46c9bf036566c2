"""Stacks: padding, groups."""

import numpy as np
import pytest

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


def test_batches_by_hand():
    def walk(**kwargs):
        return client_work.Pass("train", lambda c, b: c, 4, **kwargs)

    sizes = {"train": np.array([0, 3, 4, 9])}
    work = client_work.ClientWork(
        lambda *a: a, (walk(), walk(num_epochs=2, drop_remainder=True)), lambda c: c,
        loop=(walk(),), num_loops=3,
    )  # fmt: skip
    np.testing.assert_array_equal(
        stacking.batches(sizes, work), [[0, 0, 0], [1, 2, 3], [1, 2, 3], [3, 4, 9]]
    )


@pytest.mark.parametrize("seed", range(5))
def test_groups_hold_everyone_once_and_little_padding(seed):
    counts = np.random.default_rng(seed).lognormal(2, 1, 200).astype(int)[:, None] + 1
    found = stacking.groups(counts)
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(200))
    stacked = sum(len(g) * counts[g].max() for g in found)
    assert counts.sum() >= 0.7 * stacked
    # No fewer groups would do: one group of all pads more than the bound.
    assert len(found) == 1 or counts.sum() < 0.7 * 200 * counts.max()


def test_fewest_groups_by_hand():
    # One group: 16 of 40 batches are real. {10, 10} and {1, 1, 1, 1}: all of them.
    counts = np.array([[1], [10], [1], [1], [10], [1]])
    found = [list(g) for g in stacking.groups(counts)]
    assert found == [[1, 4], [0, 2, 3, 5]]
    assert [list(g) for g in stacking.groups(np.array([[3], [3], [2]]))] == [[0, 1, 2]]
    assert [list(g) for g in stacking.groups(np.array([[0], [0]]))] == [[0, 1]]
