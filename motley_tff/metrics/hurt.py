"""% clients hurt (Motley section 3.1): clients strictly worse off with their personalized model.

    100 * |{i : personalized_i < baseline_i}| / |clients|

with the inequality turned for error metrics. A client that keeps its value is not hurt.
"""

import numpy as np

from motley_tff.metrics import client_values


def pct_clients_hurt(values: client_values.ClientValues) -> float:
    """Returns the percentage of clients hurt, 0..100."""
    return 100.0 * float(np.mean(values.is_hurt))
