"""Fine-tuning's curves by hand, with LP-FT's and proximal ones, their limits, and what a candidate
may depend on.
"""

import numpy as np
import pytest

from motley_tff.algorithms import FineTuning, LpFt, ProximalFineTuning, optimizers
from tests import toy

pytestmark = pytest.mark.usefixtures("eagerly")

_SGD = optimizers.OptimizerConfig("sgd", 1.0)
_MOMENTUM = optimizers.OptimizerConfig("momentum", 1.0, {"momentum": 0.5})


def curves(task, params, weights):
    """Returns the first test client's `{metric: [candidates]}`."""
    work = params.build(task).work(("evaluation",), task.personalization_part("test"))
    (metrics,) = toy.evaluate(task, work, weights, task.test.ids[:1]).values()
    return metrics["curves"]["evaluation"]


@pytest.fixture(scope="module")
def classes():
    """One client of two batches, with dropout."""
    return toy.without_keras(toy.classifier_task(1, (6,)))


@pytest.mark.parametrize(
    ("rates", "epochs", "reached"),
    [
        ((0.5,), 3, [0, 1, 1.5, 1.75]),
        ((0.5, 1.0), 2, [0, 1, 1.5, 2, 2]),
        ((0.5,), 0, [0]),
    ],
)
def test_curves_by_hand(rates, epochs, reached):
    """Personalization at 2, evaluation at 4, from 0."""
    task = toy.scalar_task({"a": [0.0]}, {"v": ([2.0], [4.0])})
    params = FineTuning(_SGD, rates, epochs)
    scores = curves(task, params, task.model.initial_weights(0))
    expected = [0.5 * (4 - w) ** 2 for w in reached]
    np.testing.assert_allclose(scores["half_squared_error"], expected, rtol=1e-6)
    np.testing.assert_allclose(scores["loss"], expected, rtol=1e-6)
    assert len(params.candidates) == len(reached)


def test_labels_of_several_rates():
    labels = ("0", "lr0.5_epoch1", "lr0.5_epoch2", "lr1.0_epoch1", "lr1.0_epoch2")
    assert FineTuning(_SGD, (0.5, 1.0), 2).candidates == labels


def test_lp_ft_by_hand():
    # Personalization at 2, evaluation at 4, rate .5: h = 1; then b and h step together to .5, 1.5.
    task = toy.with_pair(toy.scalar_task({"a": [0.0]}, {"v": ([2.0], [4.0])}))
    params = LpFt(_SGD, (0.5,), 2, probing_epochs=1)
    losses = curves(task, params, task.model.initial_weights(0))["loss"]
    np.testing.assert_allclose(losses, [0.5 * (4 - s) ** 2 for s in (0, 1, 2)], rtol=1e-6)


def test_the_pull_by_hand():
    """w = 0, x = 1, rate .1, strength 2: w = .1, then .1 + .1 * (.9 - 2 * .1) = .17."""
    task = toy.scalar_task({"a": [0.0]}, {"v": ([1.0], [1.0])})
    params = ProximalFineTuning(_SGD, (0.1,), 2, 1, strength=2.0)
    losses = curves(task, params, task.model.initial_weights(0))["loss"]
    np.testing.assert_allclose(losses, [0.5, 0.5 * 0.9**2, 0.5 * 0.83**2], rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "own", "last_layer"),
    [
        (LpFt, {"probing_epochs": 0}, False),
        (LpFt, {"probing_epochs": 2}, True),
        (ProximalFineTuning, {"strength": 0.0}, False),
    ],
)
def test_limits(classes, kind, own, last_layer):
    weights, shared = classes.model.initial_weights(0), (_MOMENTUM, (0.1, 0.3), 2, 3)
    limit = FineTuning(*shared, last_layer=last_layer)
    losses, expected = (curves(classes, p, weights)["loss"] for p in (kind(*shared, **own), limit))
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert kind(*shared, **own).candidates == limit.candidates


def test_a_candidate_does_not_depend_on_other_rates(classes):
    weights = classes.model.initial_weights(0)
    both = curves(classes, FineTuning(_SGD, (0.1, 0.3), 2, batch_size=3), weights)["loss"]
    alone = curves(classes, FineTuning(_SGD, (0.3,), 2, batch_size=3), weights)["loss"]
    np.testing.assert_allclose(both[3:], alone[1:], rtol=1e-6)
    assert len(set(both)) == 5


def test_a_candidate_does_not_depend_on_what_is_scored_beside():
    silo = toy.without_keras(toy.classifier_silos((6,)))
    weights = silo.model.initial_weights(0)
    work = FineTuning(_SGD, (0.3,), 2, batch_size=3).build(silo).work
    losses = []
    for parts in (("valid",), ("test", "valid", "train")):
        (metrics,) = toy.evaluate(silo, work(parts, "train"), weights).values()
        losses.append(metrics["curves"]["valid"]["loss"])
    np.testing.assert_array_equal(*losses)


def test_dropout_is_drawn_where_a_model_trains_and_not_where_it_is_scored(classes):
    weights, params = classes.model.initial_weights(0), FineTuning(_SGD, (0.3,), 1)
    tuned, plain = (
        curves(task, params, weights)["loss"] for task in (classes, toy.without_dropout(classes))
    )
    assert tuned[0] == pytest.approx(plain[0], rel=1e-6) and tuned[1] != pytest.approx(plain[1])


def test_last_layer_leaves_the_rest_alone(classes):
    """With the last layer at zero and frozen features, only the last layer's bias can learn."""
    weights = list(classes.model.initial_weights(0))
    weights[0] = np.zeros_like(weights[0])  # Features are zero whatever the input.
    last = curves(classes, FineTuning(_SGD, (0.5,), 2, last_layer=True), weights)["loss"]
    everything = curves(classes, FineTuning(_SGD, (0.5,), 2), weights)["loss"]
    assert last[0] == everything[0] == pytest.approx(np.log(3), rel=1e-6)
    assert not np.allclose(last[2:], everything[2:])


def test_silo_parts_are_all_scored():
    task = toy.scalar_task({"a": [2.0, 2.0]}, setting="cross_silo")
    work = FineTuning(_SGD, (0.5,), 1).build(task).work(("valid", "test"), "train")
    metrics = toy.evaluate(task, work, task.model.initial_weights(0))["a"]
    assert set(metrics["curves"]) == {"valid", "test"}
    np.testing.assert_allclose(metrics["curves"]["test"]["loss"], [2.0, 0.5])
    assert metrics["num_examples"] == {"train": 2, "valid": 2, "test": 2}
