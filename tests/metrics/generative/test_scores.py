"""Tables of scores: orders, ranks, what is undefined, the paper's experiment."""

import math
import weakref

import numpy as np
import pytest

from motley_tff.metrics.generative import client_features, frechet, scores
from tests.errors import refused


def _arrays(seed=0):
    rng = np.random.default_rng(seed)
    clients = {f"c{i}": rng.normal(size=(8 + 5 * i, 3)) + i for i in range(4)}
    return clients, {f"g{s}": rng.normal(size=(20, 3)) * s + s for s in (1, 2, 3)}


_NUMBERS = [c for c in scores.COLUMNS if c not in ("generated", "features")]


def _table(clients, generated, k=3):
    return scores.table(client_features.from_arrays(clients), generated, k)


def test_the_order_of_rows_clients_and_sets_does_not_matter():
    clients, generated = _arrays()
    rng = np.random.default_rng(1)
    shuffled = {name: rng.permutation(clients[name]) for name in reversed(clients)}
    other = {name: rng.permutation(generated[name]) for name in reversed(generated)}
    rows, again = _table(clients, generated).rows, _table(shuffled, other).rows[::-1]
    for row, same in zip(rows, again, strict=True):
        assert set(row) == set(scores.COLUMNS)
        for column in _NUMBERS:
            assert same[column] == pytest.approx(row[column], rel=1e-9, abs=1e-12), column
        assert same["generated"] == row["generated"]


def test_one_client_has_one_form():
    clients, generated = _arrays()
    for row in _table({"c3": clients["c3"]}, generated).rows:
        for name in (*scores.DISTANCES, *scores.NEIGHBORS):
            assert row[f"{name}_avg"] == pytest.approx(row[f"{name}_all"], rel=1e-12)


def test_all_is_at_most_avg_for_distances():
    # Observation 1: distances of distributions are convex.
    for seed in range(5):
        for row in _table(*_arrays(seed), k=0).rows:
            assert row["fid_all"] <= row["fid_avg"]
            assert row["kid_biased_all"] <= row["kid_biased_avg"]


def test_ranks():
    clients, generated = _arrays()
    generated["same"] = generated["g1"][::-1]
    rows = {row["generated"]: row for row in _table(clients, generated).rows}
    for column in ("fid_all", "kid_avg", "precision_all", "coverage_avg"):
        best = min if column[:3] in ("fid", "kid") else max
        first = best(rows.values(), key=lambda row: row[column])
        assert first[f"{column}_rank"] == 1
        assert rows["same"][f"{column}_rank"] == rows["g1"][f"{column}_rank"]
    assert sorted(row["fid_all_rank"] for row in rows.values()) in ([1, 1, 3, 4], [1, 2, 2, 4])


def test_a_score_that_does_not_exist_makes_no_others_equal():
    ranks = scores.ranks(np.array([2, np.nan, 1, 1 + 1e-15]))
    np.testing.assert_array_equal(ranks, [3, np.nan, 1, 1])


def test_pairs_in_opposite_orders():
    assert scores.num_disagreements([1, 2, 3], [10, 20, 30]) == 0
    assert scores.num_disagreements([1, 2, 3], [3, 2, 1]) == 3
    assert scores.num_disagreements([1, 2], [2e-9, 1e-9]) == 1
    # Equal values are in no order; neither are those that rounding tells apart.
    assert scores.num_disagreements([1, 1, 2], [2, 1, 3]) == 0
    assert scores.num_disagreements([1, 2], [1e9 + 1e-3, 1e9]) == 0
    assert scores.num_disagreements([1, 2, 3], [1e-9 + 1e-13, 1e-9, 1]) == 0


def test_memory_does_not_grow_with_resamples(monkeypatch):
    """Of the fits, with a root each, those of the clients stay, and one other at a time."""
    fits, alive, fit = [], [], frechet.fit

    def remembered(*arguments):
        alive.append(sum(reference() is not None for reference in fits))
        fitted = fit(*arguments)
        fits.append(weakref.ref(fitted.root))
        return fitted

    monkeypatch.setattr(frechet, "fit", remembered)
    clients, generated = _arrays()
    scores.table(client_features.from_arrays(clients), generated, 0, "", 20)
    assert len(fits) == len(clients) + 1 + 3 * 21
    assert max(alive) <= len(clients) + 2


def test_a_client_of_one_example():
    clients, generated = _arrays()
    table = _table(clients | {"single": np.zeros((1, 3))}, generated)
    for row in table.rows:
        undefined = {column for column in _NUMBERS if np.isnan(row[column])}
        names = [f"{name}_avg" for name in ("fid", "kid", "precision", "density", "coverage")]
        assert undefined == {*names, *(f"{name}_rank" for name in names)}
        assert row["recall_avg"] == row["recall_all"]
    assert table.notes[:-1] == [
        "fid_avg and kid_avg are undefined: 1 client (single) of one example; kid_biased_avg is "
        "not",
        "precision_avg, density_avg and coverage_avg are undefined: 1 client (single) of at most "
        "3 examples, which have no 3 neighbours each",
    ]


def test_two_examples_are_enough():
    clients = {"a": np.array([[0.0], [2.0]]), "b": np.array([[0.0], [2.0]])}
    table = _table(clients, {"g": np.array([[0.0], [2.0]])}, k=0)
    assert table.notes == [
        "fid of g is too high: fewer than 10 examples a feature, of 1",
        "fid_all is too high: the clients together are of fewer than 10 examples a feature, of 1",
        "fid_avg is too high: 2 clients (a, b) of fewer than 10 examples a feature, of 1",
    ]
    row = table.rows[0]
    assert (row["examples_per_feature"], row["client_examples_per_feature"]) == (2, 2)
    three = {"a": np.zeros((3, 2)), "b": np.zeros((4, 2))}
    row = _table(three, {"g": np.zeros((50, 2))}, k=0).rows[0]
    assert (row["examples_per_feature"], row["client_examples_per_feature"]) == (3.5, 1.5)
    # Variances 4/3 (of all four) and 2, the same means; a client's own are the generated ones.
    assert table.rows[0]["fid_all"] == pytest.approx((math.sqrt(4 / 3) - math.sqrt(2)) ** 2)
    assert table.rows[0]["fid_avg"] == pytest.approx(0, abs=1e-12)


def test_enough_examples_leave_no_notes():
    clients, generated = _arrays()
    # Constant and large values are scored, too.
    for row in _table(clients, {"same": np.ones((20, 3)), "far": generated["g1"] * 1e30}).rows:
        assert all(np.isfinite(row[column]) for column in _NUMBERS)
    large = {name: np.concatenate([x, x + 0.1]) for name, x in generated.items()}
    enough = {name: np.concatenate([x, x + 0.1, x + 0.2, x + 0.3]) for name, x in clients.items()}
    assert _table(enough, large).notes == []
    assert _table(enough, large, k=31).notes == []
    few = "fid of g1, g2, g3 is too high: fewer than 10 examples a feature, of 3"
    assert _table(enough, generated).notes == [few]
    exactly = enough | {"c1": clients["c3"], "c2": np.concatenate([clients["c3"]] * 2)[:30]}
    of_clients = "fid_avg is too high: 1 client (c1) of fewer than 10 examples a feature, of 3"
    assert _table(exactly, large).notes == [of_clients]
    assert "1 client (c0) of at most 8 examples" in _table(clients, generated, k=8).notes[0]
    single = {f"a{i}": np.zeros((1, 3)) for i in range(4)}
    listed = "4 clients (a0, a1, a2, ...) of one"
    assert listed in _table(clients | single, generated, k=0).notes[0]


def test_too_few_examples():
    clients, generated = _arrays()
    with refused("g1", "20 examples", "21", "num_neighbors"):
        _table(clients, generated, k=20)
    with refused("all clients", "8 examples"):
        _table({"c0": clients["c0"]}, generated, k=8)
    with refused("g", "2 examples", "3", "num_neighbors"):
        _table(clients, {"g": np.zeros((2, 3))}, k=2)
    with refused("one", "1 examples", "2") as caught:
        _table(clients, {"one": np.zeros((1, 3))}, k=0)
    assert caught.value.advice == ""


def test_deviations_are_those_of_new_examples():
    """Against what new draws of the same generator score."""
    rng = np.random.default_rng(0)
    clients = client_features.from_arrays(
        {"a": rng.normal(size=(200, 2)), "b": rng.normal(size=(300, 2)) + 2}
    )
    sets = {str(i): rng.normal(size=(300, 2)) * 1.5 + 1 for i in range(60)}
    rows = scores.table(clients, sets, 3).rows
    steps = []
    (row,) = scores.table(
        clients, {"0": sets["0"]}, 3, num_resamples=80, on_set=lambda: steps.append(1)
    ).rows
    assert len(steps) == 1 + 80
    for name in (*scores.DISTANCES, "precision", "density", "coverage"):
        for form in scores.FORMS:
            column = f"{name}_{form}"
            true = np.std([r[column] for r in rows])
            assert 0.5 * true < row[f"{column}_std"] < 2 * true, column
    (again,) = scores.table(clients, {"0": sets["0"]}, 3, num_resamples=80).rows
    assert again == row
    (without,) = scores.table(clients, {"0": sets["0"]}, 3).rows
    assert without == {k: v for k, v in row.items() if not k.endswith("_std")}
    orders = [np.random.default_rng([0, i]).permutation(300)[:150] for i in range(2)]
    halves = {str(i): sets["0"][order] for i, order in enumerate(orders)}
    first, other = (half["fid_avg"] for half in scores.table(clients, halves, 0).rows)
    (row,) = scores.table(clients, {"0": sets["0"]}, 0, num_resamples=2).rows
    assert row["fid_avg_std"] == pytest.approx(abs(first - other) / math.sqrt(2))
    with refused("half of few, as resamples", "3 examples"):
        scores.table(clients, {"few": sets["0"][:7]}, 3, num_resamples=2)
