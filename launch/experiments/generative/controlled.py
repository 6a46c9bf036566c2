"""Clients and generators that need no training (Wang et al. 2023, section 5).

*Gaussian* (5.1, Figure 1): two clients draw from N([1, 0], I) and N([-1, 0], I), generators from
N([0, 0], diag(var_x, 1)) with var_x from 0 to 4. Along the first axis all clients together have
variance 2, each alone has 1. Without sampling FD-all is (sqrt(var_x) - sqrt(2))^2, lowest at var_x
= 2, and FD-avg is 1 + (sqrt(var_x) - 1)^2, lowest at var_x = 1; KD-all is 3/4 (var_x - 2)^2, and
KD-avg is the same plus 3.875. The paper's "ideal estimator", the clients' own data, has FD-all = 0
and an FD-avg of 1 + (sqrt(2) - 1)^2, above that of var_x = 1.

The others are made of real examples in feature space, of clients of one class each:

- *variance-limited* clients keep one example, the anchor, and its K nearest neighbours (5.3);
- *nearest*: a generator that gives back an anchor's M nearest neighbours among all examples, for
  the paper's 15 sizes M, which are shares of CIFAR-10's 50,000 (5.3);
- *scaled*: all examples, moved towards or away from their mean: covariances times 1/16 to 4;
- *classes*: what gives back the examples of one client, or of two (Figure 3, left);
- *extremes*: one client's examples, perfect but of one class (the paper's "plane", 5.2), all
  clients' examples, and these with half the covariance.
"""

import itertools

import numpy as np

from motley_tff.metrics.generative import blocks, client_features

MIXTURE, HALF = "mixture", "mixture of half the covariance"
_OF, _SIZES = 50_000, (
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000, 40_000,
    45_000, 50_000,
)  # fmt: skip
NUM_EXAMPLES = 50_000
VARIANCES = np.linspace(0.0, 4.0, 17)
_SCALES = tuple(float(2.0**power) for power in np.linspace(-4, 2, 15))


def gaussian(
    rng: np.random.Generator, num_examples: int = NUM_EXAMPLES
) -> tuple[client_features.ClientFeatures, dict[float, np.ndarray]]:
    """Returns (clients, generated sets by var_x). All generators stretch the same draws, so that
    their variance is what differs between them.
    """
    first, second, noise = rng.standard_normal((3, num_examples, 2))
    clients = client_features.from_arrays({"1": first + [1.0, 0.0], "2": second - [1.0, 0.0]})
    return clients, {v: noise * [np.sqrt(v), 1.0] for v in VARIANCES.tolist()}


def variance_limited(
    clients: client_features.ClientFeatures, num_kept: int, rng: np.random.Generator
) -> client_features.ClientFeatures:
    """Returns clients of an anchor each, drawn, and its `num_kept` nearest neighbours of their own.

    ValueError if a client has no more examples than that.
    """
    kept = {}
    for name, part in zip(clients.ids, clients.parts, strict=True):
        features = clients.features[part]
        if len(features) <= num_kept:
            raise ValueError(
                f"client {name} has {len(features)} examples, expected more than {num_kept}"
            )
        kept[name] = features[_nearest(features, int(rng.integers(len(features))))[: num_kept + 1]]
    return client_features.from_arrays(kept)


def nearest(features: np.ndarray, anchor: int) -> dict[int, np.ndarray]:
    """Returns an anchor's nearest neighbours among examples [n, width], itself the first, by how
    many: the paper's sizes.
    """
    order = _nearest(features, anchor)
    sizes = dict.fromkeys(max(2, round(size * len(features) / _OF)) for size in _SIZES)
    return {size: features[order[:size]] for size in sizes}


def scaled(features: np.ndarray) -> dict[float, np.ndarray]:
    """Returns examples by what the covariance of `features` [n, width] is times: 1/16 to 4."""
    features = _wide(features)
    mean = features.mean(axis=0)
    return {scale: mean + np.sqrt(scale) * (features - mean) for scale in _SCALES}


def classes(clients: client_features.ClientFeatures) -> dict[str, np.ndarray]:
    """Returns each client's examples, and those of each pair; ValueError if two of these have one
    name.
    """
    own = {
        name: clients.features[part] for name, part in zip(clients.ids, clients.parts, strict=True)
    }
    sets = dict(own)
    for a, b in itertools.combinations(own, 2):
        if (name := f"{a} + {b}") in sets:
            raise ValueError(f"two sets of clients would be named {name}; rename a client")
        sets[name] = np.concatenate([own[a], own[b]])
    return sets


def extremes(clients: client_features.ClientFeatures, client: str) -> dict[str, np.ndarray]:
    """Returns one client's examples, all, and all with half the covariance; KeyError if there is no
    such client, ValueError if it is named as another set is.
    """
    if client in (MIXTURE, HALF):
        raise ValueError(f"client {client} is named as the set of all clients is; rename it")
    parts = dict(zip(clients.ids, clients.parts, strict=True))
    features = _wide(clients.features)
    mean = features.mean(axis=0)
    return {
        client: clients.features[parts[client]],
        MIXTURE: clients.features,
        HALF: mean + np.sqrt(0.5) * (features - mean),
    }


def _nearest(features: np.ndarray, anchor: int) -> np.ndarray:
    """Returns rows by their distance from one of them, which comes first."""
    centre = features[anchor].astype(np.float64)
    distances = np.concatenate(
        [np.sum(apart**2, axis=1) for _, apart in blocks.of_rows(features, centre)]
    )
    distances[anchor] = -1.0
    return np.argsort(distances, kind="stable")


def _wide(features: np.ndarray) -> np.ndarray:
    """Returns features that a mean can be taken from: whole numbers wrap, halves overflow."""
    return features if features.dtype in (np.float32, np.float64) else features.astype(np.float64)
