import numpy as np
import pytest

from motley_tff.metrics import client_values, clusters


def _values(cluster_ids, groups):
    n = np.zeros(6)
    return client_values.ClientValues(
        n, n, n, True, n,
        None if cluster_ids is None else np.array(cluster_ids),
        None if groups is None else np.array(groups),
    )  # fmt: skip


def test_by_hand():
    values = _values([0, 0, 0, 0, 1, 1], ["en", "en", "en", "es", "es", "es"])
    assert clusters.largest_cluster_pct(values) == pytest.approx(100 * 4 / 6)
    assert clusters.cluster_purity(values) == pytest.approx(5 / 6)
    # Of 15 pairs, 6 + 1 are together in a cluster, 3 + 3 in a group, 3 + 1 in both.
    expected = 7 * 6 / 15
    ari = (4 - expected) / ((7 + 6) / 2 - expected)
    assert clusters.cluster_ari(values) == pytest.approx(ari)
    assert clusters.composition(values.clusters, values.groups) == {
        0: {"en": 3, "es": 1}, 1: {"en": 0, "es": 2},
    }  # fmt: skip


def test_nothing_to_say():
    for values in (_values(None, ["x"] * 6), _values([0] * 6, None)):
        assert np.isnan(clusters.cluster_ari(values)) and np.isnan(clusters.cluster_purity(values))
    assert np.isnan(clusters.largest_cluster_pct(_values(None, None)))
    collapsed = _values([1] * 6, ["x", "x", "x", "y", "y", "y"])
    assert clusters.largest_cluster_pct(collapsed) == 100.0
    assert clusters.cluster_ari(collapsed) == 0.0 and clusters.cluster_purity(collapsed) == 0.5
