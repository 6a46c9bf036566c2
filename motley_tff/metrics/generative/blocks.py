"""Going over many rows a block at a time, as float64 whatever they are stored as."""

from collections.abc import Iterator

import numpy as np

# Rows of a block: two of 2,048 features take 33 MB each, what is between them as much at most.
NUM_ROWS = 2048


def of_rows(
    features: np.ndarray, centre: np.ndarray | float = 0.0
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields (which rows, these minus `centre`) of `features` [num_examples, ...], in order."""
    for start in range(0, len(features), NUM_ROWS):
        rows = slice(start, min(start + NUM_ROWS, len(features)))
        yield rows, features[rows].astype(np.float64) - centre
