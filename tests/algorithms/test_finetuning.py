"""Fine-tuning curves against arithmetic, and what a candidate may depend on."""

import numpy as np
import pytest

from motley_tff.algorithms import FineTuning, optimizers
from motley_tff.backends import base, sequential
from motley_tff.core import random_streams
from tests import toy

pytestmark = pytest.mark.usefixtures("eagerly")

_SGD = optimizers.OptimizerConfig("sgd", 1.0)


def curves(task, params, weights, part="evaluation", client=0):
    """Returns one client's `{metric: [candidates]}`."""
    split = task.valid
    work = params.build(task).work((part,), task.personalization_part("valid"))
    key = random_streams.key(0, "personalization", 0)
    outputs = sequential.SequentialBackend().map_clients(
        base.ClientCall(task, work, weights, split, split.ids, key)
    )
    return list(outputs)[client][1]["curves"][part]


def test_curve_by_hand():
    # Personalization at 2, evaluation at 4, from w = 0 at rate .5: w = 0, 1, 1.5, 1.75.
    task = toy.scalar_task({"a": [0.0]}, {"v": ([2.0], [4.0])})
    params = FineTuning(_SGD, (0.5,), max_epochs=3)
    found = curves(task, params, task.model.initial_weights(0))
    expected = [0.5 * (4 - w) ** 2 for w in (0, 1, 1.5, 1.75)]
    np.testing.assert_allclose(found["half_squared_error"], expected, rtol=1e-6)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-6)


def test_many_rates_by_hand():
    task = toy.scalar_task({"a": [0.0]}, {"v": ([2.0], [0.0])})
    params = FineTuning(_SGD, (0.5, 1.0), max_epochs=2)
    found = curves(task, params, task.model.initial_weights(0))["loss"]
    np.testing.assert_allclose(found, [0.5 * w**2 for w in (0, 1, 1.5, 2, 2)], rtol=1e-6)
    labels = ("0", "lr0.5_epoch1", "lr0.5_epoch2", "lr1.0_epoch1", "lr1.0_epoch2")
    assert params.candidates == labels


def test_a_candidate_does_not_depend_on_other_rates():
    task = toy.classifier_task()
    weights = task.model.initial_weights(0)
    both = curves(task, FineTuning(_SGD, (0.1, 0.3), 2, batch_size=3), weights)["loss"]
    alone = curves(task, FineTuning(_SGD, (0.3,), 2, batch_size=3), weights)["loss"]
    np.testing.assert_allclose(both[3:], alone[1:], rtol=1e-6)
    assert len(set(both)) == 5


def test_a_candidate_does_not_depend_on_what_is_scored_beside():
    task = toy.classifier_silos()
    weights = task.model.initial_weights(0)
    work = FineTuning(_SGD, (0.3,), 2, batch_size=3).build(task).work
    key = random_streams.key(0, "personalization", 0)
    found = []
    for parts in (("valid",), ("valid", "test"), ("test", "valid", "train")):
        outputs = sequential.SequentialBackend().map_clients(
            base.ClientCall(task, work(parts, "train"), weights, task.valid, ["t1"], key)
        )
        found.append(next(iter(outputs))[1]["curves"]["valid"]["loss"])
    np.testing.assert_array_equal(found[1:], [found[0]] * 2)


def test_no_epochs_is_the_baseline_alone():
    task = toy.scalar_task({"a": [0.0]}, {"v": ([2.0], [4.0])})
    params = FineTuning(_SGD, (0.5,), max_epochs=0)
    found = curves(task, params, task.model.initial_weights(0))
    np.testing.assert_allclose(found["loss"], [8.0])


def test_last_layer_leaves_the_rest_alone():
    """With the last layer at zero and frozen features, only the last layer's bias can learn."""
    task = toy.classifier_task()
    weights = list(task.model.initial_weights(0))
    weights[0] = np.zeros_like(weights[0])  # Features are zero whatever the input.
    last = curves(task, FineTuning(_SGD, (0.5,), 3, last_layer=True), weights)["loss"]
    everything = curves(task, FineTuning(_SGD, (0.5,), 3), weights)["loss"]
    assert last[0] == pytest.approx(everything[0])
    assert last[0] == pytest.approx(np.log(3), rel=1e-6)
    assert not np.allclose(last[2:], everything[2:])


def test_silo_parts_are_all_scored():
    task = toy.scalar_task({"a": [2.0, 2.0]}, setting="cross_silo")
    work = FineTuning(_SGD, (0.5,), 1).build(task).work(("valid", "test"), "train")
    key = random_streams.key(0, "personalization", 0)
    backend = sequential.SequentialBackend()
    weights = task.model.initial_weights(0)
    outputs = dict(
        backend.map_clients(base.ClientCall(task, work, weights, task.valid, ["a"], key))
    )
    assert set(outputs["a"]["curves"]) == {"valid", "test"}
    np.testing.assert_allclose(outputs["a"]["curves"]["test"]["loss"], [2.0, 0.5])
    assert outputs["a"]["num_examples"] == {"train": 2, "valid": 2, "test": 2}
