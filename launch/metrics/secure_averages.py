"""Averages of clients' ROC-AUC that a server can have without seeing any client's."""

import functools
import sys
from collections.abc import Sequence

import numpy as np

from motley_tff.metrics import roc_auc

COLUMNS = tuple(f"secure_{name}" for name in roc_auc.RocAuc._fields if name != "pooled")


def averages(groups: Sequence[roc_auc.ClientRocAucs]) -> list[dict[str, float]]:
    """Returns each group's averages, by their columns, from one secure sum over all clients.

    A client sends, for every group and average, its weight as a share of the largest, and its
    ROC-AUC times that: the sums' ratio is the average. How large weights can be is agreed on
    before; here it is the largest there is. Pooled values cannot be had in this way.
    """
    if not groups:
        return []
    from motley_tff.backends.tff.secure_sum import secure_sum  # TFF takes seconds to import.

    ids = np.unique(np.concatenate([group.client_ids for group in groups]))
    sent = np.zeros((len(ids), len(groups), len(COLUMNS), 2), np.float64)
    for i, group in enumerate(groups):
        rows = np.searchsorted(ids, group.client_ids)
        for j, weights in enumerate(roc_auc.weights(group).values()):
            shares = weights / max(1, weights.max())
            sent[rows, i, j] = np.stack([shares * np.nan_to_num(group.roc_auc), shares], axis=1)
    warn = functools.partial(print, file=sys.stderr)
    sums = secure_sum(sent.reshape(len(ids), -1), warn).reshape(sent.shape[1:])
    with np.errstate(invalid="ignore"):  # Of no client with both classes there is no average.
        means = sums[..., 0] / sums[..., 1]
    return [dict(zip(COLUMNS, row.tolist(), strict=True)) for row in means]
