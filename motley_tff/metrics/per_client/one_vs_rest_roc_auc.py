"""ROC-AUC of one client: of two classes that of the second, of more the mean of each one's.

Each class is compared with the rest, as in `sklearn.metrics.roc_auc_score(multi_class="ovr")`, but
the mean is over the classes that the client has. A client of one class has none. Examples whose
class no training part has are left out, as no score is theirs.
"""

import numpy as np

from motley_tff.metrics import roc_auc as roc_auc_lib
from motley_tff.metrics.per_client.examples import ClientExamples


def is_defined(labels: np.ndarray) -> bool:
    """Returns whether two classes are there to be compared."""
    return len(set(labels[labels >= 0])) > 1


def roc_auc(examples: ClientExamples) -> np.ndarray:
    """Returns the ROC-AUC of each candidate, 0..1, [num_candidates]."""
    assert examples.scores is not None
    is_known = examples.labels >= 0
    labels, scores = examples.labels[is_known], examples.scores[is_known]
    classes = [(1, 0)] if scores.shape[2] == 1 else [(c, int(c)) for c in sorted(set(labels))]
    return np.array([
        np.mean([roc_auc_lib.roc_auc(labels == c, scores[:, i, column]) for c, column in classes])
        for i in range(scores.shape[1])
    ])  # fmt: skip
