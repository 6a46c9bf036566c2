"""Vehicle: which of two kinds of vehicle a road sensor hears; a cross-silo task, linear SVM.

Card
  Source: `vehicle.mat`, the sensor network data of Duarte and Hu in the form of the Mocha code
    (cell arrays `X` and `Y`, each (23, 1)). Or synthetic sensors.
  Licence: none stated by its owners; published for research.
  Clients: 23 sensors; 43,695 examples; 1,900 +- 349 a sensor.
    Synthetic: 20 sensors; 8 to 700 examples each, in two planted groups.
  Fields: `features` float32 [100], 50 acoustic and 50 seismic, standardized; `target` float32,
    -1 or +1.
  Model: linear, zero initial weights; hinge loss + 0.5 * 1e-4 * ||w||^2, bias included; the
    reported metric is the accuracy of the margin's sign, with the ROC-AUC of the margins beside it
    (empty for a sensor that hears one kind only).
  Split: each sensor's examples 70% train, 15% valid, 15% test by the run's seed; features scaled
    by the mean and deviation of the sensor's own training part. Training drops an epoch's short
    last batch.
  Citation: Duarte, Hu 2004, "Vehicle classification in distributed sensor networks"; Smith et al.
    2017, "Federated multi-task learning" (https://arxiv.org/abs/1705.10467); Wu et al. 2022,
    "Motley" (https://arxiv.org/abs/2206.09262).
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.kinds import classification, silos
from datasets.options import PUBLISHED_SHARES, DataOptions, SiloShares
from motley_tff.core import random_streams, rows, task as task_lib
from motley_tff.core.errors import UserError

_FILE = silos.SiloFile(
    ("vehicle.mat", "vehicle/vehicle.mat", "vehicle/vehicle_subset.mat"),
    "33 MB",
    "sensor",
    "examples",
    is_row=False,
    width=100,
)
_SILO_ID = "sensor_{:02d}"
_SYNTHETIC_SENSORS = 20
_NUM_FEATURES = 100


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on `vehicle.mat` or on synthetic sensors; see `silos.create_task`."""
    create = functools.partial(create_task_from_data, lam_svm=options.lam_svm)
    return silos.create_task(options, _FILE, synthesize, create)


def create_task_from_data(
    features: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    seed: int,
    facts: Mapping[str, Any] | None = None,
    shares: SiloShares = PUBLISHED_SHARES,
    lam_svm: float = DataOptions.lam_svm,
) -> task_lib.Task:
    """Returns the task on features float64 [examples, dim] and labels float64 [examples], -1 or +1,
    an array each a sensor, which are split by the seed. UserError for other labels, and if no
    sensor is large enough to be split.
    """
    for i, sensor_labels in enumerate(labels):
        other = sensor_labels[~np.isin(sensor_labels, (-1.0, 1.0))]
        if len(other):
            raise UserError(f"sensor {i}", f"label {other[0]:g}", "-1 or +1")
    return silos.linear_task(
        features,
        labels,
        _SILO_ID.format,
        seed,
        shares,
        facts or {},
        dataset="vehicle",
        loss=hinge,
        label_field="target",
        metrics=(
            task_lib.Metric("accuracy", accuracy, higher_is_better=True),
            task_lib.Metric(
                "roc_auc", classification.area_under_roc, higher_is_better=True, ranks=True
            ),
        ),
        neighbours="svm",
        prediction=predicted_sign,
        regularizer=rows.taken(functools.partial(silos.half_squared_norm, strength=lam_svm)),
    )


def synthesize(seed: int, num_sensors: int = _SYNTHETIC_SENSORS) -> silos.Arrays:
    """Returns sensors that hear the same two vehicles at different angles, in two planted groups.

    An example is the vehicle's signature, turned towards the sensor's group and a little towards
    the sensor itself, plus noise; so the best separating direction differs by sensor.
    """
    shared = random_streams.generator(seed, "synthetic_data", 0)
    signature = _unit(shared.normal(size=_NUM_FEATURES))
    turns = [_unit(shared.normal(size=_NUM_FEATURES)) for _ in range(2)]
    features, labels, groups = [], [], {}
    for i in range(num_sensors):
        rng = random_streams.generator(seed, "synthetic_data", 1, i)
        group = int(rng.random() < 0.4)
        sensor_turn = _unit(rng.normal(size=_NUM_FEATURES))
        direction = _unit(signature + 1.5 * turns[group] + 1.2 * sensor_turn)
        n = int(np.clip(rng.lognormal(5.6, 0.7), 8, 700))
        y = np.where(rng.random(n) < rng.uniform(0.35, 0.65), 1.0, -1.0)
        noise = rng.normal(size=(n, _NUM_FEATURES))
        features.append(rng.normal(size=_NUM_FEATURES) + noise + 1.6 * y[:, None] * direction)
        labels.append(y)
        groups[_SILO_ID.format(i)] = f"group_{group}"
    return silos.Arrays(features, labels, groups)


def hinge(labels: tf.Tensor, margins: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (max(0, 1 - label * margin) [batch], ones [batch])."""
    losses = tf.nn.relu(1.0 - labels * margins)
    return losses, tf.ones_like(losses)


def accuracy(labels: tf.Tensor, margins: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (whether the margin has the label's sign [batch], ones [batch]); 0 counts as +1."""
    correct = tf.cast(tf.equal(predicted_sign(margins), labels), tf.float32)
    return correct, tf.ones_like(labels)


def predicted_sign(margins: tf.Tensor) -> tf.Tensor:
    """Returns the class that margins stand for, -1 or +1, [batch]."""
    return tf.where(margins >= 0.0, 1.0, -1.0)


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)
