"""What a group's settings decide of each run by itself; `test_sweep` has whole groups."""

import types

import pytest

from launch.sweeps import train_group
from motley_tff.algorithms import Local, OptimizerConfig
from motley_tff.experiment.config import RunConfig
from tests import toy


@pytest.mark.usefixtures("eagerly")
def test_a_personal_rate_is_that_of_the_settings_own_clients():
    task = toy.scalar_task({"a": [1.0], "b": [3.0]}, setting="cross_silo")
    group = object.__new__(train_group.GroupTraining)
    group._flags = types.SimpleNamespace(run=RunConfig(Local(OptimizerConfig("sgd", 0.1))))
    built = group._build(task, task.model.initial_weights(0), {"client_learning_rate": 0.5})
    # From 0, by half of the way to each silo's number.
    states = toy.train(task, built, 1).client_states
    assert {i: weights[0].item() for i, weights in states.items()} == {"a": 0.5, "b": 1.5}
