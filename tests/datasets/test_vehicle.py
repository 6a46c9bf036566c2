"""Vehicle: the real subset, the SVM's loss by hand, and files that are something else."""

import numpy as np
import pytest
import scipy.io
import tensorflow as tf

import datasets
from datasets import vehicle
from datasets.kinds import silos
from datasets.options import DataOptions
from tests.datasets.test_school import cells
from tests.errors import refused


def _mat(path, **changes):
    rng = np.random.default_rng(0)
    content = {
        "X": cells([rng.normal(size=(10, 100)) for _ in range(3)], (-1, 1)),
        "Y": cells([rng.choice([-1.0, 1.0], (10, 1)) for _ in range(3)], (-1, 1)),
        **changes,
    }
    scipy.io.savemat(path, {name: a for name, a in content.items() if a is not None})
    return path


def _create(**options):
    return datasets.create_task(DataOptions(dataset_name="vehicle", **options))


def test_loss_and_accuracy_by_hand():
    labels, margins = tf.constant([1.0, -1.0, 1.0]), tf.constant([0.25, 3.0, 0.0])
    np.testing.assert_allclose(vehicle.hinge(labels, margins)[0], [0.75, 4.0, 1.0])
    np.testing.assert_allclose(vehicle.accuracy(labels, margins)[0], [1.0, 0.0, 1.0])
    weights = (tf.constant([[3.0], [4.0]]), tf.constant([12.0]))
    assert float(silos.half_squared_norm(weights, 1e-4)) == pytest.approx(0.5e-4 * 169)


@pytest.mark.usefixtures("read_here")
def test_other_labels(tmp_path):
    """Other files are refused as School's are."""
    path = _mat(tmp_path / "v.mat", Y=cells([np.zeros((10, 1))] * 3, (-1, 1)))
    with refused(f"{path} sensor 0", "label 0", "-1 or +1"):
        _create(data_file=str(path))


def test_sensors_of_a_group_are_more_alike():
    sensors = vehicle.synthesize(5)
    directions = {
        name: (x[y > 0].mean(0) - x[y < 0].mean(0))
        for name, x, y in zip(sensors.groups, sensors.features, sensors.targets, strict=True)
        if 0 < (y > 0).sum() < len(y) and len(y) > 60
    }

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    same, other = [], []
    for a in directions:
        for b in directions:
            if a < b:
                group = same if sensors.groups[a] == sensors.groups[b] else other
                group.append(cosine(directions[a], directions[b]))
    assert np.mean(same) > np.mean(other) + 0.1


def test_shares_and_regularizers():
    def strengths(**options):
        task = _create(use_synthetic_data=True, **options)
        weights = (tf.fill([100, 1], 2.0), tf.constant([10.0]))  # Squared norm 500.
        return task, float(task.regularizer(weights)) / 250

    task, strength = strengths()
    assert strength == pytest.approx(1e-4)
    sizes = {part: len(e["target"]) for part, e in task.test.fetch("sensor_00").items()}
    assert strengths(lam_svm=0.0)[1] == 0.0
    other, strength = strengths(lam_svm=0.03, l2_reg=0.5, val_split=0.2, test_split=0.3)
    assert strength == pytest.approx(0.53)
    parts = other.test.fetch("sensor_00")
    n = sum(sizes.values())
    assert len(parts["test"]["target"]) == -(-3 * n // 10) > sizes["test"]
    assert len(parts["train"]["target"]) == pytest.approx(0.5 * n, abs=2)
