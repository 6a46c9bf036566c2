"""Random streams: named, independent of order, equal in every kind of execution."""

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.core import random_streams, tensor_random
from tests import eager


def test_unknown_stream():
    with pytest.raises(ValueError, match="smapling"):
        random_streams.generator(0, "client_smapling", 0)


def test_no_two_indices_draw_the_same():
    """NumPy pads seeds with zeros, so a stream without an index would be that of index 0."""
    indices = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 1, 0), (2**32 - 1,)]
    assert len({tuple(random_streams.key(3, "held_out", *index)) for index in indices}) == len(
        indices
    )
    with pytest.raises(TypeError):
        random_streams.key(3, "held_out")
    for wrong in (2**32, -1):  # 2**32 would be (0, 1).
        with pytest.raises(ValueError, match="2\\*\\*32 - 1"):
            random_streams.key(3, "held_out", wrong)


def test_global_generators_are_not_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    random_streams.generator(0, "client_sampling", 0).random(10)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_same_draws_eager_and_vectorized_and_compiled():
    def draws(key):
        folded = tensor_random.fold(key, tensor_random.EPOCH, 3)
        dropped = tensor_random.dropout(tf.ones([6, 5]), 0.3, folded)
        return folded, tensor_random.permutation(folded, 9), dropped

    keys = tf.constant([[1, 2], [3, 4], [-5, 2**31 - 1]], tf.int32)
    many = tf.function(lambda k: tf.vectorized_map(draws, k), jit_compile=True)(keys)
    for i, key in enumerate(keys):
        for ours, theirs in zip(draws(key), many, strict=True):
            np.testing.assert_array_equal(ours, theirs[i])


@pytest.mark.parametrize("count", [1, 4, 9])
def test_bits_of_several_keys(count):
    keys = tf.constant([[1, 2], [-5, 2**31 - 1], [0, -(2**31)]], tf.int32)
    each = [tensor_random.bits(key, [count]) for key in keys]
    for compiled in (False, True):
        drawn = tf.function(tensor_random.bits_of_keys, jit_compile=compiled)(keys, count)
        np.testing.assert_array_equal(drawn, each)


@pytest.mark.parametrize("number", [0, 7, -1, 2**31 - 1])
def test_a_fold_by_hand(number):
    for key in ([1, 2], [-5, 2**31 - 1]):
        arguments = (tf.constant(key), tensor_random.STEP, number)
        np.testing.assert_array_equal(tensor_random.fold(*arguments), eager.fold(*arguments))


def test_folds_do_not_collide():
    keys = tf.random.uniform([40, 2], -(2**31), 2**31 - 1, tf.int32, seed=1)
    folded = {
        tuple(tensor_random.fold(key, purpose, number).numpy())
        for key in keys
        for purpose in (tensor_random.PASS, tensor_random.STEP)
        for number in range(5)
    }
    assert len(folded) == 400
    bits = np.unpackbits(np.array(list(folded), np.int32).view(np.uint8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.1


def test_shorter_draws_are_prefixes():
    """Padding a batch must not change the dropout of its real rows; a permutation is one."""
    order = tensor_random.permutation(tf.constant([1, 2]), 50).numpy()
    assert sorted(order) == list(range(50)) != list(order)
    key = tf.constant([7, 8])
    np.testing.assert_array_equal(
        tensor_random.bits(key, [3, 5]), tensor_random.bits(key, [8, 5])[:3]
    )


def test_dropout_rate_and_scale():
    x = tensor_random.dropout(tf.ones([1000, 100]), 0.25, tf.constant([1, 2])).numpy()
    assert set(np.unique(x)) == {0.0, np.float32(1 / 0.75)}
    assert abs((x == 0).mean() - 0.25) < 0.01
    same = tensor_random.dropout(tf.ones([2, 2]), 0.0, tf.constant([1, 2]))
    np.testing.assert_array_equal(same, np.ones([2, 2]))
