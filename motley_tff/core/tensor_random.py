"""Random numbers inside graphs: philox integers, equal in eager, TFF, vectorized and XLA code.

Floats of `stateless_uniform` differ between XLA and other kernels, 32-bit integers do not. So
keys, permutations and dropout masks are all made from integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from motley_tff.core.lazy import tf

# Tells folds of the same number for different purposes apart.
CLIENT, PASS, EPOCH, SHUFFLE, STEP, LAYER, FAULT = 1, 2, 3, 4, 5, 6, 7


def fold(key: tf.Tensor, purpose: int, number) -> tf.Tensor:
    """Returns a new key from a key, both int32 [..., 2], a purpose of this module and a number.

    Plain integer arithmetic, so that it costs next to nothing under `tf.vectorized_map`: two
    passes of a 32-bit avalanche hash over the key's two words.
    """
    # A program has a dozen folds, so that each operation that is spared is one in a hundred.
    constants = tf.unstack(tf.constant([16, 0x7FEB352D, 15, 0x846CA68B], tf.uint32))
    number = tf.bitcast(tf.cast(number, tf.int32), tf.uint32)
    salt = number + tf.constant(purpose * 0x9E3779B9 % 2**32, tf.uint32)
    salt = _avalanche(salt, constants)
    first, second = tf.unstack(tf.bitcast(key, tf.uint32), axis=-1)
    first = _avalanche(first ^ salt, constants)
    second = _avalanche(second + first, constants)
    first = _avalanche(first ^ second, constants)
    return tf.bitcast(tf.stack([first, second], axis=-1), tf.int32)


def _avalanche(x: tf.Tensor, constants: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns a bijection of uint32 in which every input bit flips each output bit half the time.

    C. Wellons' "lowbias32" (https://nullprogram.com/blog/2018/07/31/).
    """
    first_shift, first_factor, second_shift, second_factor = constants
    x = (x ^ tf.bitwise.right_shift(x, first_shift)) * first_factor
    x = (x ^ tf.bitwise.right_shift(x, second_shift)) * second_factor
    return x ^ tf.bitwise.right_shift(x, first_shift)


def client_round_key(round_key: tf.Tensor, client_key: tf.Tensor) -> tf.Tensor:
    """Returns clients' keys int32 [..., 2] in one round of key [2]."""
    return fold(tf.bitwise.bitwise_xor(round_key, client_key), CLIENT, 0)


def bits(key: tf.Tensor, shape) -> tf.Tensor:
    """Returns uint32 numbers; those of a shorter leading axis are a prefix of a longer one's."""
    return tf.random.stateless_uniform(
        shape, key, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )


def bits_of_keys(keys: tf.Tensor, count: int) -> tf.Tensor:
    """Returns `bits(key, [count])` of keys int32 [n, 2]: uint32 [n, count], without a loop over n.

    TensorFlow takes one key at a time. This is its generator, Philox4x32-10 (Salmon et al. 2011,
    "Parallel random numbers: as easy as 1, 2, 3"), and how it makes key and counter of a seed.
    """
    columns = tf.transpose(keys)[..., None]
    # Seeds are 64 bits wide: a negative one is extended by its sign.
    words = (_words(columns), _words(tf.bitwise.right_shift(columns, 31)))
    even, odd = _philox(*words, tf.constant([[[0x3EC8F720]], [[0x02461E29]]], tf.uint64))
    key = tf.stack([even[0], odd[0]])
    # A counter's words are the block's number, 0, and those two of its seed.
    is_last = tf.constant([[[0]], [[1]]], tf.uint64)
    blocks = tf.cast(tf.range(-(-count // 4))[None, None], tf.uint64)
    even, odd = is_last * even + (1 - is_last) * blocks, is_last * odd + 0 * blocks
    drawn = tf.transpose(tf.stack(_philox(even, odd, key), axis=-1), [1, 2, 0, 3])
    return tf.cast(tf.reshape(drawn, [tf.shape(keys)[0], -1])[:, :count], tf.uint32)


def _words(numbers: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.bitcast(numbers, tf.uint32), tf.uint64)


def _philox(even: tf.Tensor, odd: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns words 0 and 2, and 1 and 3, of ten rounds; all are 32 bits in uint64 [2, n, m]."""
    factors = tf.constant([[[0xD2511F53]], [[0xCD9E8D57]]], tf.uint64)
    additions = tf.constant([[[0x9E3779B9]], [[0xBB67AE85]]], tf.uint64)
    low, width = tf.constant(2**32 - 1, tf.uint64), tf.constant(32, tf.uint64)

    def next_round(i, even, odd, key):
        products = tf.reverse(factors * even, [0])
        even = tf.bitwise.right_shift(products, width) ^ odd ^ key
        return i + 1, even, products & low, (key + additions) & low

    _, even, odd, _ = tf.while_loop(lambda i, *_: i < 10, next_round, (0, even, odd, key))
    return even, odd


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
