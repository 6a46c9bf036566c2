"""Metrics that compare examples with each other, on every backend."""

import numpy as np
import pytest
from sklearn import metrics

from datasets import vehicle
from datasets.kinds import classification
from motley_tff.algorithms import FineTuning, optimizers
from tests import toy
from tests.contracts import registry


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    # The third sensor's test part is larger than an evaluation batch; the last hears one kind.
    sizes = (30, 50, 1000, 40)
    features = [rng.normal(size=(n, 3)) for n in sizes]
    labels = [np.where(x[:, 0] + rng.normal(size=len(x)) > 0, 1.0, -1.0) for x in features[:3]]
    return vehicle.create_task_from_data(features, [*labels, np.ones(40)], seed=1)


@pytest.mark.parametrize("name", ["sequential", pytest.param("vectorized", marks=pytest.mark.slow)])
def test_roc_auc_is_scikit_learns(task, name, request):
    if name == "sequential":
        request.getfixturevalue("eagerly")
    sgd = optimizers.OptimizerConfig("sgd", 1.0)
    parts = ("valid", "test")
    work = FineTuning(sgd, (0.1,), 1, 32).build(task).work(parts, "train")
    weights = (np.array([[0.3], [-0.2], [0.1]], np.float32), np.array([0.4], np.float32))
    with registry.BACKENDS[name]() as backend:
        scores = toy.evaluate(task, work, weights, backend=backend)
    moved = []
    for client_id in task.test.ids:
        for part in parts:
            data = task.test.fetch(client_id)[part]
            margins = data["features"] @ weights[0][:, 0] + weights[1]
            auc = scores[client_id]["curves"][part]["roc_auc"]
            if len(set(data["target"])) == 1:
                assert np.isnan(auc).all()
            else:
                expected = metrics.roc_auc_score(data["target"] > 0, margins)
                assert auc[0] == pytest.approx(expected, abs=1e-6)
                moved.append(auc[1] != auc[0])
    assert any(moved)


def test_ties_count_half():
    labels = np.array([1, -1, 1, -1, 7], np.float32)
    margins = np.array([0.5, 0.5, 1.0, 0.0, 9.0], np.float32)
    is_real = np.array([True, True, True, True, False])
    # Pairs (positive, negative): (.5, .5) half, (.5, 0), (1, .5), (1, 0).
    assert float(classification.area_under_roc(labels, margins, is_real)) == pytest.approx(3.5 / 4)
