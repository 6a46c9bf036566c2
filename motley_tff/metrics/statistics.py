"""Statistics of a column over the clients that have a value in it; of none not-a-number.

- Variance of all clients, (1 / n) * sum_i (v_i - mean(v))^2: the spread by which Li et al. 2019
  ("Fair resource allocation in federated learning") compare methods, the lower, the fairer. The
  `_std` columns of `summary.csv` are its square root.
- Quantiles: what a box plot draws (Motley, Figure 2). The q-quantile lies at place q * (n - 1) of
  the sorted values, between neighbours in proportion (definition 7 of Hyndman and Fan 1996): 0 and
  1 are the lowest and the highest number, whatever the metric's direction.
- Means of the worst and the best tenth, k = ceil(n / 10) clients, so that nine silos have a tenth,
  too (Li et al. report the worst and best 10%). Worst is lowest for accuracies, highest for errors.
- The mean over examples, sum_i n_i v_i / sum_i n_i with n_i evaluation examples: what the metric
  would be on all of them pooled, if it is a mean over examples. Large clients dominate it, which is
  why Motley reports means over clients.
- The interval of a mean, of fewer than 15 values Student's t's (Gosset 1908): mean +- t s / sqrt(n)
  with s of n - 1 and the 97.5% quantile t of n - 1 degrees of freedom. It is exact if values are
  normal; of values that are not, it may end beyond the lowest and the highest.
"""

from collections.abc import Callable

import numpy as np

from motley_tff.metrics.client_values import ClientValues, Column

# Below so many values, other intervals of a mean are too narrow.
FEW = 15


def mean(values: ClientValues, column: Column) -> float:
    """Returns the mean of a column, in units of the metric."""
    return _over(values, column, np.mean)


def mean_of_all(values: ClientValues, column: Column) -> float:
    """Returns the mean of a column, not-a-number if a client's model diverged: means that stand
    beside each other are over the same clients.
    """
    return float("nan") if values.has_diverged(column).any() else mean(values, column)


def std(values: ClientValues, column: Column) -> float:
    """Returns the standard deviation of a column (of n), in units of the metric."""
    return _over(values, column, np.std)


def variance(values: ClientValues, column: Column) -> float:
    """Returns the variance of a column, in squared units of the metric."""
    return _over(values, column, np.var)


def quantile(values: ClientValues, column: Column, fraction: float) -> float:
    """Returns the quantile of a column, in units of the metric."""
    return _over(values, column, lambda numbers: np.quantile(numbers, fraction))


def worst_10pct_mean(values: ClientValues, column: Column) -> float:
    """Returns the mean of the ceil(n / 10) worst values of a column, in units of the metric."""
    return _mean_of_tenth(values, column, lowest=values.higher_is_better)


def best_10pct_mean(values: ClientValues, column: Column) -> float:
    """Returns the mean of the ceil(n / 10) best values of a column, in units of the metric."""
    return _mean_of_tenth(values, column, lowest=not values.higher_is_better)


def _mean_of_tenth(values: ClientValues, column: Column, lowest: bool) -> float:
    def mean_of_tenth(numbers: np.ndarray) -> float:
        count = -(-len(numbers) // 10)
        ordered = np.sort(numbers)
        return np.mean(ordered[:count] if lowest else ordered[-count:])

    return _over(values, column, mean_of_tenth)


def _over(values: ClientValues, column: Column, statistic: Callable[[np.ndarray], float]) -> float:
    numbers = values.finite(column)
    return float(statistic(numbers)) if len(numbers) else float("nan")


def example_weighted_mean(values: ClientValues, column: Column) -> float:
    """Returns the mean of a column weighted by evaluation examples, in units of the metric."""
    if values.num_evaluation_examples is None:
        return float("nan")
    sizes = values.num_evaluation_examples[values.is_finite(column)]
    return float(np.average(values.finite(column), weights=sizes)) if sizes.any() else float("nan")


def t_half_width(values: np.ndarray) -> float:
    """Returns half the width of Student's t's 95% interval of a mean; undefined of under two."""
    if len(values) < 2:
        return float("nan")
    from scipy import special  # Takes 70 ms.

    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return float(special.stdtrit(len(values) - 1, 0.975) * error)
