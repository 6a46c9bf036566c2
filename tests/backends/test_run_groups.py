"""Grouping depends on the grid alone."""

import itertools

import pytest
from hypothesis import given, strategies as st

from motley_tff.backends import run_groups

GRID = [
    {"client_learning_rate": c, "server_learning_rate": s, "train_batch_size": b}
    for c, s, b in itertools.product((0.1, 0.01, 0.03), (1, 3.0), (32, 64))
]
TRACED = ("client_learning_rate", "server_learning_rate")


def test_by_hand():
    first, second = run_groups.group(GRID, [100, 1100], TRACED)
    assert first.fixed == {"train_batch_size": 32} and second.fixed == {"train_batch_size": 64}
    assert [tuple(s.values()) for s in first.settings] == [
        (0.01, 1.0), (0.01, 3.0), (0.03, 1.0), (0.03, 3.0), (0.1, 1.0), (0.1, 3.0),
    ]  # fmt: skip
    assert first.settings == second.settings
    assert first.seeds == (100, 1100)


@given(st.permutations(GRID), st.permutations([100, 1100, 2100]), st.integers(1, 7))
def test_order_and_repetition_do_not_matter(points, seeds, most):
    groups = run_groups.group([*points, points[0]], [*seeds, seeds[0]], TRACED, most)
    assert groups == run_groups.group(GRID, [100, 1100, 2100], TRACED, most)
    assert all(len(g.settings) <= most for g in groups)
    runs = [
        (*g.fixed.values(), *s.values(), x) for g in groups for s in g.settings for x in g.seeds
    ]
    assert len(runs) == len(set(runs)) == 3 * len(GRID)


@pytest.mark.parametrize("traced", [(), TRACED])
def test_nothing_to_group(traced):
    assert run_groups.group([], [1], traced) == []
    only = run_groups.group([{"client_learning_rate": 0.1}], [1], traced)
    assert len(only) == 1 and len(only[0].settings) == 1
