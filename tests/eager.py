"""TensorFlow's functions without tracing, which takes longer than a few small clients do."""

import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf

from motley_tff.core import cores, tensor_random

_fold = tensor_random.fold


@contextlib.contextmanager
def running():
    """Runs functions eagerly, one client at a time, and hashes keys by integers.

    Threads would wait for each other, as it is Python that runs; hashes were half of the work.
    """
    with (
        mock.patch.object(tensor_random, "fold", fold),
        mock.patch.object(cores, "num_available", lambda: 1),
    ):
        tf.config.run_functions_eagerly(True)
        try:
            yield
        finally:
            tf.config.run_functions_eagerly(False)


def fold(key, purpose, number):
    """Returns what `tensor_random.fold` does, by Python's integers where there is one key."""
    if not tf.executing_eagerly() or key.shape != [2]:
        return _fold(key, purpose, number)
    one, other = np.asarray(key).view(np.uint32).tolist()
    salt = _avalanche(int(number) + purpose * 0x9E3779B9)
    first = _avalanche(one ^ salt)
    second = _avalanche(other + first)
    words = np.array([_avalanche(first ^ second), second], np.uint32)
    return tf.constant(words.view(np.int32))


def _avalanche(x):
    x %= 2**32
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * factor % 2**32
    return x ^ (x >> 16)
