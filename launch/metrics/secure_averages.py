"""Averages of clients' ROC-AUC that a server can have without seeing any client's."""

import functools
import sys
from collections.abc import Sequence

import numpy as np

from motley_tff.metrics import roc_auc

COLUMNS = tuple(f"secure_{name}" for name in roc_auc.RocAuc._fields if name != "pooled")


def averages(groups: Sequence[roc_auc.Clients]) -> list[dict[str, float]]:
    """Returns each group's averages, by their columns, from one secure sum over all clients.

    A client sends, for every group and average, its weight as a share of the largest, its ROC-AUC
    times that, and 1 if it should count but has no ROC-AUC (its scores are not finite): the first
    two sums' ratio is the average, unless the third is above 0. How large weights can be is agreed
    on before; here it is the largest there is. Pooled values cannot be had in this way.
    """
    if not groups:
        return []
    from motley_tff.backends.tff.secure_sum import secure_sum  # TFF takes seconds to import.

    ids = np.unique(np.concatenate([of.client_ids for of in groups]))
    sent = np.zeros((len(ids), len(groups), len(COLUMNS), 3), np.float64)
    for i, of in enumerate(groups):
        rows = np.searchsorted(ids, of.client_ids)
        for j, weights in enumerate(roc_auc.weights(of).values()):
            shares = weights / max(1, weights.max())
            is_missing = (weights > 0) & np.isnan(of.roc_auc)
            products = shares * np.nan_to_num(of.roc_auc)
            sent[rows, i, j] = np.stack([products, shares, is_missing], axis=1)
    warn = functools.partial(print, file=sys.stderr)
    sums = secure_sum(sent.reshape(len(ids), -1), warn).reshape(sent.shape[1:])
    with np.errstate(invalid="ignore"):  # Of no client with both classes there is no average.
        found = np.where(sums[..., 2] > 0, np.nan, sums[..., 0] / sums[..., 1])
    return [dict(zip(COLUMNS, row.tolist(), strict=True)) for row in found]
