"""Clients and generators of real examples: who is in them, and what the paper says of them."""

import numpy as np
import pytest

from launch.experiments.generative import controlled
from motley_tff.metrics.generative import client_features, scores


def _clients(rng, size=60, number=4):
    return client_features.from_arrays(
        {f"class {i}": 8 * rng.normal(size=3) + rng.normal(size=(size, 3)) for i in range(number)}
    )


def test_an_anchor_and_its_neighbours():
    rng = np.random.default_rng(0)
    clients = _clients(rng)
    few = controlled.variance_limited(clients, 5, rng)
    assert few.ids == clients.ids
    for part, own in zip(few.parts, clients.parts, strict=True):
        kept, features = few.features[part], clients.features[own]
        distances = np.linalg.norm(features - kept[0], axis=1)
        assert len(kept) == 6
        np.testing.assert_allclose(
            np.linalg.norm(kept - kept[0], axis=1), np.sort(distances)[:6], atol=1e-12
        )
    with pytest.raises(ValueError, match="client class 0 has 60 examples, expected more than 60"):
        controlled.variance_limited(clients, 60, rng)


_IDEAL = "ideal"


@pytest.fixture(scope="module")
def experiment():
    clients, by_variance = controlled.gaussian(np.random.default_rng(0))
    generated = {f"var_x={v:g}": features for v, features in by_variance.items()}
    generated[_IDEAL] = clients.features
    rows = scores.table(clients, generated, num_neighbors=0).rows
    return {row["generated"]: row for row in rows}


def test_the_papers_curves(experiment):
    assert len(experiment) == 17 + 1 and controlled.NUM_EXAMPLES == 50_000
    assert controlled.VARIANCES[[0, 8, 16]].tolist() == [0, 2, 4]
    for variance in controlled.VARIANCES:
        row = experiment[f"var_x={variance:g}"]
        fid_all, fid_avg = (np.sqrt(variance) - np.sqrt(2)) ** 2, 1 + (np.sqrt(variance) - 1) ** 2
        kid_all = 3 / 4 * (variance - 2) ** 2
        # 3/2 from the means, 1/8 of 4^2 + 3 from the third moments.
        kid_avg = kid_all + 3 / 2 + (4**2 + 3) / 8
        expected = {"fid_all": fid_all, "fid_avg": fid_avg, "kid_all": kid_all, "kid_avg": kid_avg}
        for column, value in expected.items():
            assert row[column] == pytest.approx(value, abs=0.1), (column, variance)


def test_the_papers_ideal_estimator_is_not_the_best_by_fid_avg(experiment):
    ideal = experiment[_IDEAL]
    assert ideal["fid_all"] == pytest.approx(0, abs=1e-9)
    assert ideal["kid_biased_all"] == pytest.approx(0, abs=1e-9)
    assert ideal["fid_avg"] == pytest.approx((np.sqrt(2) - 1) ** 2 + 1, abs=0.01)
    assert ideal["fid_avg"] > experiment["var_x=1"]["fid_avg"] + 0.1
