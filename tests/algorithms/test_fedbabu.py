"""FedBABU by hand: b is the body, h the head; clients' means are 2 (two numbers) and -1 (one)."""

import numpy as np
import pytest

from motley_tff.algorithms import FedBabu, OptimizerConfig
from tests import toy
from tests.errors import refused

pytestmark = pytest.mark.usefixtures("eagerly")

_SCALAR = toy.scalar_task({"a": [1.0, 3.0], "b": [-1.0]})
_FEDBABU = FedBabu(OptimizerConfig("sgd", 0.5), OptimizerConfig("sgd", 1.0))


def test_by_hand():
    task = toy.with_pair(_SCALAR)
    algorithm = _FEDBABU.build(task, task.model.initial_weights(0))
    assert algorithm.bytes_per_client == (4, 4)  # Of the body alone.
    body, head = toy.train(task, algorithm, rounds=3).weights
    # The mean of the clients' means is 1, and half the way to it is gone each round.
    np.testing.assert_allclose(body.item(), 1 - 0.5**3, rtol=1e-6)
    assert head.item() == 0.0


def test_a_model_of_one_layer_is_refused():
    with refused("algorithm", "fedbabu", "layers below"):
        _FEDBABU.build(_SCALAR, _SCALAR.model.initial_weights(0))
