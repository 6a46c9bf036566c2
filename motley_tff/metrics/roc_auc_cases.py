"""The four cases of "ROC-AUC in the federated learning mode" (polypoly, 2022), drawn and exact.

Four devices have 500 negatives and 500 positives each. Scores of negatives are normal with mean -16
and deviation 20, of positives with mean 16 and deviation 10: pooled, the ROC-AUC is
Phi(32 / sqrt(500)) = 0.9238. The article's 0.919 is one draw; so are its devices' values.

| case | negatives | positives | what equals the pooled value |
|---|---|---|---|
| 1 | alike | alike | each device's own |
| 2.1 | alike | sorted | the mean weighted by positives |
| 2.2 | sorted | alike | the mean weighted by negatives (the article's last lines say positives) |
| 2.3 | sorted | sorted | nothing: the mean is 0.985 |

*Sorted* deals the same scores in order: the lowest quarter to the first device, and so on. In the
limit of many examples a device has a quarter of the distribution.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

NUM_DEVICES, NUM_EACH = 4, 500
_NEGATIVES, _POSITIVES = (-16.0, 20.0), (16.0, 10.0)
# Which class is dealt in order: (negatives, positives).
CASES: Mapping[str, tuple[bool, bool]] = {
    "1": (False, False), "2.1": (False, True), "2.2": (True, False), "2.3": (True, True),
}  # fmt: skip
_NODES = 200_000


class Scores(NamedTuple):
    """Examples of all devices, [num_examples] each: as `roc_auc.summarize` takes them."""

    client_ids: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


class Exact(NamedTuple):
    """Without sampling: pooled, and of each device; as many of both, so all averages are equal."""

    pooled: float
    devices: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over devices."""
        return float(np.mean(self.devices))


def draw(rng: np.random.Generator) -> dict[str, Scores]:
    """Returns the scores of every case, the same ones, dealt in four ways."""
    num = NUM_DEVICES * NUM_EACH
    classes = [rng.normal(*of, num) for of in (_NEGATIVES, _POSITIVES)]
    devices = np.array([f"device {m + 1}" for m in range(NUM_DEVICES)])
    ids = np.tile(np.repeat(devices, NUM_EACH), 2)
    labels = np.repeat([0, 1], num)
    return {
        case: Scores(ids, labels, np.concatenate([
            np.sort(scores) if is_sorted else scores
            for scores, is_sorted in zip(classes, how, strict=True)
        ]))
        for case, how in CASES.items()
    }  # fmt: skip


def exact(case: str) -> Exact:
    """Returns a case's ROC-AUC in the limit of many examples, by quadrature, to 1e-7."""
    from scipy import stats  # Takes 0.4 s.

    sorted_negatives, sorted_positives = CASES[case]
    negative = stats.norm(*_NEGATIVES)
    quantiles = (np.arange(_NODES) + 0.5) / _NODES
    # How many of all negatives are below a positive of each quantile.
    below = negative.cdf(stats.norm(*_POSITIVES).ppf(quantiles))
    devices = []
    for m in range(NUM_DEVICES):
        mine = below
        if sorted_negatives:
            mine = np.clip(NUM_DEVICES * below - m, 0.0, 1.0)
        if sorted_positives:
            mine = np.split(mine, NUM_DEVICES)[m]
        devices.append(float(mine.mean()))
    return Exact(float(below.mean()), tuple(devices))
