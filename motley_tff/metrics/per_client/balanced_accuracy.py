"""Balanced accuracy (Brodersen et al. 2010): the mean recall of the classes that a client has.

    1 / |C| * sum over c in C of (examples of c that are right) / (examples of c)

where C are the classes among the client's labels, as in `sklearn.metrics.balanced_accuracy_score`.
A client of one class has that class's recall. A class that no training part has is never right.
"""

import numpy as np

from motley_tff.metrics.per_client.examples import ClientExamples


def balanced_accuracy(examples: ClientExamples) -> np.ndarray:
    """Returns the balanced accuracy of each candidate, 0..1, [num_candidates]."""
    is_right = examples.predictions == examples.labels[:, None]
    recalls = [is_right[examples.labels == label].mean(axis=0) for label in set(examples.labels)]
    return np.mean(recalls, axis=0)
