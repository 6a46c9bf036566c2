"""Random numbers inside graphs: philox integers, equal in eager, TFF, vectorized and XLA code.

Floats of `stateless_uniform` differ between XLA and other kernels, 32-bit integers do not. So
keys, permutations and dropout masks are all made from integers.
"""

from __future__ import annotations

import math

from motley_tff.core.lazy import tf

# Tells folds of the same number for different purposes apart.
CLIENT, PASS, EPOCH, SHUFFLE, STEP, LAYER, FAULT = 1, 2, 3, 4, 5, 6, 7


def fold(key: tf.Tensor, purpose: int, number) -> tf.Tensor:
    """Returns a new key from a key, both int32 [..., 2], a purpose of this module and a number.

    Plain integer arithmetic, so that it costs next to nothing under `tf.vectorized_map`: two
    passes of a 32-bit avalanche hash over the key's two words.
    """
    number = tf.bitcast(tf.cast(number, tf.int32), tf.uint32)
    words = tf.bitcast(key, tf.uint32)
    salt = _avalanche(number + tf.constant(purpose * 0x9E3779B9 % 2**32, tf.uint32))
    first = _avalanche(tf.bitwise.bitwise_xor(words[..., 0], salt))
    second = _avalanche(words[..., 1] + first)
    first = _avalanche(tf.bitwise.bitwise_xor(first, second))
    return tf.bitcast(tf.stack([first, second], axis=-1), tf.int32)


def _avalanche(x: tf.Tensor) -> tf.Tensor:
    """Returns a bijection of uint32 in which every input bit flips each output bit half the time.

    C. Wellons' "lowbias32" (https://nullprogram.com/blog/2018/07/31/).
    """
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = _xor_shift(x, shift) * tf.constant(factor, tf.uint32)
    return _xor_shift(x, 16)


def _xor_shift(x: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint32)))


def client_round_key(round_key: tf.Tensor, client_key: tf.Tensor) -> tf.Tensor:
    """Returns clients' keys int32 [..., 2] in one round of key [2]."""
    return fold(tf.bitwise.bitwise_xor(round_key, client_key), CLIENT, 0)


def bits(key: tf.Tensor, shape) -> tf.Tensor:
    """Returns uint32 numbers; those of a shorter leading axis are a prefix of a longer one's."""
    return tf.random.stateless_uniform(
        shape, key, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )


def uniform(key: tf.Tensor, shape) -> tf.Tensor:
    """Returns float32 numbers in (0, 1), made of 23 bits each; prefixes as of `bits`."""
    return _in_unit_interval(bits(key, shape))


def normal(key: tf.Tensor, shape) -> tf.Tensor:
    """Returns draws of the standard normal distribution, float32 (Box and Muller 1958); prefixes as
    of `bits`.
    """
    words = _in_unit_interval(bits(key, tf.concat([shape, [2]], 0)))
    return tf.sqrt(-2.0 * tf.math.log(words[..., 0])) * tf.cos(2.0 * math.pi * words[..., 1])


def _in_unit_interval(words: tf.Tensor) -> tf.Tensor:
    high = tf.cast(tf.bitwise.right_shift(words, tf.constant(9, tf.uint32)), tf.float32)
    return (high + 0.5) / 2**23


def permutation(key: tf.Tensor, size) -> tf.Tensor:
    """Returns a permutation of `range(size)` as int32 [size]: the ranks of `size` random numbers.

    Ranks (ties to the first), not the sorting order, because a vectorized backend can count them
    faster than it can sort.
    """
    return tf.math.invert_permutation(tf.argsort(bits(key, [size]), stable=True))


def dropout(x: tf.Tensor, rate: float, key: tf.Tensor) -> tf.Tensor:
    """Zeroes each entry of `x` with probability `rate` and scales the rest by 1 / (1 - rate).

    Stateless, and the same mask on every backend: an entry falls where its 32 random bits are
    below rate * 2**32.
    """
    if rate == 0.0:
        return x
    keep = bits(key, tf.shape(x)) >= tf.constant(int(rate * 2**32), tf.uint32)
    return tf.where(keep, x / (1.0 - rate), tf.zeros_like(x))
