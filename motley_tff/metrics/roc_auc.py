"""Federated ROC-AUC: of all examples pooled, and as averages over clients.

A client's ROC-AUC is the chance that a positive example of its scores above a negative one, ties
counting half (Mann and Whitney 1947). "ROC-AUC in the federated learning mode" (polypoly, 2022)
asks when an average over clients equals the ROC-AUC of the pooled examples:

| score distributions that are the same for all clients | average that equals the pooled value |
|---|---|
| of the negatives | weighted by positives: sum_m P_m A_m / sum_m P_m |
| of the positives | weighted by negatives: sum_m N_m A_m / sum_m N_m |
| both | any |
| neither | none |

`homogeneity` tests both. Weighting by pairs, P_m N_m, gives the chance for a pair drawn from one
client. Clients of one class only have no ROC-AUC: averages leave them out, the pooled value does
not. Both leave out clients of whom a score is not finite, whose model diverged.
"""

import warnings
from typing import NamedTuple

import numpy as np

_ALPHA = 0.05


class RocAuc(NamedTuple):
    """Pooled and averaged ROC-AUC, 0..1, not-a-number where no client or pool has both classes."""

    pooled: float
    mean_over_clients: float
    weighted_by_positives: float
    weighted_by_negatives: float
    weighted_by_pairs: float


class ClientRocAucs(NamedTuple):
    """Each client's own ROC-AUC, not-a-number with one class, by sorted ids, [num_clients] each."""

    client_ids: np.ndarray
    roc_auc: np.ndarray
    num_positives: np.ndarray
    num_negatives: np.ndarray


class Homogeneity(NamedTuple):
    """Whether scores of one class are distributed alike over clients.

    The normalized k-sample Anderson-Darling statistic is about 0 (with standard deviation 1) where
    they are, larger where not; the p-value goes as far as its table does: 0.001 to 0.25.
    """

    statistic: float
    p_value: float

    @property
    def is_alike(self) -> bool | None:
        """Whether the test finds no difference at 5%; None where there is nothing to compare."""
        return None if np.isnan(self.p_value) else self.p_value >= _ALPHA


def roc_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Returns the ROC-AUC of some examples, not-a-number with one class or scores not finite.

    Labels are 0 or 1, scores higher for positives, [num_examples] each.
    """
    from scipy import stats  # Takes 0.4 s.

    positive = labels == 1
    pairs = int(positive.sum()) * int((~positive).sum())
    if not pairs or not np.isfinite(scores).all():
        return float("nan")
    ranks = stats.rankdata(scores)[positive]
    # The ranks of p positives below all negatives add up to p (p + 1) / 2.
    return float((ranks.sum() - len(ranks) * (len(ranks) + 1) / 2) / pairs)


def of_clients(client_ids: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> ClientRocAucs:
    """Returns the ROC-AUC of every client whose scores are finite; ids say whose each example is,
    the rest as of `roc_auc`.
    """
    client_ids, labels, scores = of_finite(client_ids, labels, scores)
    ids, parts = _parts(client_ids)
    positives = np.array([np.sum(labels[part] == 1) for part in parts], np.int64)
    sizes = np.array([len(part) for part in parts], np.int64)
    roc_aucs = np.array([roc_auc(labels[part], scores[part]) for part in parts])
    return ClientRocAucs(ids, roc_aucs, positives, sizes - positives)


def summarize(client_ids: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> RocAuc:
    """Returns the pooled ROC-AUC and the averages; arguments as of `of_clients`."""
    clients = of_clients(client_ids, labels, scores)
    averages = {name: _average(clients, counts) for name, counts in weights(clients).items()}
    _, labels, scores = of_finite(client_ids, labels, scores)
    return RocAuc(roc_auc(labels, scores), **averages)


def of_finite(
    client_ids: np.ndarray, labels: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the examples of clients whose scores are all finite; arguments as of `of_clients`."""
    is_kept = ~np.isin(client_ids, client_ids[~np.isfinite(scores)])
    return client_ids[is_kept], labels[is_kept], scores[is_kept]


def weights(clients: ClientRocAucs) -> dict[str, np.ndarray]:
    """Returns what clients count in each average, int64 [num_clients]: with one class nothing."""
    positives, negatives = clients.num_positives, clients.num_negatives
    pairs = positives * negatives
    has_both = pairs > 0
    return {
        "mean_over_clients": has_both.astype(np.int64),
        "weighted_by_positives": positives * has_both,
        "weighted_by_negatives": negatives * has_both,
        "weighted_by_pairs": pairs,
    }


def _average(clients: ClientRocAucs, weights_of_clients: np.ndarray) -> float:
    counts = weights_of_clients > 0
    if not counts.any():
        return float("nan")
    return float(np.average(clients.roc_auc[counts], weights=weights_of_clients[counts]))


def homogeneity(client_ids: np.ndarray, scores: np.ndarray) -> Homogeneity:
    """Tests whether scores are distributed alike over clients.

    By the k-sample Anderson-Darling test (Scholz and Stephens 1987), with midranks: equality of
    averages rests on whole distributions being the same, and Kruskal-Wallis would see a shift
    only, Kolmogorov-Smirnov two clients only. All examples, [num_examples], are of one class.
    """
    from scipy import stats  # Takes 0.4 s.

    _, parts = _parts(client_ids)
    # The statistic's variance takes four examples, and clients with one each always look alike.
    tells = len(parts) > 1 and len(scores) > 3 and len(scores) > len(parts)
    if not tells or len(np.unique(scores)) < 2 or not np.isfinite(scores).all():
        return Homogeneity(float("nan"), float("nan"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Where the table of p-values ends.
        result = stats.anderson_ksamp([scores[part] for part in parts])
    return Homogeneity(float(result.statistic), float(result.significance_level))


def homogeneities(
    client_ids: np.ndarray, labels: np.ndarray, scores: np.ndarray
) -> tuple[Homogeneity, Homogeneity]:
    """Returns the tests of the negatives and of the positives; arguments as of `of_clients`."""
    client_ids, labels, scores = of_finite(client_ids, labels, scores)
    negatives, positives = (labels != 1, labels == 1)
    return (
        homogeneity(client_ids[negatives], scores[negatives]),
        homogeneity(client_ids[positives], scores[positives]),
    )


def _parts(client_ids: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the sorted ids and where each one's examples are."""
    ids, inverse, sizes = np.unique(client_ids, return_inverse=True, return_counts=True)
    if not len(ids):
        return ids, []
    return ids, np.split(np.argsort(inverse, kind="stable"), np.cumsum(sizes)[:-1])


def equals_pooled(clients: ClientRocAucs, negatives: Homogeneity, positives: Homogeneity) -> str:
    """Returns which average equals the pooled ROC-AUC, as far as tests of each class can tell.

    An average cannot stand for examples of clients that it leaves out: one weighted by positives
    needs all clients with positives to have negatives, too. It is `any`, `weighted_by_positives`,
    `weighted_by_negatives`, `none`, or "" if that is not known.
    """
    if negatives.is_alike and positives.is_alike:
        return "any"
    if negatives.is_alike and clients.num_negatives[clients.num_positives > 0].all():
        return "weighted_by_positives"
    if positives.is_alike and clients.num_positives[clients.num_negatives > 0].all():
        return "weighted_by_negatives"
    return "" if None in (negatives.is_alike, positives.is_alike) else "none"
