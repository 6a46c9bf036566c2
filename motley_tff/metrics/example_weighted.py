"""Means over examples, where every other mean of the table is over clients.

    sum_i n_i * v_i / sum_i n_i,  n_i the evaluation examples of client i

What the metric would be on all clients' evaluation examples pooled, if it is a mean over examples.
Large clients dominate it, which is why Motley reports means over clients.
"""

import numpy as np

from motley_tff.metrics import client_values


def example_weighted_mean(
    values: client_values.ClientValues, column: client_values.Column
) -> float:
    """Returns the mean of a column weighted by evaluation examples, in units of the metric."""
    numbers, sizes = values.finite(column), values.num_evaluation_examples
    if numbers is None or sizes is None or not sizes.sum():
        return float("nan")
    return float(np.average(numbers, weights=sizes))
