"""The article's four cases: what they are in the limit, and draws of them."""

import math

import numpy as np
import pytest

from motley_tff.metrics import roc_auc, roc_auc_cases


def test_exact_values():
    pooled = 0.5 * math.erfc(-32 / math.sqrt(500) / math.sqrt(2))
    every = {case: roc_auc_cases.exact(case) for case in roc_auc_cases.CASES}
    for exact in every.values():
        assert exact.pooled == pytest.approx(pooled, abs=1e-7)
    assert every["1"].devices == pytest.approx([pooled] * 4, abs=1e-7)
    for case in ("2.1", "2.2"):  # Quarters of one class add up to all of it.
        assert every[case].mean == pytest.approx(pooled, abs=1e-7)
        assert max(every[case].devices) - min(every[case].devices) > 0.1
    assert every["2.3"].mean == pytest.approx(0.9854, abs=1e-4)
    # Devices with low scores are easy where negatives are sorted, hard where positives are.
    assert list(every["2.1"].devices) == sorted(every["2.1"].devices)
    assert list(every["2.2"].devices) == sorted(every["2.2"].devices, reverse=True)


def test_exact_values_are_those_of_many_examples():
    rng = np.random.default_rng(0)
    num = 400_000
    negatives, positives = np.sort(rng.normal(-16, 20, num)), np.sort(rng.normal(16, 10, num))
    labels = np.repeat([0, 1], num // 4)
    quarters = [np.split(scores, 4) for scores in (negatives, positives)]
    devices = [
        roc_auc.roc_auc(labels, np.concatenate([a, b])) for a, b in zip(*quarters, strict=True)
    ]
    assert devices == pytest.approx(roc_auc_cases.exact("2.3").devices, abs=2e-3)


def test_draws_deal_the_same_scores():
    drawn = roc_auc_cases.draw(np.random.default_rng(3))
    assert list(drawn) == ["1", "2.1", "2.2", "2.3"]
    whole = np.sort(drawn["1"].scores)
    for case, (ids, labels, scores) in drawn.items():
        np.testing.assert_array_equal(np.sort(scores), whole)
        for device in np.unique(ids):
            own = labels[ids == device]
            assert (own == 0).sum() == (own == 1).sum() == 500
        for label, is_sorted in enumerate(roc_auc_cases.CASES[case]):
            values = scores[labels == label]
            assert (np.diff(values) >= 0).all() == is_sorted
