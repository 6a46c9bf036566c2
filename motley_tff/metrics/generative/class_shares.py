"""Which classes a generated set has, as a classifier sees it: whether a generator lost some.

The entropy of shares is log(num_classes) where all classes are as frequent, and 0 of one class.
"""

import numpy as np

COLUMNS = ("num_classes", "label_entropy", "smallest_class_share")


def row(predicted: np.ndarray) -> dict[str, int | float]:
    """Returns `COLUMNS` of examples, entropy in nats, of a float array [num_examples, num_classes]
    that has 1 in the column of each example's class and 0 in the others.
    """
    shares = predicted.mean(axis=0)
    present = shares[shares > 0]
    entropy = float(-(present * np.log(present)).sum())
    values = (predicted.shape[1], abs(entropy), float(shares.min()))
    return dict(zip(COLUMNS, values, strict=True))
