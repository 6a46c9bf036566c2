"""Label-skewed partitions: what each promises, and what cannot be."""

import numpy as np
import pytest

from datasets import label_partition
from tests.errors import refused

_SIZES = np.full(10, 6000)


def _draw(text, sizes=_SIZES, num_clients=10, seed=0, **options):
    stream = np.random.default_rng(seed)
    partition = label_partition.parse(text)
    return label_partition.draw(partition, np.asarray(sizes), num_clients, stream, **options)


@pytest.mark.parametrize("text", ["classes:4", "dirichlet:0.9", "classes:2+lognormal:0,2"])
def test_everything_is_dealt_once_and_the_seed_decides(text):
    counts = _draw(text)
    assert counts.sum(axis=0).tolist() == _SIZES.tolist() and counts.min() >= 0
    np.testing.assert_array_equal(counts, _draw(text))
    assert not np.array_equal(counts, _draw(text, seed=1))


@pytest.mark.parametrize("seed", range(5))
def test_clients_of_k_classes_have_equal_totals_and_unequal_shares(seed):
    counts = _draw("classes:4", seed=seed)
    assert ((counts > 0).sum(axis=1) == 4).all() and (counts.sum(axis=0) > 0).all()
    # Rounding moves an example a class at most.
    assert np.abs(counts.sum(axis=1) - 6000).max() <= 4
    assert counts[counts > 0].std() > 200


def test_dirichlet_draws_each_classs_shares_over_clients():
    """At alpha .9 of ten clients a share has mean .1 and variance .09 / 10."""
    shares = np.concatenate([_draw("dirichlet:0.9", seed=s) / 6000 for s in range(40)])
    assert shares.mean() == pytest.approx(0.1)
    assert shares.var() == pytest.approx(0.09 / 10, rel=0.1)
    totals = _draw("dirichlet:0.9").sum(axis=1)
    assert totals.std() > 300
    equal = _draw("dirichlet:1e6")
    assert np.abs(equal - 600).max() < 10


def test_lognormal_owners_are_neighbours_and_have_ten_of_a_class():
    counts = _draw("classes:2+lognormal:0,2")
    owned = counts > 0
    for client in range(10):
        assert set(np.flatnonzero(owned[client])) == {client, (client + 1) % 10}
    assert counts[owned].min() >= 10
    ratios = np.log(
        np.concatenate([
            [c[(i - 1) % 10, i] / c[i, i] for i in range(10)]
            for c in (_draw("classes:2+lognormal:0,2", seed=s) for s in range(60))
        ])
    )  # fmt: skip
    # Of two draws of a log-normal the ratio's logarithm has the deviation sqrt(2) * 2, and the ten
    # that are given first draw it in a little.
    assert 1.9 < ratios.std() < 2.83 and abs(ratios.mean()) < 0.4
    flat = _draw("classes:2+lognormal:0,0")
    assert set(flat[flat > 0]) == {3000}


def test_rows_follow_the_table():
    labels = np.random.default_rng(1).integers(0, 3, 60)
    sizes = np.bincount(labels)
    counts = _draw("dirichlet:0.5", sizes, 4)
    hands = label_partition.deal(counts, labels, np.random.default_rng(2))
    assert sorted(np.concatenate(hands)) == list(range(60))
    for hand, of_client in zip(hands, counts, strict=True):
        assert np.bincount(labels[hand], minlength=3).tolist() == of_client.tolist()


def test_draws_that_leave_a_client_too_little_are_drawn_again():
    counts = _draw("dirichlet:0.3", seed=3, min_examples=3000)
    assert counts.sum(axis=1).min() >= 3000
    assert _draw("dirichlet:0.3", seed=3).sum(axis=1).min() < 3000
    with refused("partition", "dirichlet:0.01", "at least 5000 examples for each of 10 clients"):
        _draw("dirichlet:0.01", min_examples=5000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("classes:0", "at least 1"),
        ("classes:2.5", "whole number"),
        ("classes:x", "finite number in place of x"),
        ("classes:4,5", "natural, iid"),
        ("dirichlet:1e-300", "alpha from 0.001"),
        ("dirichlet:inf", "finite"),
        ("dirichlet:2e6", "1,000,000"),
        ("classes:2+lognormal:0,-1", "sigma of at least 0"),
        ("lognormal:0,1", "natural, iid"),
    ],
)
def test_what_is_no_partition(text, expected):
    with refused("partition", text, expected):
        label_partition.parse(text)


def test_of_unequal_classes_totals_are_as_equal_as_can_be():
    """One class a client: its owners share it, half each; nobody else can have any."""
    counts = _draw("classes:1", sizes=[100, 60, 20], num_clients=6)
    assert sorted(counts.max(axis=1)) == [10, 10, 30, 30, 50, 50]
    # With two classes a client equal totals can be had.
    totals = _draw("classes:2", sizes=[100, 60, 20], num_clients=6).sum(axis=1)
    assert np.ptp(totals) <= 3


@pytest.mark.parametrize(
    ("text", "sizes", "clients", "expected"),
    [
        ("classes:11", [300] * 10, 5, "at most 10 classes"),
        ("classes:1", [300] * 10, 5, "all 10 classes, and 5 clients own 5"),
        ("classes:2+lognormal:0,2", [300] * 10, 5, "all 10 classes, and 5 clients own 6"),
        ("classes:2+lognormal:0,2", [15] * 10, 10, "10 examples of a class for each of 2 owners"),
        # Neighbours own the first classes more often than the mean.
        ("classes:6+lognormal:0,2", [49] * 10, 5, "10 examples of a class for each of 5 owners"),
        ("classes:2", [1] + [50] * 4, 6, "1 examples of a class for each of 3 owners, not 1 "),
    ],
)
def test_classes_that_cannot_have_their_owners(text, sizes, clients, expected):
    with refused("partition", text, expected):
        _draw(text, sizes=sizes, num_clients=clients)


@pytest.mark.parametrize(("classes", "clients", "size"), [(6, 5, 50), (4, 15, 80), (4, 12, 60)])
def test_neighbours_that_are_no_multiple_of_the_classes(classes, clients, size):
    counts = _draw(f"classes:{classes}+lognormal:0,2", [size] * 10, clients)
    assert (counts.sum(axis=0) == size).all() and counts[counts > 0].min() >= 10
    assert ((counts > 0).sum(axis=1) == classes).all()


def test_a_draw_is_the_same_on_every_machine():
    counts = _draw("classes:2+lognormal:0,2", [100] * 3, 3)
    assert counts.tolist() == [[17, 65, 0], [0, 35, 82], [83, 0, 18]]


def test_large_lognormal_draws_count_in_proportion():
    np.testing.assert_array_equal(
        _draw("classes:2+lognormal:1000,2"), _draw("classes:2+lognormal:0,2")
    )
