"""Functions of one row, mapped over rows."""

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.backends import stacked_loop, vectorized
from motley_tff.core import client_work
from tests import toy


def _step(row):
    """Ranks 0 to 2, with and without what all rows share."""
    scale, vector, matrix = row
    shared = tf.constant([[1.0, -2.0, 0.5], [3.0, 1.0, -1.0]])
    hidden = scale * matrix + vector
    return tf.where(hidden > shared, hidden, shared) * scale, tf.reduce_sum(vector - scale)


def test_rows_of_several_ranks_broadcast_as_each_by_itself():
    rng = np.random.default_rng(0)
    shapes = ([5], [5, 3], [5, 2, 3])
    rows = tuple(tf.constant(rng.normal(size=shape).astype(np.float32)) for shape in shapes)
    mapped = tf.function(lambda r: stacked_loop.map_rows(_step, r), autograph=False)(rows)
    for i in range(5):
        expected = _step(tuple(leaf[i] for leaf in rows))
        for stacked, single in zip(mapped, expected, strict=True):
            np.testing.assert_allclose(stacked[i], single, rtol=1e-6)


def test_a_length_that_is_not_known_is_taken_too():
    double = tf.function(
        lambda x: stacked_loop.map_rows(lambda row: row[0] * row[1][:, None], (x, x)),
        input_signature=[tf.TensorSpec([None, 3])],
        autograph=False,
    )
    x = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
    np.testing.assert_allclose(double(x), x[:, None, :] * x[:, :, None])


def test_where_shapes_are_known_an_operation_costs_few():
    """TensorFlow's own way takes about twenty for each operand that needs more ranks."""
    with tf.Graph().as_default() as graph:
        rows = tuple(tf.zeros(shape) for shape in ([5], [5, 3], [5, 2, 3]))
        stacked_loop.map_rows(_step, rows)
    assert len(graph.get_operations()) < 60


@pytest.mark.parametrize("n", [1, 2, 8, 9, 10, 175])
def test_counted_ranks_are_those_of_a_stable_sort(n):
    draws = np.random.default_rng(0).integers(2**32, size=[5, n], dtype=np.uint32)
    draws[1] = draws[1] % 7 + 5  # Many ties.
    draws[2], draws[3], draws[4, ::2] = 0, 2**32 - 1, 2**32 - 1
    ranks = tf.function(stacked_loop._ranks, jit_compile=True)(tf.constant(draws))
    order = np.argsort(draws, axis=1, kind="stable")
    np.testing.assert_array_equal(ranks, np.argsort(order, axis=1))


def test_examples_too_many_to_count_ranks_come_in_the_sequential_backends_order(monkeypatch):
    monkeypatch.setattr(stacked_loop, "_MAX_COUNTED", 0)
    task = toy.scalar_task({c: range(1, 2 + n) for c, n in zip("abc", (5, 0, 3), strict=True)},
                           setting="cross_silo")  # fmt: skip

    def add_a_digit(digits, batch):
        return 10.0 * digits + batch.x[0]

    walk = client_work.Pass("train", add_a_digit, batch_size=1, shuffle=True)
    work = client_work.ClientWork(
        lambda *_: tf.constant(0.0), (walk,),
        lambda digits: client_work.ClientOutput((), tf.constant(1.0), (), {"digits": digits}),
    )  # fmt: skip
    weights = task.model.initial_weights(0)
    expected = toy.evaluate(task, work, weights)
    scores = toy.evaluate(task, work, weights, backend=vectorized.VectorizedBackend())
    assert scores == expected
    assert sorted(str(int(expected["a"]["digits"]))) == list("123456")
    assert expected["a"]["digits"] != 123456 and expected["b"]["digits"] == 1
