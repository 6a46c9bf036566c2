"""A made-up table whose answer is personal: 120 owners with a strong bias of their own."""

import pandas as pd

from motley_tff.core import random_streams

NUM_OWNERS, LEAST_ROWS, MOST_ROWS = 120, 12, 60
# Deviation of an owner's bias; that of what the features say is 1, and so is the noise's scale.
_BIAS = 3.0


def table(seed: int = 0) -> pd.DataFrame:
    """Returns rows of owners: columns `owner`, `yes` (0 or 1), `a`, `b` and `c`.

    A label is 1 where the features' sum, the owner's bias and logistic noise are above 0 together.
    """
    frames = []
    for i in range(NUM_OWNERS):
        rng = random_streams.generator(seed, "synthetic_data", 2, i)
        n = int(rng.integers(LEAST_ROWS, MOST_ROWS + 1))
        x, bias = rng.normal(size=(n, 3)), rng.normal(0.0, _BIAS)
        score = x @ [0.7, -0.5, 0.5] + bias + rng.logistic(0.0, 1.0, n)
        columns = {"owner": f"o{i}", "yes": (score > 0).astype(int)}
        frames.append(pd.DataFrame({**columns, **dict(zip("abc", x.T, strict=True))}))
    return pd.concat(frames, ignore_index=True)
