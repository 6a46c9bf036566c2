"""LP-FT by hand, and its limits: fine-tuning of all layers, and of the last."""

import numpy as np
import pytest

from motley_tff.algorithms import FineTuning, LpFt, OptimizerConfig
from tests import toy
from tests.algorithms.test_finetuning import curves

pytestmark = pytest.mark.usefixtures("eagerly")

_MOMENTUM = OptimizerConfig("momentum", 1.0, {"momentum": 0.5})


def test_by_hand():
    # Personalization at 2, evaluation at 4, rate .5: h = 1; then b and h step together to .5, 1.5.
    task = toy.with_pair(toy.scalar_task({"a": [0.0]}, {"v": ([2.0], [4.0])}))
    params = LpFt(OptimizerConfig("sgd", 1.0), (0.5,), 2, probing_epochs=1)
    losses = curves(task, params, task.model.initial_weights(0))["loss"]
    np.testing.assert_allclose(losses, [0.5 * (4 - s) ** 2 for s in (0, 1, 2)], rtol=1e-6)


@pytest.mark.parametrize(("probing_epochs", "last_layer"), [(0, False), (2, True)])
def test_limits(probing_epochs, last_layer):
    task = toy.without_keras(toy.classifier_task(1, (6,)))
    weights = task.model.initial_weights(0)
    limit = FineTuning(_MOMENTUM, (0.1, 0.3), 2, batch_size=3, last_layer=last_layer)
    params = LpFt(_MOMENTUM, (0.1, 0.3), 2, batch_size=3, probing_epochs=probing_epochs)
    losses, expected = (curves(task, p, weights)["loss"] for p in (params, limit))
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert params.candidates == limit.candidates
