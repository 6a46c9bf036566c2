"""Metrics of one client's labels and predictions that are no means of its examples' values.

`METRICS` is the registry of `--metrics` and `--tuning_metric`: a new metric is one file with its
equation and source, and one line here. They are NumPy functions of `ClientExamples`, which every
backend gives back for each client.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from motley_tff.metrics.per_client import (
    absolute_error,
    balanced_accuracy,
    macro_f1,
    one_vs_rest_roc_auc,
    r2,
)
from motley_tff.metrics.per_client.examples import ClientExamples


class ClientMetric(NamedTuple):
    """A metric of a client's examples.

    Attributes:
      function: `ClientExamples -> float64 [num_candidates]`, of what is finite.
      of_numbers: Whether it is of numbers; else of classes.
      is_defined: `labels [n] -> bool`, for a client with examples.
      needs_scores: Whether it reads `ClientExamples.scores`.
    """

    function: Callable[[ClientExamples], np.ndarray]
    higher_is_better: bool
    of_numbers: bool = False
    is_defined: Callable[[np.ndarray], bool] = lambda labels: True
    needs_scores: bool = False


METRICS: Mapping[str, ClientMetric] = {
    "balanced_accuracy": ClientMetric(balanced_accuracy.balanced_accuracy, True),
    "macro_f1": ClientMetric(macro_f1.macro_f1, True),
    "roc_auc": ClientMetric(
        one_vs_rest_roc_auc.roc_auc,
        True,
        is_defined=one_vs_rest_roc_auc.is_defined,
        needs_scores=True,
    ),
    "absolute_error": ClientMetric(absolute_error.absolute_error, False, of_numbers=True),
    "r2": ClientMetric(r2.r2, True, of_numbers=True, is_defined=r2.is_defined),
}


def of_client(name: str, examples: ClientExamples) -> np.ndarray:
    """Returns a client's value under each candidate, float64 [num_candidates]: not-a-number where
    the metric is not defined for its labels, whatever the models say, and the worst infinity of a
    candidate that diverged (`metrics.client_values`).
    """
    metric = METRICS[name]
    num_candidates = examples.predictions.shape[1]
    if not len(examples.labels) or not metric.is_defined(examples.labels):
        return np.full(num_candidates, np.nan)
    is_finite = np.isfinite(examples.predictions).all(axis=0)
    kept = examples._replace(predictions=examples.predictions[:, is_finite])
    if examples.scores is not None:
        kept = kept._replace(scores=examples.scores[:, is_finite])
    values = np.full(num_candidates, -np.inf if metric.higher_is_better else np.inf)
    values[is_finite] = metric.function(kept)
    return values
