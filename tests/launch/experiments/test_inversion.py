"""What an update tells of an example: solved for, and searched for."""

import numpy as np
import pytest

from datasets.kinds import classification
from datasets.models import linear
from launch.experiments.fedeval import inversion

_SHAPE = (8, 8, 1)


def _picture():
    return np.random.default_rng(0).uniform(size=_SHAPE).astype(np.float32)


def _model(architecture, num_classes=3):
    model = classification.image_model(architecture, num_classes, _SHAPE)

    def predict(weights, x):
        return model.predict(weights, x, False, None)

    return predict, model.initial_weights(0)


@pytest.mark.parametrize("label", [0, 2])
def test_a_linear_models_example_is_solved_for(label):
    predict, weights = _model(linear.Linear)
    sent = inversion.update(predict, weights, _picture(), label, 0.1, 1)
    found = inversion.invert_linear(*sent)
    assert found.label == label
    np.testing.assert_allclose(found.x.reshape(_SHAPE), _picture(), atol=1e-4)
