"""Random numbers inside graphs: philox integers, equal in eager, TFF, vectorized and XLA code.

Floats of `stateless_uniform` differ between XLA and other kernels, 32-bit integers do not. So
keys, permutations and dropout masks are all made from integers.
"""

import tensorflow as tf

# Tells folds of the same number for different purposes apart.
CLIENT, PASS, EPOCH, SHUFFLE, STEP, LAYER = 1, 2, 3, 4, 5, 6


def fold(key: tf.Tensor, purpose: int, number) -> tf.Tensor:
    """Returns a new key [2] from `key` [2], a purpose of this module and an int32 scalar."""
    number = tf.cast(number, tf.int32)
    seed = tf.bitwise.bitwise_xor(key, tf.stack([number, purpose]))
    return tf.random.stateless_uniform(
        [2], seed, minval=None, maxval=None, dtype=tf.int32, alg="philox"
    )


def client_round_key(round_key: tf.Tensor, client_key: tf.Tensor) -> tf.Tensor:
    """Returns the key [2] of one client in one round."""
    return fold(tf.bitwise.bitwise_xor(round_key, client_key), CLIENT, 0)


def bits(key: tf.Tensor, shape) -> tf.Tensor:
    """Returns uint32 numbers; those of a shorter leading axis are a prefix of a longer one's."""
    return tf.random.stateless_uniform(
        shape, key, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )


def permutation(key: tf.Tensor, size) -> tf.Tensor:
    """Returns a permutation of `range(size)` as int32 [size]."""
    return tf.argsort(bits(key, [size]), stable=True)


def dropout(x: tf.Tensor, rate: float, key: tf.Tensor) -> tf.Tensor:
    """Zeroes each entry of `x` with probability `rate` and scales the rest by 1 / (1 - rate).

    Stateless, and the same mask on every backend: an entry falls where its 32 random bits are
    below rate * 2**32.
    """
    if rate == 0.0:
        return x
    keep = bits(key, tf.shape(x)) >= tf.constant(int(rate * 2**32), tf.uint32)
    return tf.where(keep, x / (1.0 - rate), tf.zeros_like(x))
