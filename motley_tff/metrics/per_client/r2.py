"""R2, the coefficient of determination: 1 - sum (y - prediction)^2 / sum (y - mean y)^2.

The mean is the client's own, of the examples that are scored: 0 is as good as that mean, which no
model knows, and a client's R2 has no lower bound. Where all labels are the same it is not defined.
"""

import numpy as np

from motley_tff.metrics.per_client.examples import ClientExamples


def is_defined(labels: np.ndarray) -> bool:
    """Returns whether the labels differ."""
    return bool(np.ptp(labels) > 0)


def r2(examples: ClientExamples) -> np.ndarray:
    """Returns R2 of each candidate, at most 1, [num_candidates]."""
    labels = examples.labels.astype(np.float64)
    residuals = examples.predictions.astype(np.float64) - labels[:, None]
    return 1.0 - (residuals**2).sum(axis=0) / ((labels - labels.mean()) ** 2).sum()
