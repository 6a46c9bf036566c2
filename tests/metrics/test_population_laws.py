"""Laws of the columns of summary.csv, on any clients.

Values are multiples of 1/64: sums and differences of them have no rounding, so that ties are ties.
"""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from motley_tff import metrics
from motley_tff.metrics import client_values

NUMBERS = st.integers(-128, 128).map(lambda n: n / 64)
LOCATIONS = ("min", "lower_quartile", "median", "upper_quartile", "max", "worst_10pct_mean",
             "best_10pct_mean", "example_weighted_mean", "mean")  # fmt: skip


@st.composite
def clients(draw, least=1, most=25, numbers=NUMBERS):
    """Returns some clients, each with a cluster and a group."""
    columns = st.tuples(
        numbers, numbers, st.integers(1, 9), st.integers(0, 2), st.sampled_from("xyz")
    )
    rows = draw(st.lists(columns, min_size=least, max_size=most))
    baseline, personalized, sizes, clusters, groups = map(np.array, zip(*rows, strict=True))
    return client_values.ClientValues(
        np.arange(len(rows)).astype(str), baseline, personalized, draw(st.booleans()),
        sizes, clusters, groups,
    )  # fmt: skip


def of(name, values):
    return metrics.POPULATION[name](values)


def take(values, rows):
    fields = {field.name: getattr(values, field.name) for field in dataclasses.fields(values)}
    return dataclasses.replace(
        values, **{n: a[rows] for n, a in fields.items() if isinstance(a, np.ndarray)}
    )


def swapped(values):
    return dataclasses.replace(values, baseline=values.personalized, personalized=values.baseline)


def mapped(values, function, **others):
    return dataclasses.replace(
        values,
        baseline=function(values.baseline),
        personalized=function(values.personalized),
        **others,
    )


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True)


@given(clients())
def test_swapping_both_models_swaps_who_is_hurt(values):
    same = 100 * np.mean(values.baseline == values.personalized)
    other = swapped(values)
    hurt, helped = of("pct_clients_hurt", values), of("pct_clients_hurt", other)
    assert hurt + helped + same == close(100)
    assert of("delta_mean", other) == close(-of("delta_mean", values))
    assert of("wilcoxon_p", other) == close(of("wilcoxon_p", values))
    if not same:
        low, high = of("pct_clients_hurt_low", other), of("pct_clients_hurt_high", other)
        assert of("pct_clients_hurt_low", values) == pytest.approx(100 - high, abs=1e-9)
        assert of("pct_clients_hurt_high", values) == pytest.approx(100 - low, abs=1e-9)


@given(clients())
def test_errors_are_accuracies_with_the_sign_turned(values):
    turned = mapped(values, np.negative, higher_is_better=not values.higher_is_better)
    summary, other = metrics.summarize(values), metrics.summarize(turned)
    for name in ("pct_clients_hurt", "delta_mean", "delta_mean_low", "wilcoxon_p"):
        assert other[name] == close(summary[name])
    for column in ("baseline", "personalized"):
        assert other[f"{column}_variance"] == close(summary[f"{column}_variance"])
        pairs = {"min": "max", "max": "min", "lower_quartile": "upper_quartile",
                 "median": "median", "worst_10pct_mean": "worst_10pct_mean",
                 "best_10pct_mean": "best_10pct_mean"}  # fmt: skip
        for name, image in pairs.items():
            assert other[f"{column}_{image}"] == close(-summary[f"{column}_{name}"])


@given(clients(), st.sampled_from([0.25, 1.0, 8.0]), st.integers(-640, 640))
def test_units_of_the_metric(values, scale, shift):
    shift /= 64
    summary = metrics.summarize(values)
    other = metrics.summarize(mapped(values, lambda v: scale * v + shift))
    for column in ("baseline", "personalized"):
        for name in LOCATIONS:
            expected = scale * summary[f"{column}_{name}"] + shift
            assert other[f"{column}_{name}"] == close(expected)
        assert other[f"{column}_variance"] == close(scale**2 * summary[f"{column}_variance"])
    for name in ("delta_mean", "delta_mean_low", "delta_mean_high"):
        assert other[name] == close(scale * summary[name])
    for name in ("pct_clients_hurt", "pct_clients_hurt_low", "wilcoxon_p"):
        assert other[name] == close(summary[name])


@given(clients())
def test_what_lies_between_what(values):
    summary = metrics.summarize(values)
    worst, best = ("min", "max") if values.higher_is_better else ("max", "min")
    sign = 1 if values.higher_is_better else -1

    def ascend(*numbers):
        return all(a <= b + 1e-12 for a, b in itertools.pairwise(numbers))

    for column in ("baseline", "personalized"):
        of_column = {n: summary[f"{column}_{n}"] for n in LOCATIONS}
        quartiles = ("min", "lower_quartile", "median", "upper_quartile", "max")
        assert ascend(*(of_column[n] for n in quartiles))
        assert ascend(of_column["min"], of_column["example_weighted_mean"], of_column["max"])
        towards_best = (worst, "worst_10pct_mean", "mean", "best_10pct_mean", best)
        assert ascend(*(sign * of_column[n] for n in towards_best))
    names = ("pct_clients_hurt_low", "pct_clients_hurt", "pct_clients_hurt_high")
    assert ascend(0, *(summary[n] for n in names), 100)
    low, high = summary["delta_mean_low"], summary["delta_mean_high"]
    if len(values.baseline) >= metrics.statistics.FEW:
        assert ascend(values.delta.min(), low, high, values.delta.max())
    elif len(values.baseline) > 1:
        assert (low + high) / 2 == close(summary["delta_mean"])
    assert 0 < summary["wilcoxon_p"] <= 1 or not values.delta.any()


@given(clients())
def test_what_clusters_can_tell_of_groups(values):
    count = len(values.clusters)
    largest_group = np.unique(values.groups, return_counts=True)[1].max() / count
    assert largest_group - 1e-12 <= of("cluster_purity", values) <= 1
    num_clusters = len(np.unique(values.clusters))
    assert 100 / num_clusters - 1e-9 <= of("largest_cluster_pct", values) <= 100
    # Clusters that join tell less.
    joined = dataclasses.replace(values, clusters=np.minimum(values.clusters, 1))
    assert of("cluster_purity", joined) <= of("cluster_purity", values) + 1e-12
    assert of("largest_cluster_pct", joined) >= of("largest_cluster_pct", values)
    by_itself = dataclasses.replace(
        values, clusters=np.unique(values.groups, return_inverse=True)[1]
    )
    assert of("cluster_ari", by_itself) == of("cluster_purity", by_itself) == 1
    table = metrics.clusters.composition(values.clusters, values.groups)
    for cluster, row in table.items():
        assert sum(row.values()) == np.sum(values.clusters == cluster)
    for group in np.unique(values.groups):
        assert sum(row[group] for row in table.values()) == np.sum(values.groups == group)


# What one client more may move. Of gains: whatever the value that it keeps, the same.
OF_GAINS = ("pct_clients_hurt", "pct_clients_hurt_low", "pct_clients_hurt_high", "delta_mean",
            "delta_mean_low", "delta_mean_high", "wilcoxon_p")  # fmt: skip
OF_CLUSTERS = ("largest_cluster_pct", "cluster_ari", "cluster_purity")
MILLION = 2.0**20


def with_client(values, baseline, personalized):
    more = {"baseline": baseline, "personalized": personalized, "clusters": 0, "groups": "x",
            "num_evaluation_examples": 3, "client_ids": "more"}  # fmt: skip
    columns = {name: np.append(getattr(values, name), value) for name, value in more.items()}
    return dataclasses.replace(values, **columns)


@given(clients(), NUMBERS)
def test_a_client_that_keeps_its_value(values, kept):
    count, before = len(values.baseline), metrics.summarize(values)
    near, far = (metrics.summarize(with_client(values, v, v)) for v in (kept, MILLION))
    for name in (*OF_GAINS, *OF_CLUSTERS):
        assert far[name] == near[name] or np.isnan(near[name])
    assert near["wilcoxon_p"] == before["wilcoxon_p"] or not values.delta.any()
    for name in ("pct_clients_hurt", "delta_mean"):
        assert near[name] == close(before[name] * count / (count + 1))
    hurt = stats.binomtest(int(np.sum(values.is_hurt)), count + 1).proportion_ci()
    assert near["pct_clients_hurt_low"] == pytest.approx(100 * hurt.low, abs=1e-6)
    assert near["pct_clients_hurt_high"] == pytest.approx(100 * hurt.high, abs=1e-6)
    for column, numbers in (("baseline", values.baseline), ("personalized", values.personalized)):
        numbers, weights = np.append(numbers, kept), np.append(values.num_evaluation_examples, 3)
        assert near[f"{column}_variance"] == close(np.var(numbers))
        mean = np.sum(numbers * weights) / np.sum(weights)
        assert near[f"{column}_example_weighted_mean"] == close(mean)


@given(clients(least=4), st.sampled_from([1, -1]))
def test_the_ties_of_others_beside_large_values_with_a_gain_as_theirs(values, sign):
    """Of 1,048,576 a gain of 2.5 is uncertain by 0.25: it is as the nearest, and joins no two."""
    sizes = np.unique(np.abs(values.delta[values.delta != 0]))
    near = min(sizes[abs(sizes - 2.5) <= 0.25], key=lambda size: abs(size - 2.5), default=2.5)
    p_value = with_client(values, MILLION, MILLION + 2.5 * sign)
    turned = sign if values.higher_is_better else -sign
    assert of("wilcoxon_p", p_value) == _p_of([*values.delta, turned * near])


def _p_of(gains):
    """SciPy counts all signs where no size is twice there; this does for ranks that are shared."""
    moved = np.array(gains)[np.array(gains) != 0]
    ranks = (2 * stats.rankdata(np.abs(moved))).astype(int)
    chance = np.ones(1)
    for rank in ranks:  # How likely each rank sum is.
        chance = np.convolve(chance, np.eye(1, rank + 1)[0] / 2 + np.eye(1, rank + 1, rank)[0] / 2)
    plus = ranks[moved > 0].sum()
    return close(min(1, 2 * chance[: min(plus, ranks.sum() - plus) + 1].sum()))
