"""FedRep by hand: b is shared, each silo has its own h; its numbers have a mean."""

import numpy as np
import pytest

from motley_tff.algorithms import FedRep, OptimizerConfig
from tests import toy

pytestmark = pytest.mark.usefixtures("eagerly")

_MEANS, _SIZES, _RATE, _ROUNDS, _HEAD_EPOCHS = np.array([2.0, -1.0]), (2, 1), 0.2, 3, 2


def test_by_hand():
    task = toy.with_pair(toy.scalar_task({"a": [1.0, 3.0], "b": [-1.0]}, setting="cross_silo"))
    fedrep = FedRep(
        OptimizerConfig("sgd", 0.3),
        OptimizerConfig("sgd", 1.0),
        personal_optimizer=OptimizerConfig("sgd", _RATE),
        head_epochs=_HEAD_EPOCHS,
    )
    algorithm = fedrep.build(task, task.model.initial_weights(0))
    run = toy.train(task, algorithm, _ROUNDS)
    shared, heads = 0.0, np.zeros(2)
    for _ in range(_ROUNDS):
        for _ in range(_HEAD_EPOCHS):
            heads += _RATE * (_MEANS - shared - heads)
        bodies = shared + _RATE * (_MEANS - shared - heads)
        shared = np.average(bodies, weights=_SIZES)
    _, (trained,) = run.weights
    np.testing.assert_allclose(trained.item(), shared, rtol=1e-5)
    own = [layers[0].item() for layers in run.client_states.values()]
    np.testing.assert_allclose(own, heads, rtol=1e-5)
    assert algorithm.bytes_per_client == (4, 4)
