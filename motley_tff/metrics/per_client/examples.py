"""What metrics of one client read: its labels, and what each candidate says of its examples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class ClientExamples(NamedTuple):
    """A client's examples, in order.

    Attributes:
      labels: float [n], classes or numbers; -1 may be a class that no training part has.
      predictions: float [n, num_candidates], the class or number that each candidate predicts.
      scores: float [n, num_candidates, num_scores], a score for each class, or, of two classes,
        one that is higher for the second; None where no metric reads them.
      unit: Of numbers, what 1.0 of a label is in the label's own unit.
    """

    labels: np.ndarray
    predictions: np.ndarray
    scores: np.ndarray | None = None
    unit: float = 1.0

    def between(self, start: int, end: int) -> ClientExamples:
        """Returns the examples from `start` on and before `end`."""
        scores = None if self.scores is None else self.scores[start:end]
        labels, predictions = self.labels[start:end], self.predictions[start:end]
        return ClientExamples(labels, predictions, scores, self.unit)
