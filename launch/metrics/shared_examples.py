"""Two runs on the same examples: whose model has which of them right, from exported scores."""

from collections.abc import Sequence

import numpy as np

from motley_tff.metrics.true_effects import Evidence
from motley_tff.tables import client_tables
from motley_tff.tables.client_tables import Evaluation


def evidence(first: Evaluation, run: Evaluation, client_ids: Sequence[str]) -> Evidence | None:
    """Returns how many of the clients' examples a run has right and the first one wrong, and the
    reverse; None if one exported no scores, or they are not of the same examples.
    """
    if first.metric != "accuracy" or not (first.scores_path and run.scores_path):
        return None
    before, after = (_right(e) for e in (first, run))
    counts = []
    for client_id in client_ids:
        old, new = before.get(client_id), after.get(client_id)
        if old is None or new is None or len(old) != len(new):
            return None
        counts.append((np.sum(new & ~old), np.sum(old & ~new), len(old)))
    gained, lost, sizes = np.array(counts, np.int64).reshape(-1, 3).T
    delta = (gained - lost) / np.maximum(sizes, 1)
    return Evidence(delta, np.full(len(delta), np.nan), sizes, gained, lost)


def _right(evaluation: Evaluation) -> dict[str, np.ndarray]:
    """Returns which of each client's examples its own model has right, `{client id: bool [n]}`."""
    assert evaluation.scores_path is not None
    table = client_tables.read_scores(evaluation.scores_path)
    for name in ("round", "split"):
        if name in evaluation.keys:
            table = table[table[name] == evaluation.keys[name]]
    right = {}
    for client_id, rows in table.groupby("client_id", sort=False):
        by_class = rows.groupby("class", sort=False)
        labels, scores = (
            np.stack([of_class[n].to_numpy(np.float64) for _, of_class in by_class])
            for n in ("label", "personalized_score")
        )
        if len(labels) == 1:  # The one score of two classes.
            right[str(client_id)] = (scores[0] > 0) == (labels[0] > 0)
        else:
            best = np.argmax(np.nan_to_num(scores, nan=-np.inf), axis=0)
            right[str(client_id)] = labels[best, np.arange(labels.shape[1])] > 0
    return right
