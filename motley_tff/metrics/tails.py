"""Means of the worst and of the best tenth of the clients, as fairness is often reported.

    mean of the k worst of v_1, ..., v_n,  k = ceil(n / 10)

so that nine silos have a tenth, too: one silo. Worst is lowest for accuracies, highest for errors
(Li et al. 2019 report the worst and best 10% of test accuracies).
"""

import numpy as np

from motley_tff.metrics import client_values


def worst_10pct_mean(values: client_values.ClientValues, column: client_values.Column) -> float:
    """Returns the mean of the ceil(n / 10) worst values of a column, in units of the metric."""
    return _mean_of_tenth(values.finite(column), lowest=values.higher_is_better)


def best_10pct_mean(values: client_values.ClientValues, column: client_values.Column) -> float:
    """Returns the mean of the ceil(n / 10) best values of a column, in units of the metric."""
    return _mean_of_tenth(values.finite(column), lowest=not values.higher_is_better)


def _mean_of_tenth(numbers: np.ndarray | None, lowest: bool) -> float:
    if numbers is None:
        return float("nan")
    count = -(-len(numbers) // 10)
    ordered = np.sort(numbers)
    return float(np.mean(ordered[:count] if lowest else ordered[-count:]))
