"""FedRep by hand: b is shared, each silo has its own h; its numbers have a mean."""

import numpy as np
import pytest

from motley_tff.algorithms import FedRep, OptimizerConfig
from motley_tff.backends import base, sequential
from motley_tff.core import random_streams
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
    process = sequential.SequentialBackend().training(task, algorithm)
    rounds = range(1, _ROUNDS + 1)
    plan = [
        base.Round(n, task.train.ids, random_streams.key(0, "local_training", n)) for n in rounds
    ]
    state = process.run(process.initialize(), plan, lambda *_: None)
    shared, heads = 0.0, np.zeros(2)
    for _ in rounds:
        for _ in range(_HEAD_EPOCHS):
            heads += _RATE * (_MEANS - shared - heads)
        bodies = shared + _RATE * (_MEANS - shared - heads)
        shared = np.average(bodies, weights=_SIZES)
    _, (found,) = process.weights(state)
    np.testing.assert_allclose(found.item(), shared, rtol=1e-5)
    own = [layers[0].item() for layers in process.client_states(state).values()]
    np.testing.assert_allclose(own, heads, rtol=1e-5)
    assert algorithm.bytes_per_client == (4, 4)
