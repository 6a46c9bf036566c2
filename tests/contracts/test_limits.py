"""Where one personalization gives back another. Those of algorithms are `registry.LAWS`."""

import numpy as np
import pytest

from motley_tff.algorithms import FineTuning, KnnPer, OptimizerConfig
from tests import toy


@pytest.mark.usefixtures("eagerly")
def test_coefficient_zero_and_epoch_zero_are_the_global_model():
    task = toy.without_dropout(toy.classifier_task())
    weights = task.model.initial_weights(5)
    neighbours, tuned = (
        toy.evaluate(task, one.build(task).work(("evaluation",), "personalization"), weights)
        for one in (KnnPer((3,), (0.5,)), FineTuning(OptimizerConfig("sgd", 0.1), (0.1,), 1, 4))
    )
    for client_id in task.test.ids:
        examples = task.test.fetch(client_id)["evaluation"]
        logits = task.model.predict(weights, examples["x"], False, np.zeros(2, np.int32))
        expected = np.mean(np.argmax(logits, 1) == examples["y"])
        curves = [scores[client_id]["curves"]["evaluation"] for scores in (neighbours, tuned)]
        for curve in curves:
            np.testing.assert_allclose(curve["accuracy"][0], expected, atol=1e-6)
        np.testing.assert_allclose(curves[0]["loss"][0], curves[1]["loss"][0], rtol=1e-5)
