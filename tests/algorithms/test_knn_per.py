"""kNN-Per against scikit-learn and arithmetic, for every kind of task."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from sklearn import neighbors

from datasets import school, vehicle
from motley_tff.algorithms import KnnPer, knn_per
from motley_tff.core import clients as clients_lib
from motley_tff.metrics import roc_auc
from tests import toy
from tests.contracts import registry

PARAMS = KnnPer((3, 10), (0.25, 1.0))


@pytest.fixture(params=["sequential", pytest.param("vectorized", marks=pytest.mark.slow)])
def backend(request):
    """A backend; the first without tracing."""
    if request.param == "sequential":
        request.getfixturevalue("eagerly")
    with registry.BACKENDS[request.param]() as opened:
        yield opened


def _scores(task, weights, params, part, backend=None):
    """Returns `{test client: {metric: [candidates]}}`."""
    work = params.build(task).work((part,), task.personalization_part("test"))
    by_client = toy.evaluate(task, work, weights, backend=backend)
    return {client_id: metrics["curves"][part] for client_id, metrics in by_client.items()}


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


def _candidates(parts, outputs):
    """Yields the model's outputs, and each mixture of them with scikit-learn's neighbours."""
    yield outputs
    train = parts["train"]
    for k in PARAMS.num_neighbors:
        model = neighbors.KNeighborsRegressor(min(k, len(train["target"])), weights="distance")
        said = model.fit(train["features"], train["target"]).predict(parts["test"]["features"])
        yield from (c * said + (1 - c) * outputs for c in PARAMS.coefficients)


_LINEAR = (np.array([[0.3], [-0.2], [0.1]], np.float32), np.array([0.4], np.float32))


def _outputs(parts):
    return parts["test"]["features"] @ _LINEAR[0][:, 0] + _LINEAR[1]


def test_svm_is_scikit_learns_classifier(backend):
    task = vehicle.create_task_from_data(*_linear_data(0, "svm"), seed=1)
    for client_id, curves in _scores(task, _LINEAR, PARAMS, "test", backend).items():
        parts = task.test.fetch(client_id)
        labels, scores = parts["test"]["target"], [*_candidates(parts, _outputs(parts))]
        expected = [np.mean(np.where(score >= 0, 1, -1) == labels) for score in scores]
        np.testing.assert_allclose(curves["accuracy"], expected, atol=1e-6)
        # In float32, as scores are: what is equal there is a tie.
        areas = [roc_auc.roc_auc(labels, score.astype(np.float32)) for score in scores]
        np.testing.assert_allclose(curves["roc_auc"], areas, atol=1e-6)


@pytest.mark.usefixtures("eagerly")
def test_regression_is_scikit_learns():
    task = school.create_task_from_data(*_linear_data(1, "regression"), seed=1)
    for client_id, curves in _scores(task, _LINEAR, PARAMS, "test").items():
        parts = task.test.fetch(client_id)
        errors = [score - parts["test"]["target"] for score in _candidates(parts, _outputs(parts))]
        expected = [np.mean(0.5 * error**2) for error in errors]
        np.testing.assert_allclose(curves["loss"], expected, rtol=2e-5, atol=1e-7)


class _NoOpinion:
    """A model that embeds an example as it is, and finds three labels equally likely."""

    def embed(self, x):
        return x

    def __call__(self, x, training, key):
        return tf.zeros([tf.shape(x)[0], 3])


def _of_classes(at, labels):
    """Returns examples on a line."""
    x = np.zeros([len(at), 4], np.float32)
    x[:, 0] = at
    return {"x": x, "y": np.array(labels, np.int32)}


_NEAR = 1 / (1 + np.exp(-1.0))


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("at", "labels", "where", "coefficient", "expected"),
    [
        # Distances 1 and 2 to a label each, and the model's third each.
        ([0, 3], [1, 0], 1, 0.5, [0.5 * (1 - _NEAR) + 1 / 6, 0.5 * _NEAR + 1 / 6, 1 / 6]),
        # Far neighbours are no 0 / 0, and who is not there has next to nothing.
        ([1e4, 1.1e4], [1, 0], 0, 1.0, [1e-30, 1.0, 1e-30]),
        # Equal embeddings count the same.
        ([1, 1, 1, 1], [0, 0, 1, 2], 1, 1.0, [0.5, 0.25, 0.25]),
        # Without examples the model stands alone; one alone is the only neighbour.
        ([], [], 1, 1.0, [1 / 3, 1 / 3, 1 / 3]),
        ([5], [2], 1, 1.0, [1e-30, 1e-30, 1.0]),
    ],
)
def test_classification_by_hand(at, labels, where, coefficient, expected):
    """The loss of a client that evaluates an example of one label is what that label is given."""
    own = _of_classes(at, labels)
    held_out = clients_lib.InMemoryClients(
        {
            f"c{label}": {"personalization": own, "evaluation": _of_classes([where], [label])}
            for label in range(3)
        }
    )
    task = toy.with_held_out(toy.classifier_task(), held_out)
    task = dataclasses.replace(task, model=dataclasses.replace(task.model, build=_NoOpinion))
    scores = _scores(task, (), KnnPer((max(2, len(at)),), (coefficient,)), "evaluation")
    losses = [curves["loss"] for curves in scores.values()]
    np.testing.assert_allclose(losses, [(np.log(3), -np.log(p)) for p in expected], rtol=1e-4)


def test_a_neighbour_at_distance_zero_silences_the_others():
    neighbours = knn_per.Neighbours(
        tf.constant([[0.0, 0.0, 1.0], [1.0, 3.0, 9.0]]), tf.zeros([2, 3]),
        tf.constant([[True, True, True], [True, True, False]]),
    )  # fmt: skip
    shares = knn_per.inverse_distance_shares(neighbours)
    np.testing.assert_allclose(shares, [[0.5, 0.5, 0], [0.75, 0.25, 0]])


def test_distances_by_matrix_product_are_the_same():
    rng = np.random.default_rng(0)
    datastore = knn_per.Datastore(
        tf.constant(rng.normal(size=(50, 8)), tf.float32),
        tf.range(50), tf.cast(tf.range(50) < 40, tf.float32), tf.constant(50),
    )  # fmt: skip
    embeddings = tf.constant(rng.normal(size=(20, 8)), tf.float32)
    precise, other = (knn_per.nearest(datastore, embeddings, 5, exact) for exact in (True, False))
    np.testing.assert_array_equal(precise.values, other.values)
    np.testing.assert_allclose(precise.distances, other.distances, rtol=1e-4)
    reference = neighbors.NearestNeighbors(n_neighbors=5).fit(datastore.embeddings[:40])
    distances, places = reference.kneighbors(embeddings)
    np.testing.assert_array_equal(precise.values, places)
    np.testing.assert_allclose(precise.distances, distances, rtol=1e-5)


def test_labels_of_candidates():
    assert KnnPer((10,), (0.1, 1.0)).candidates == ("0", "c0.1", "c1")
    assert PARAMS.candidates == ("0", "k3_c0.25", "k3_c1", "k10_c0.25", "k10_c1")
