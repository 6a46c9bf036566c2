"""The quantum of improvement against the paper's Tables 3 and 4, by hand, and its laws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from motley_tff.metrics import quantum_of_improvement as quantum

# Divi et al. 2021, Table 3: accuracies in percent of users 0..9 on the splits DS-1, DS-2, DS-3.
FEDAVG = """
    43.6 50.8 48.2  50.9 45.3 40.8  44.5 49.4 31.2  51.3 46.5 31.5  45.3 50.8 49.4
    44.2 50.7 47.8  35.8 46.5 56.8  37.9 49.5 58.1  47.7 48.7 49.0  48.6 49.1 53.5
"""
PERSONALIZED = {
    "PersFL": """
        85.5 61.3 94.5  78.2 56.9 79.9  82.2 57.3 68.9  82.1 60.1 82.5  79.4 59.1 82.5
        77.1 61.9 79.9  75.6 58.9 90.3  79.7 61.2 87.6  87.7 60.0 76.7  91.0 58.8 80.3
    """,
    "Per-FedAvg": """
        69.2 58.2 92.5  65.0 56.1 73.7  67.9 57.2 64.6  67.2 58.8 77.0  65.8 59.4 82.5
        62.7 59.3 77.9  58.2 57.7 89.1  64.3 58.0 83.7  72.5 55.8 64.1  76.6 55.3 72.7
    """,
}
# Table 4: (MPI, API) on the three splits; PUI is 100 throughout.
TABLE_4 = {
    "PersFL": [(38.74, 36.87), (11.23, 10.83), (33.29, 35.67)],
    "Per-FedAvg": [(22.9, 21.95), (8.55, 8.85), (32.65, 31.17)],
}


def _users(text):
    return np.array(text.split(), float).reshape(10, 3)


@pytest.mark.parametrize("method", TABLE_4)
@pytest.mark.parametrize("split", range(3))
def test_table_4(method, split):
    personalized, fedavg = _users(PERSONALIZED[method])[:, split], _users(FEDAVG)[:, split]
    gains = quantum.quantum(personalized, fedavg, None, higher_is_better=True)
    mpi, api = TABLE_4[method][split]
    assert quantum.QUANTUM["pui"](gains) == 100.0
    assert quantum.QUANTUM["mpi"](gains) == pytest.approx(mpi, abs=0.06)
    assert quantum.QUANTUM["api"](gains) == pytest.approx(api, abs=0.06)
    assert math.isnan(quantum.QUANTUM["mpd"](gains)) and math.isnan(quantum.QUANTUM["apd"](gains))


# Five clients: F = 0.3, 0.1, 0, -0.2, -0.4.
F = quantum.quantum(
    np.array([0.8, 0.7, 0.5, 0.4, 0.1]),
    np.array([0.5, 0.4, 0.5, 0.6, 0.3]),
    np.array([0.1, 0.6, 0.5, 0.6, 0.5]),
    higher_is_better=True,
)


def test_by_hand():
    np.testing.assert_allclose(F, [0.3, 0.1, 0, -0.2, -0.4], atol=1e-15)
    shares = [(0.75, 0.25), (1 / 3, 2 / 3)]
    entropies = [-sum(s * math.log(s) for s in both) for both in shares]
    expected = {
        "pui": 40, "mpi": 0.2, "api": 0.2, "mpd": 0.3, "apd": 0.3,
        "average_variance_improved": 0.01,
        "cosine_similarity_improved": 0.2 / math.sqrt(0.05),
        "entropy_improved": entropies[0],
        "jain_index_improved": 0.16 / (2 * 0.1),
        "average_variance_decreased": 0.01,
        "cosine_similarity_decreased": 0.3 / math.sqrt(0.1),
        "entropy_decreased": entropies[1],
        "jain_index_decreased": 0.36 / (2 * 0.2),
    }  # fmt: skip
    assert {name: function(F) for name, function in quantum.QUANTUM.items()} == pytest.approx(
        expected
    )


def test_equal_gains_are_the_fairest_and_nothing_is_undefined():
    # Who has nothing adds nothing.
    assert quantum.entropy(np.array([1.0, 0.0, 1.0])) == pytest.approx(math.log(2))
    same = np.full(7, 0.125)
    assert quantum.average_variance(same) == 0.0
    assert quantum.cosine_similarity(same) == pytest.approx(1)
    assert quantum.entropy(same) == pytest.approx(math.log(7))
    assert quantum.jain_index(same) == pytest.approx(1)
    nothing = np.zeros(4)
    for function in (quantum.cosine_similarity, quantum.entropy, quantum.jain_index):
        assert math.isnan(function(nothing)) and math.isnan(function(nothing[:0]))
    of_nobody = {name: function(nothing) for name, function in quantum.QUANTUM.items()}
    assert of_nobody.pop("pui") == 0 and all(math.isnan(value) for value in of_nobody.values())


# Multiples of 1/64: their differences have no rounding.
NUMBERS = st.integers(-128, 128).map(lambda n: n / 64)
FOUND = st.lists(NUMBERS, min_size=1, max_size=25).map(np.array)
PART = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=25).map(np.array)
SIZED = {"pui": 0, "mpi": 1, "api": 1, "mpd": 1, "apd": 1} | {
    name: 2 if "variance" in name else 0 for name in quantum.QUANTUM if "_" in name
}


@st.composite
def columns(draw, count):
    """Returns so many columns of as many clients."""
    rows = draw(st.lists(st.tuples(*[NUMBERS] * count), min_size=1, max_size=25))
    return np.array(rows).T


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True)


@given(columns(3), st.booleans())
def test_gains_are_over_the_better_of_both_models(models, higher_is_better):
    personalized, first, other = models
    gains = quantum.quantum(personalized, first, other, higher_is_better)
    over = [quantum.quantum(personalized, m, None, higher_is_better) for m in (first, other)]
    np.testing.assert_array_equal(gains, np.minimum(*over))
    np.testing.assert_array_equal(
        gains, quantum.quantum(personalized, other, first, higher_is_better)
    )
    np.testing.assert_array_equal(
        gains, quantum.quantum(-personalized, -first, -other, not higher_is_better)
    )
    sign = 1 if higher_is_better else -1
    np.testing.assert_array_equal(over[0] > 0, sign * personalized > sign * first)


@pytest.mark.parametrize("name", quantum.QUANTUM)
@settings(max_examples=settings().max_examples // 3)
@given(FOUND, st.randoms(use_true_random=False), st.sampled_from([0.25, 1.0, 8.0]))
def test_order_units_and_signs(name, gains, random, scale):
    function = quantum.QUANTUM[name]
    order = random.sample(range(len(gains)), len(gains))
    assert function(gains[order]) == close(function(gains))
    assert function(scale * gains) == close(scale ** SIZED[name] * function(gains))
    turned = {"mpi": "mpd", "api": "apd"}.get(name, name.replace("improved", "decreased"))
    if turned != name:
        assert quantum.QUANTUM[turned](-gains) == close(function(gains))


@given(PART)
def test_bounds_of_fairness(part):
    count = len(part)
    assert 1 / count - 1e-9 <= quantum.jain_index(part) <= 1 + 1e-9
    assert -1e-9 <= quantum.entropy(part) <= math.log(count) + 1e-9
    assert quantum.jain_index(part) == close(quantum.cosine_similarity(part) ** 2)
    mean_square = quantum.average_variance(part) + part.mean() ** 2
    assert quantum.jain_index(part) == close(part.mean() ** 2 / mean_square)
