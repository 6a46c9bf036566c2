"""Mean absolute error in the label's own unit."""

import numpy as np

from motley_tff.metrics.per_client.examples import ClientExamples


def absolute_error(examples: ClientExamples) -> np.ndarray:
    """Returns the mean distance of label and prediction of each candidate, [num_candidates]."""
    errors = np.abs(examples.predictions.astype(np.float64) - examples.labels[:, None])
    return examples.unit * errors.mean(axis=0)
