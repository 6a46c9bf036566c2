"""How clients and examples are split: Motley's published rules as pure functions.

Cross-device: the clients are permuted by `RandomState(13)` and cut into valid, test and train; a
valid or test client's examples are halved into personalization and evaluation. Cross-silo: every
silo's examples are cut by a seed, 70/15/15 unless told otherwise, and features are scaled by the
silo's training part.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from sklearn import model_selection, preprocessing

from datasets.options import PUBLISHED_SHARES, SiloShares
from motley_tff.core import clients as clients_lib
from motley_tff.core.errors import UserError

SPLIT_SEED = 13
# Where the client count is not the published one: EMNIST's 400 and 500 of 3,400 clients, rounded.
VALID_PROPORTION, TEST_PROPORTION = 0.12, 0.15
_TOO_SMALL_TO_HALVE = "fewer than 2 examples: cannot be halved"
_EMPTY = "no examples"
# What TensorFlow pairs an op's seed with when no global seed is set; given to the kernel outright,
# so that the halves stay the same whatever a caller does to the global seed.
_DEFAULT_GRAPH_SEED = 87654321
# Smallest silo that leaves at least one example in each of its three parts.
_MIN_SILO_EXAMPLES = 3


class ClientSplit(NamedTuple):
    """Client ids of each split, and who is in none: `{reason: [ids]}`."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    left_out: dict[str, list[str]]


def split_clients(
    ids: Sequence[str], num_valid: int, num_test: int
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns (train, valid, test) ids: permuted with seed 13, first valid, then test.

    Args:
      ids: All clients in the source's order; the result depends on it.
      num_valid: How many validation clients.
      num_test: How many test clients.

    Raises:
      UserError: If no training client would be left.
    """
    if len(ids) <= num_valid + num_test:
        raise UserError(
            f"found {len(ids)} clients, expected more than {num_valid + num_test}: {num_valid} to "
            f"validate, {num_test} to test and at least one to train"
        )
    order = np.random.RandomState(SPLIT_SEED).permutation(len(ids))
    permuted = tuple(ids[i] for i in order)
    end = num_valid + num_test
    return permuted[end:], permuted[:num_valid], permuted[num_valid:end]


def proportional_counts(num_clients: int) -> tuple[int, int]:
    """Returns (valid, test) counts: 12% and 15% rounded down, at least one each."""
    # In whole percents: 0.15 * n in floats can fall just below a whole number.
    valid, test = (round(100 * p) * num_clients // 100 for p in (VALID_PROPORTION, TEST_PROPORTION))
    return max(1, valid), max(1, test)


def split_population(sizes: Mapping[str, int], num_valid: int, num_test: int) -> ClientSplit:
    """Splits clients and leaves out those that have nothing to train on or cannot be halved.

    Args:
      sizes: `{client id: number of examples}` in the source's order.
      num_valid: How many validation clients, before any is left out.
      num_test: How many test clients, before any is left out.

    Raises:
      UserError: If a split would have no client.
    """
    train, valid, test = split_clients(tuple(sizes), num_valid, num_test)
    empty = [i for i in sizes if sizes[i] == 0]
    small = [i for i in (*valid, *test) if sizes[i] == 1]
    reasons = {_EMPTY: empty, _TOO_SMALL_TO_HALVE: sorted(small)}
    gone = {*empty, *small}
    train, valid, test = (
        tuple(i for i in split if i not in gone) for split in (train, valid, test)
    )
    for name, split in (("train", train), ("valid", valid), ("test", test)):
        if not split:
            raise UserError(
                f"no {name} client is left of {len(sizes)} clients: every one of that split has "
                "fewer examples than needed; add clients or examples"
            )
    return ClientSplit(train, valid, test, {r: i for r, i in reasons.items() if i})


def shuffled_order(num_examples: tf.Tensor | int) -> tf.Tensor:
    """Returns the order of Motley's shuffle before halving, as int64 [num_examples].

    Equal to `tf.data.Dataset.range(n).shuffle(n, seed=13, reshuffle_each_iteration=False)` where
    no global seed is set, in eager code and in a graph alike. That order depends on n alone.

    Args:
      num_examples: Integer scalar, may be a tensor.
    """
    n = tf.cast(num_examples, tf.int64)
    size = tf.maximum(n, 1)
    spec = {"output_types": [tf.int64], "output_shapes": [[]]}
    zero, one = tf.constant(0, tf.int64), tf.constant(1, tf.int64)
    rows = tf.raw_ops.RangeDataset(start=zero, stop=n, step=one, **spec)
    rows = tf.raw_ops.ShuffleDataset(
        input_dataset=rows,
        buffer_size=size,
        seed=_DEFAULT_GRAPH_SEED,
        seed2=SPLIT_SEED,
        reshuffle_each_iteration=False,
        **spec,
    )
    spec["output_shapes"] = [[None]]
    rows = tf.raw_ops.BatchDatasetV2(
        input_dataset=rows, batch_size=size, drop_remainder=False, **spec
    )
    return tf.raw_ops.DatasetToSingleElement(dataset=rows, **spec)[0]


@functools.lru_cache(maxsize=4096)
def _shuffled_order_array(num_examples: int) -> np.ndarray:
    return shuffled_order(num_examples).numpy()


def halve(examples: clients_lib.Examples, shuffle: bool = True) -> dict[str, clients_lib.Examples]:
    """Splits a client's examples into `personalization` (the first half) and `evaluation`.

    Args:
      examples: `{field: [n, ...]}`, n at least 2; arrays stay arrays, tensors tensors.
      shuffle: Whether to shuffle first (EMNIST, Landmarks) or to keep the order.

    Returns:
      The first floor(n / 2) examples and the rest.
    """
    first = next(iter(examples.values()))
    if isinstance(first, np.ndarray):
        n = len(first)
        order = _shuffled_order_array(n) if shuffle else np.arange(n)
        halves = order[: n // 2], order[n // 2 :]
        gather = np.take
    else:
        n = tf.shape(first, tf.int64)[0]
        order = shuffled_order(n) if shuffle else tf.range(n)
        halves = order[: n // 2], order[n // 2 :]
        gather = tf.gather
    return {
        part: {field: gather(values, rows, axis=0) for field, values in examples.items()}
        for part, rows in zip(("personalization", "evaluation"), halves, strict=True)
    }


def split_silo(
    num_examples: int, seed: int, shares: SiloShares = PUBLISHED_SHARES
) -> dict[str, np.ndarray] | None:
    """Cuts a silo's examples into `train`, `valid` and `test`, shuffled by a seed.

    Scikit-learn's `train_test_split`, twice with the same seed, as the published silo code.

    Args:
      num_examples: The silo's size.
      seed: The experiment's seed; run r of Motley's experiments used 100 + 1000 r.
      shares: How much of it validates and tests, both rounded up.

    Returns:
      `{part: row numbers}`, or None for a silo too small to have all three parts.

    Raises:
      UserError: If the shares leave a silo of three examples or more nothing to train on.
    """
    if num_examples < _MIN_SILO_EXAMPLES:
        return None
    of_rest = shares.valid / (1 - shares.test)
    try:
        rest, test = model_selection.train_test_split(
            np.arange(num_examples), test_size=shares.test, random_state=seed
        )
        train, valid = model_selection.train_test_split(rest, test_size=of_rest, random_state=seed)
    except ValueError as error:
        raise UserError(
            f"found a silo of {num_examples} examples, of which --val_split={shares.valid:g} and "
            f"--test_split={shares.test:g} leave none to train on; give smaller shares"
        ) from error
    return {"train": train, "valid": valid, "test": test}


def scale_by_train(features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Standardizes every part of a silo by the mean and deviation of its `train` part.

    Args:
      features: `{part: float64 [n, dim]}`; parts may be empty, `train` may not.

    Returns:
      The same parts as float64; a feature that is constant in `train` is only centred.
    """
    scaler = preprocessing.StandardScaler().fit(features["train"])
    # Not `transform`: it refuses a part without rows.
    return {part: (x - scaler.mean_) / scaler.scale_ for part, x in features.items()}
