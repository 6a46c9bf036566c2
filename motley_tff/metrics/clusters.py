"""How clients are spread over clusters, and how that fits groups that are known.

The largest cluster's share is what Motley calls mode collapse when it nears 100%. Groups are known
where data say so: TedMulti's languages, planted styles. Metrics are not-a-number where clients
belong to no cluster or no group.
"""

import numpy as np

from motley_tff.metrics import client_values


def largest_cluster_pct(values: client_values.ClientValues) -> float:
    """Returns the percentage of clients in the largest cluster, 0..100."""
    if values.clusters is None:
        return float("nan")
    _, counts = np.unique(values.clusters, return_counts=True)
    return 100.0 * float(counts.max()) / len(values.clusters)


def cluster_ari(values: client_values.ClientValues) -> float:
    """Returns the adjusted Rand index of clusters and groups (Hubert, Arabie 1985).

    1 where they are the same partition, about 0 where they have nothing to do with each other.
    """
    if values.clusters is None or values.groups is None:
        return float("nan")
    from sklearn import metrics  # Takes 0.9 s.

    return float(metrics.adjusted_rand_score(values.groups, values.clusters))


def cluster_purity(values: client_values.ClientValues) -> float:
    """Returns the share of clients that are of the commonest group in their cluster, 0..1."""
    if values.clusters is None or values.groups is None:
        return float("nan")
    table = composition(values.clusters, values.groups)
    return sum(max(row.values()) for row in table.values()) / len(values.clusters)


def composition(clusters: np.ndarray, groups: np.ndarray) -> dict[int, dict[str, int]]:
    """Returns how many clients of each group are in each cluster: `{cluster: {group: number}}`."""
    return {
        int(cluster): {
            str(group): int(np.sum((clusters == cluster) & (groups == group)))
            for group in np.unique(groups)
        }
        for cluster in np.unique(clusters)
    }
