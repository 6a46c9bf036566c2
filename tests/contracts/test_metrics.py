"""What every registered population metric keeps to."""

import numpy as np
import pytest

from motley_tff import metrics
from motley_tff.metrics import client_values


@pytest.mark.parametrize("name", metrics.POPULATION)
def test_row_order_does_not_matter(name):
    rng = np.random.default_rng(0)
    rows = {
        "client_ids": np.arange(50).astype(str),
        "baseline": rng.random(50),
        "personalized": rng.random(50),
        "num_evaluation_examples": np.ones(50, int),
        "clusters": rng.integers(3, size=50),
        "groups": rng.choice(["en", "es"], 50),
        "delta_se": rng.random(50),
        "num_gained": np.full(50, np.nan),
        "num_lost": np.full(50, np.nan),
    }
    order = rng.permutation(50)
    found, turned = (
        metrics.POPULATION[name](
            client_values.ClientValues(higher_is_better=True, hurt_margin=0.01, **values)
        )
        for values in (rows, {column: values[order] for column, values in rows.items()})
    )
    assert found == pytest.approx(turned, rel=1e-12) and np.isfinite(found)
