"""kNN-Per against scikit-learn and arithmetic, for every kind of task."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics, neighbors

from datasets import school, vehicle
from motley_tff.algorithms import KnnPer, knn_per
from motley_tff.backends import base
from motley_tff.core import clients as clients_lib, random_streams
from tests import toy
from tests.contracts import registry

PARAMS = KnnPer((3, 10), (0.25, 1.0))
BACKENDS = [name for name in registry.BACKENDS if name != "parallel"]


def _scores(task, backend, weights, params, parts, personalization_part):
    work = params.build(task).work(parts, personalization_part)
    key = random_streams.key(0, "personalization", 1)
    with registry.BACKENDS[backend]() as opened:
        return dict(
            opened.map_clients(base.ClientCall(task, work, weights, task.test, task.test.ids, key))
        )


def _linear_data(seed, kind):
    rng = np.random.default_rng(seed)
    # The first has fewer training examples than neighbours are asked for; all have doubles.
    features = [np.round(rng.normal(size=(n, 3)), 1) for n in (8, 40, 150)]
    for x in features:
        x[1] = x[0]
    targets = [x @ [0.5, -0.2, 0.1] + 0.1 * rng.normal(size=len(x)) for x in features]
    if kind == "svm":
        targets = [np.where(y > 0, 1.0, -1.0) for y in targets]
    return features, targets


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_svm_is_scikit_learns_classifier(backend):
    task = vehicle.create_task_from_data(*_linear_data(0, "svm"), seed=1)
    weights = (np.array([[0.3], [-0.2], [0.1]], np.float32), np.array([0.4], np.float32))
    found = _scores(task, backend, weights, PARAMS, ("test",), "train")
    for client_id in task.test.ids:
        parts = task.test.fetch(client_id)
        train, test = parts["train"], parts["test"]
        margins = test["features"] @ weights[0][:, 0] + weights[1]
        expected = [np.mean(np.where(margins >= 0, 1, -1) == test["target"])]
        areas = [_area(test["target"], margins)]
        for k in PARAMS.num_neighbors:
            model = neighbors.KNeighborsRegressor(min(k, len(train["target"])), weights="distance")
            said = model.fit(train["features"], train["target"]).predict(test["features"])
            for c in PARAMS.coefficients:
                score = c * said + (1 - c) * margins
                expected.append(np.mean(np.where(score >= 0, 1, -1) == test["target"]))
                areas.append(_area(test["target"], score))
        curves = found[client_id]["curves"]["test"]
        np.testing.assert_allclose(curves["accuracy"], expected, atol=1e-6)
        np.testing.assert_allclose(curves["roc_auc"], areas, atol=1e-6)


def _area(labels, scores):
    if len(np.unique(labels)) < 2:
        return np.nan
    # In float32, as scores are: what is equal there is a tie.
    return metrics.roc_auc_score(labels, scores.astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_regression_is_scikit_learns(backend):
    task = school.create_task_from_data(*_linear_data(1, "regression"), seed=1)
    weights = (np.array([[0.3], [-0.2], [0.1]], np.float32), np.array([0.4], np.float32))
    found = _scores(task, backend, weights, PARAMS, ("valid", "test"), "train")
    for client_id in task.test.ids:
        parts = task.test.fetch(client_id)
        train, test = parts["train"], parts["test"]
        model = test["features"] @ weights[0][:, 0] + weights[1]
        expected = [np.mean(0.5 * (model - test["target"]) ** 2)]
        for k in PARAMS.num_neighbors:
            knn = neighbors.KNeighborsRegressor(min(k, len(train["target"])), weights="distance")
            said = knn.fit(train["features"], train["target"]).predict(test["features"])
            for c in PARAMS.coefficients:
                score = c * said + (1 - c) * model
                expected.append(np.mean(0.5 * (score - test["target"]) ** 2))
        np.testing.assert_allclose(
            found[client_id]["curves"]["test"]["loss"], expected, rtol=2e-5, atol=1e-7
        )


def test_classification_by_hand():
    """Distances 1 and 2 to a label each, far from everything else, and a model without opinion."""
    memory = knn_per.Memory(
        tf.constant([[0.0], [3.0], [500.0]]), tf.constant([1, 0, 2]), tf.constant([1.0, 1.0, 0.0]),
        tf.constant(2),
    )  # fmt: skip
    found = knn_per.nearest(memory, tf.constant([[1.0]]), 2, exact=True)
    np.testing.assert_allclose(found.distances, [[1.0, 2.0]])
    mix = knn_per._label_mixer(found, tf.zeros([1, 3]), tf.constant([False]))
    near = 1 / (1 + np.exp(-1.0))
    expected = 0.5 * np.array([1 - near, near, 0]) + 0.5 / 3
    np.testing.assert_allclose(np.exp(mix(0.5)[0]), expected, rtol=1e-5)


def test_far_neighbours_are_no_zero_over_zero():
    memory = knn_per.Memory(
        tf.constant([[1e4], [1.1e4]]), tf.constant([1, 0]), tf.ones([2]), tf.constant(2)
    )
    found = knn_per.nearest(memory, tf.constant([[0.0]]), 2, exact=True)
    mix = knn_per._label_mixer(found, tf.zeros([1, 2]), tf.constant([False]))
    np.testing.assert_allclose(np.exp(mix(1.0)[0]), [0.0, 1.0], atol=1e-6)


def test_distances_by_matrix_product_are_the_same():
    rng = np.random.default_rng(0)
    memory = knn_per.Memory(
        tf.constant(rng.normal(size=(50, 8)), tf.float32),
        tf.range(50), tf.cast(tf.range(50) < 40, tf.float32), tf.constant(50),
    )  # fmt: skip
    embeddings = tf.constant(rng.normal(size=(20, 8)), tf.float32)
    one, other = (knn_per.nearest(memory, embeddings, 5, exact) for exact in (True, False))
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_allclose(one.distances, other.distances, rtol=1e-4)
    reference = neighbors.NearestNeighbors(n_neighbors=5).fit(memory.embeddings[:40])
    distances, places = reference.kneighbors(embeddings)
    np.testing.assert_array_equal(one.values, places)
    np.testing.assert_allclose(one.distances, distances, rtol=1e-5)


def test_a_client_with_one_example_and_a_client_with_none():
    data = toy.classifier_task().train.fetch("t3")["train"]
    one, none = ({f: v[:n] for f, v in data.items()} for n in (1, 0))
    held_out = clients_lib.InMemoryClients(
        {
            "one": {"personalization": one, "evaluation": data},
            "none": {"personalization": none, "evaluation": data},
        }
    )
    task = toy.with_held_out(toy.classifier_task(), held_out)
    weights = task.model.initial_weights(2)
    params = KnnPer((10,), (0.5, 1.0))
    found = _scores(task, "sequential", weights, params, ("evaluation",), "personalization")
    alone = found["none"]["curves"]["evaluation"]
    np.testing.assert_allclose(alone["accuracy"], alone["accuracy"][0])
    np.testing.assert_allclose(alone["loss"], alone["loss"][0], rtol=1e-5)
    # At coefficient 1 all examples get the one label there is.
    share = np.mean(data["y"] == one["y"][0])
    assert found["one"]["curves"]["evaluation"]["accuracy"][2] == pytest.approx(share)


def test_equal_embeddings():
    """Everything at distance 0: the first k examples count the same."""
    memory = knn_per.Memory(
        tf.ones([5, 2]), tf.constant([0, 0, 1, 2, 0]), tf.constant([1.0, 1.0, 1.0, 1.0, 0.0]),
        tf.constant(4),
    )  # fmt: skip
    for exact in (True, False):
        found = knn_per.nearest(memory, tf.ones([1, 2]), 4, exact)
        mix = knn_per._label_mixer(found, tf.zeros([1, 4]), tf.constant([False]))
        np.testing.assert_allclose(np.exp(mix(1.0)[0]), [0.5, 0.25, 0.25, 0.0], atol=1e-6)
    shares = knn_per.inverse_distance_shares(found)
    np.testing.assert_allclose(shares, [[0.25] * 4])


def test_a_label_that_was_never_seen_in_training():
    """The model gives it next to nothing; the client's own examples know it."""
    x = np.array([[5.0, 0.0, 0.0, 0.0], [-5.0, 0.0, 0.0, 0.0]] * 6, np.float32)
    y = np.array([2, 0] * 6, np.int32)
    half = {"x": x, "y": y}
    held_out = clients_lib.InMemoryClients({"a": {"personalization": half, "evaluation": half}})
    task = toy.with_held_out(toy.without_dropout(toy.classifier_task()), held_out)
    weights = list(task.model.initial_weights(2))
    weights[-1] = np.array([0.0, 0.0, -50.0], np.float32)  # The bias of label 2.
    params = KnnPer((3,), (0.5, 1.0))
    found = _scores(task, "sequential", weights, params, ("evaluation",), "personalization")
    curve = found["a"]["curves"]["evaluation"]
    assert curve["accuracy"][0] <= 0.5 and np.isfinite(curve["loss"]).all()
    np.testing.assert_allclose(curve["accuracy"][2], 1.0)


def test_labels_of_candidates():
    assert KnnPer((10,), (0.1, 1.0)).candidates == ("0", "c0.1", "c1")
    assert PARAMS.candidates == ("0", "k3_c0.25", "k3_c1", "k10_c0.25", "k10_c1")
