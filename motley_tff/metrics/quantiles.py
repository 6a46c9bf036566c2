"""Minimum, quartiles and maximum over clients: what a box plot draws (Motley, Figure 2).

The q-quantile lies at place q * (n - 1) of the sorted values, between neighbours in proportion
(definition 7 of Hyndman and Fan 1996), so that 0 and 1 are the minimum and the maximum. These are
the lowest and the highest numbers, whatever the metric's direction.
"""

import numpy as np

from motley_tff.metrics import client_values


def quantile(
    values: client_values.ClientValues, column: client_values.Column, fraction: float
) -> float:
    """Returns the quantile of a column, in units of the metric.

    Args:
      values: The clients.
      column: Which values.
      fraction: Which quantile, 0..1.
    """
    numbers = values.finite(column)
    return float("nan") if numbers is None else float(np.quantile(numbers, fraction))
