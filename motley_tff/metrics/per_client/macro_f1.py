"""Macro F1: the mean over classes of F1 = 2 TP / (2 TP + FP + FN).

The mean is over the classes that occur among a client's labels or among the model's predictions for
it, as by default in `sklearn.metrics.f1_score(average="macro")`. A class that occurs in neither is
left out; one that is only predicted, or never predicted, has an F1 of 0 in the mean. (The other
usual mean, over the F1 of mean precision and recall, is another number.)
"""

import numpy as np

from motley_tff.metrics.per_client.examples import ClientExamples


def macro_f1(examples: ClientExamples) -> np.ndarray:
    """Returns the macro F1 of each candidate, 0..1, [num_candidates]."""
    labels, predictions = examples.labels[:, None], examples.predictions
    sums, counts = np.zeros(predictions.shape[1]), np.zeros(predictions.shape[1])
    for label in {*examples.labels, *np.unique(predictions)}:
        is_label, is_predicted = labels == label, predictions == label
        # 2 TP + FP + FN: those of the class and those predicted to be of it.
        total = is_label.sum() + is_predicted.sum(axis=0)
        occurs = total > 0
        counts += occurs
        sums[occurs] += 2 * (is_label & is_predicted).sum(axis=0)[occurs] / total[occurs]
    return sums / counts
