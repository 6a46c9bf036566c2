"""The paper's experiment on a mixture of two normal distributions (section 5.1, Figure 1).

Two clients draw from N([1, 0], I) and N([-1, 0], I), generators from N([0, 0], diag(var_x, 1)) with
var_x from 0 to 4. Along the first axis all clients together have variance 2, each alone 1. Without
sampling, FD-all is (sqrt(var_x) - sqrt(2))^2, lowest at var_x = 2, and FD-avg
1 + (sqrt(var_x) - 1)^2, lowest at var_x = 1; KD-all is 3/4 (var_x - 2)^2 and KD-avg the same plus
3.875, both lowest at 2. The paper's "ideal estimator", the clients' own data, has FD-all = 0, but
an FD-avg of 1 + (sqrt(2) - 1)^2, above that of var_x = 1.
"""

import numpy as np

from motley_tff.metrics.generative import client_features

NUM_EXAMPLES = 50_000
VARIANCES = np.linspace(0.0, 4.0, 17)


def draw(
    rng: np.random.Generator, num_examples: int = NUM_EXAMPLES
) -> tuple[client_features.ClientFeatures, dict[float, np.ndarray]]:
    """Returns (clients, generated sets by var_x).

    All generators stretch the same draws, so that what differs between them is their variance.
    """
    first, second, noise = rng.standard_normal((3, num_examples, 2))
    clients = client_features.from_arrays({"1": first + [1.0, 0.0], "2": second - [1.0, 0.0]})
    return clients, {v: noise * [np.sqrt(v), 1.0] for v in VARIANCES.tolist()}
