"""Variance over clients, of all of them: (1 / n) * sum_i (v_i - mean(v))^2.

The spread by which Li et al. 2019 ("Fair resource allocation in federated learning") compare
methods: the lower, the fairer. The `_std` columns of `summary.csv` are its square root.
"""

import numpy as np

from motley_tff.metrics import client_values


def variance(values: client_values.ClientValues, column: client_values.Column) -> float:
    """Returns the variance of a column, in squared units of the metric."""
    numbers = values.finite(column)
    return float("nan") if numbers is None else float(np.var(numbers))
