import numpy as np
import pytest
import tensorflow as tf
from sklearn import model_selection

from datasets import emnist, landmark
from datasets.options import SiloShares
from datasets.partition import splits
from tests.errors import refused

# RandomState(13).permutation(10)
PERMUTATION = [3, 5, 6, 1, 4, 7, 8, 9, 0, 2]


def test_clients_are_permuted_by_seed_13_valid_first_then_test():
    ids = [f"c{i}" for i in range(10)]
    train, valid, test = splits.split_clients(ids, 2, 3)
    assert valid == ("c3", "c5")
    assert test == ("c6", "c1", "c4")
    assert train == ("c7", "c8", "c9", "c0", "c2")
    permuted = np.random.RandomState(13).permutation(ids).tolist()
    assert [*valid, *test, *train] == permuted


@pytest.mark.parametrize(
    ("clients", "counts"), [(836, (100, 125)), (100, (12, 15)), (3400, (408, 510)), (3, (1, 1))]
)
def test_other_populations_keep_proportions_rounded_down(clients, counts):
    assert splits.proportional_counts(clients) == counts


@pytest.mark.parametrize(
    ("number", "published", "counts"),
    [
        (3400, emnist.PUBLISHED, (400, 500, 2500)),
        (1262, landmark.PUBLISHED, (50, 100, 1112)),
        (233, landmark.PUBLISHED, (27, 34, 172)),
    ],
)
def test_published_counts(number, published, counts):
    split = splits.published_or_proportional({str(i): 2 for i in range(number)}, published)
    assert (len(split.valid), len(split.test), len(split.train)) == counts


def test_clients_that_cannot_be_halved_are_left_out_by_name():
    sizes = {str(i): 5 for i in range(10)}
    # In order: two validate, three test. 5 has one example, 6 none; 7 trains on its one.
    sizes.update({"5": 1, "6": 0, "7": 1})
    split = splits.split_population(sizes, 2, 3)
    assert split.valid == ("3",)
    assert split.test == ("1", "4")
    assert split.train == ("7", "8", "9", "0", "2")
    assert split.left_out == {
        "no examples": ["6"],
        "fewer than 2 examples: cannot be halved": ["5"],
    }
    with refused(finding="no valid client of 2 with 2 examples"):
        splits.split_population(dict.fromkeys(sizes, 1), 2, 3)


def published_order(num_examples):
    """tf.data's own shuffle in a graph of its own, where no global seed can reach it."""
    with tf.Graph().as_default():
        shuffled = tf.data.Dataset.range(num_examples).shuffle(
            418, seed=13, reshuffle_each_iteration=False
        )
        rows = shuffled.batch(num_examples).get_single_element()
        with tf.compat.v1.Session() as session:
            return session.run(rows)


@pytest.mark.parametrize("num_examples", [1, 2, 7, 30, 418])
def test_shuffle_is_the_published_one(num_examples):
    expected = published_order(num_examples)
    np.testing.assert_array_equal(splits.shuffled_order(num_examples), expected)
    in_graph = tf.function(splits.shuffled_order, input_signature=[tf.TensorSpec([], tf.int32)])
    for _ in range(2):
        np.testing.assert_array_equal(in_graph(num_examples), expected)


def test_shuffle_is_this_one():
    expected = [5, 28, 9, 27, 4, 11, 1, 19, 21, 3, 14, 2, 16, 20, 10]
    np.testing.assert_array_equal(splits.shuffled_order(30)[:15], expected)


def test_shuffle_does_not_depend_on_a_global_seed():
    expected = splits.shuffled_order(30).numpy()
    try:
        tf.random.set_seed(99)
        np.testing.assert_array_equal(splits.shuffled_order(30), expected)
        np.testing.assert_array_equal(tf.function(lambda: splits.shuffled_order(30))(), expected)
    finally:
        tf.random.set_seed(None)


@pytest.mark.parametrize("num_examples", [2, 3, 31])
def test_halves_of_arrays_and_of_tensors_are_the_same(num_examples):
    examples = {"x": np.arange(num_examples * 2).reshape(-1, 2), "y": np.arange(num_examples)}
    arrays = splits.halve(examples)
    signature = {
        "x": tf.TensorSpec([None, 2], tf.int64),
        "y": tf.TensorSpec([None], tf.int64),
    }
    tensors = tf.function(splits.halve, input_signature=[signature])(examples)
    order = published_order(num_examples)
    half = num_examples // 2
    for part, rows in (("personalization", order[:half]), ("evaluation", order[half:])):
        assert isinstance(arrays[part]["y"], np.ndarray)
        for field, values in examples.items():
            np.testing.assert_array_equal(arrays[part][field], values[rows])
            np.testing.assert_array_equal(tensors[part][field], values[rows])


def test_kept_shares_by_hand():
    # Of 10 rows a has 5, b 3, c 2; 4 rows should have 2, 1.2 and 0.8: c has the largest remainder.
    labels = np.array(list("aaaaabbbcc"))
    order = np.array([9, 5, 0, 6, 1, 8, 2, 3, 7, 4])
    kept = splits.keep_shares(order, labels, 4)
    assert kept.tolist() == [9, 5, 0, 1, 6, 8, 2, 3, 7, 4]
    # Of equal remainders (0.5 each) the label that comes first in the order gets the row.
    halves = splits.keep_shares(np.array([2, 0, 1, 3]), np.array([0, 0, 1, 1]), 1)
    assert halves.tolist() == [2, 0, 1, 3]


@pytest.mark.parametrize("count", [1, 3, 10, 36])
def test_kept_shares_are_those_of_hamiltons_rule(count):
    rng = np.random.default_rng(count)
    labels, order = rng.choice(4, 37, p=(0.6, 0.2, 0.15, 0.05)), rng.permutation(37)
    kept = splits.keep_shares(order, labels, count)
    assert sorted(kept) == list(range(37))
    exact = np.bincount(labels, minlength=4) * count / 37
    taken = np.bincount(labels[kept[:count]], minlength=4)
    assert taken.sum() == count and np.all(np.abs(taken - exact) < 1)
    # No other whole numbers of this sum are nearer to the exact shares.
    lower, more = np.floor(exact), count - int(np.floor(exact).sum())
    best = np.sort(exact - lower)[::-1][:more].sum()
    assert np.sum((taken - lower) * (exact - lower)) == pytest.approx(best)
    for label in range(4):  # Rows of a label stay in their order.
        rows = [row for row in kept if labels[row] == label]
        assert rows == [row for row in order if labels[row] == label]


def test_stratified_parts_have_the_sizes_of_others():
    labels = np.repeat([0, 1], [40, 10])
    parts = splits.split_silo(50, 3, SiloShares(0.2, 0.2), labels=labels)
    others = splits.split_silo(50, 3, SiloShares(0.2, 0.2))
    assert {p: len(r) for p, r in parts.items()} == {p: len(r) for p, r in others.items()}
    counts = {part: np.bincount(labels[rows]).tolist() for part, rows in parts.items()}
    assert counts == {"train": [24, 6], "valid": [8, 2], "test": [8, 2]}
    halves = splits.halve({"x": np.arange(50)}, labels=labels)
    assert [np.bincount(labels[half["x"]]).tolist() for half in halves.values()] == [[20, 5]] * 2


def test_shares_that_leave_a_silo_nothing_to_train_on():
    with refused(finding="silo of 3 examples", expected="val_split=0.3 and test_split=0.6"):
        splits.split_silo(3, 0, SiloShares(0.3, 0.6))


@pytest.mark.parametrize(
    "shares", [(0.15, 0.15), (0.2, 0.2), (0.45, 0.45), (0.05, 0.9), (0.6, 0.3)]
)
def test_silos_of_the_least_size_and_more_have_all_parts(shares):
    shares = SiloShares(*shares)
    least = splits.least_silo(shares)
    for size in range(least, least + 30):
        parts = splits.split_silo(size, 0, shares)
        assert min(map(len, parts.values())) >= 1 and sum(map(len, parts.values())) == size


@pytest.mark.parametrize("is_shuffled", [True, False])
@pytest.mark.parametrize("num_examples", [3, 10, 77])
def test_silos_have_the_rows_of_scikit_learn(num_examples, is_shuffled):
    drawn = {"shuffle": is_shuffled, "random_state": 1100 if is_shuffled else None}
    rest, test = model_selection.train_test_split(np.arange(num_examples), test_size=0.15, **drawn)
    train, valid = model_selection.train_test_split(rest, test_size=0.15 / 0.85, **drawn)
    parts = splits.split_silo(num_examples, 1100, SiloShares(0.15, 0.15), is_shuffled)
    for name, rows in (("train", train), ("valid", valid), ("test", test)):
        np.testing.assert_array_equal(parts[name], rows)
