"""Where one algorithm gives back another. That backends agree is `test_agreement`'s."""

import numpy as np
import pytest

from motley_tff.algorithms import (
    FedAvg,
    FineTuning,
    HypCluster,
    KnnPer,
    optimizers,
)
from motley_tff.backends import base
from motley_tff.core import random_streams
from tests import toy
from tests.contracts import registry

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture()
def backend():
    with registry.BACKENDS[registry.REFERENCE]() as opened:
        yield opened


@pytest.fixture(scope="module")
def task():
    return toy.without_dropout(toy.classifier_task())


def _sgd(rate):
    return optimizers.OptimizerConfig("sgd", rate)


def _train(backend, task, algorithm):
    process = backend.training(task, algorithm)
    plan = [
        base.Round(n, task.train.ids, random_streams.key(3, "local_training", n)) for n in (1, 2)
    ]
    return toy.run(process, plan).weights


def test_hypcluster_with_one_model_is_fedavg(backend, task):
    params = FedAvg(_sgd(0.1), optimizers.OptimizerConfig("fedavgm", 1.5, {"momentum": 0.9}), 2, 4)
    weights = task.model.initial_weights(5)
    expected = _train(backend, task, params.build(task, weights))
    models, _ = _train(backend, task, toy.like(params, HypCluster).build(task, [weights]))
    assert any(np.any(a != b) for a, b in zip(expected, weights, strict=True))
    for found, one in zip(models, expected, strict=True):
        np.testing.assert_allclose(found[0], one, rtol=1e-5, atol=1e-6)


def test_coefficient_zero_and_epoch_zero_are_the_global_model(backend, task):
    weights = task.model.initial_weights(5)
    curves = []
    for personalization in (
        KnnPer((3,), (0.5,)).build(task),
        FineTuning(_sgd(0.1), (0.1,), 1, 4).build(task),
    ):
        work = personalization.work(("evaluation",), "personalization")
        key = random_streams.key(3, "personalization", 1)
        outputs = backend.map_clients(
            base.ClientCall(task, work, weights, task.test, task.test.ids, key)
        )
        curves.append([metrics["curves"]["evaluation"] for _, metrics in outputs])
    for client_id, neighbours, tuned in zip(task.test.ids, *curves, strict=True):
        examples = task.test.fetch(client_id)["evaluation"]
        logits = task.model.predict(weights, examples["x"], False, np.zeros(2, np.int32))
        expected = np.mean(np.argmax(logits, 1) == examples["y"])
        for curve in (neighbours, tuned):
            np.testing.assert_allclose(curve["accuracy"][0], expected, atol=1e-6)
        np.testing.assert_allclose(neighbours["loss"][0], tuned["loss"][0], rtol=1e-5)
