"""Laws of splits: everybody and every example once, in parts of the promised sizes."""

import math

import numpy as np
from hypothesis import given, strategies as st

from datasets.options import SiloShares
from datasets.partition import splits
from motley_tff.core import errors
from tests.errors import refused

SEEDS = st.integers(0, 2**32 - 1)
COUNTS = st.integers(0, 12)


@given(st.integers(1, 40), COUNTS, COUNTS, st.text(max_size=3))
def test_each_client_is_in_one_split_whatever_its_name(num_clients, num_valid, num_test, prefix):
    ids = [str(i) for i in range(num_clients)]
    if num_clients <= num_valid + num_test:
        with refused(
            finding=f"{num_clients} clients", expected=f"more than {num_valid + num_test}"
        ):
            splits.split_clients(ids, num_valid, num_test)
        return
    train, valid, test = splits.split_clients(ids, num_valid, num_test)
    assert sorted([*train, *valid, *test], key=int) == ids
    assert (len(valid), len(test)) == (num_valid, num_test)
    renamed = splits.split_clients([prefix + i for i in ids], num_valid, num_test)
    assert renamed == tuple(tuple(prefix + i for i in split) for split in (train, valid, test))
    # More test clients are taken from those who would train.
    if num_test:
        fewer = splits.split_clients(ids, num_valid, num_test - 1)
        assert fewer == ((test[-1], *train), valid, test[:-1])


@given(
    st.integers(0, 60),
    SEEDS,
    st.integers(1, 98).flatmap(lambda v: st.tuples(st.just(v), st.integers(1, 99 - v))),
)
def test_each_example_of_a_silo_is_in_one_part(num_examples, seed, percents):
    shares = SiloShares(*(percent / 100 for percent in percents))
    try:
        parts = splits.split_silo(num_examples, seed, shares)
    except errors.UserError:
        # Both are rounded up: nothing is left.
        num_test = math.ceil(num_examples * shares.test)
        rest = num_examples - num_test
        assert rest - math.ceil(shares.valid / (1 - shares.test) * rest) <= 0
        return
    if parts is None:
        assert num_examples < 3
        return
    assert sorted(np.concatenate(list(parts.values()))) == list(range(num_examples))
    assert all(len(rows) for rows in parts.values())
    assert len(parts["test"]) == math.ceil(num_examples * shares.test)
    rest = num_examples - len(parts["test"])
    assert len(parts["valid"]) == math.ceil(shares.valid / (1 - shares.test) * rest)
    again = splits.split_silo(num_examples, seed, shares)
    for part, rows in parts.items():
        np.testing.assert_array_equal(rows, again[part])
    # Who tests does not depend on how many validate.
    other = splits.split_silo(num_examples, seed, shares._replace(valid=1e-9))
    np.testing.assert_array_equal(other["test"], parts["test"])
