"""Population metrics: pure NumPy functions of the per-client table, computable from the CSV.

`POPULATION` is the registry: every entry becomes a column of `summary.csv`. A new metric is one
file with its equation and source, and one line here.
"""

from collections.abc import Callable, Mapping

from motley_tff.metrics import client_values, clusters, hurt

POPULATION: Mapping[str, Callable[[client_values.ClientValues], float]] = {
    "pct_clients_hurt": hurt.pct_clients_hurt,
    "largest_cluster_pct": clusters.largest_cluster_pct,
    "cluster_ari": clusters.cluster_ari,
    "cluster_purity": clusters.cluster_purity,
}
