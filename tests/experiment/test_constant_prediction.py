"""What one constant is worth, by hand."""

import dataclasses

import numpy as np
import pytest

from datasets import vehicle
from motley_tff.core import clients
from motley_tff.experiment import constant_prediction
from tests import toy


def test_regression_says_the_mean_of_all_training_labels():
    """The mean of (1, 3, 8) is 4; half squared errors 4.5, .5 and 8; silos count alike."""
    task = toy.scalar_task({"a": [1.0, 3.0], "b": [8.0]}, setting="cross_silo")
    expected = np.mean([(4.5 + 0.5) / 2, 8.0])
    assert constant_prediction.scores(task) == pytest.approx({"valid": expected, "test": expected})


def test_labels_of_training_parts_alone_are_looked_at():
    task = toy.scalar_task({"a": [1.0, 3.0]}, setting="cross_silo")
    other = toy.scalar_task({"a": [7.0]}, setting="cross_silo")
    task = dataclasses.replace(task, test=other.test)
    assert constant_prediction.scores(task) == pytest.approx({"valid": 0.5, "test": 12.5})


def test_classes_say_the_most_frequent_one():
    task = toy.classifier_silos()
    labels = [task.train.fetch(i)["train"]["y"] for i in task.train.ids]
    most = np.bincount(np.concatenate(labels)).argmax()
    expected = np.mean([np.mean(y == most) for y in labels])
    assert constant_prediction.scores(task)["test"] == pytest.approx(expected)


def test_margins_say_the_more_frequent_sign():
    """Of 6 and 30 examples of +1 and -1, -1: accuracy 0 and 1 in two silos of one kind each."""
    x = [np.random.default_rng(i).normal(size=(n, 100)) for i, n in enumerate((6, 30))]
    task = vehicle.create_task_from_data(x, [np.ones(6), -np.ones(30)], 0)
    assert constant_prediction.scores(task) == pytest.approx({"valid": 0.5, "test": 0.5})


def test_devices_in_memory_say_what_training_clients_labels_are():
    """The mean of (1, 3) is 2; the one valid and test client is scored on 2."""
    task = toy.scalar_task({"a": [1.0, 3.0]}, {"v": ([9.0], [5.0])})
    assert constant_prediction.scores(task) == pytest.approx({"valid": 4.5, "test": 4.5})


def test_clients_on_disk_are_not_read():
    task = toy.classifier_task()
    on_disk = clients.DerivedClients(task.train, lambda parts, client_id: parts)
    expected = pytest.approx({"valid": 1 / 3, "test": 1 / 3})
    assert constant_prediction.scores(dataclasses.replace(task, train=on_disk)) == expected
    assert constant_prediction.scores(task) != expected
    with_reference = dataclasses.replace(task, reference={"v0": 0.1})
    assert constant_prediction.scores(with_reference) == {}
    of_generator = dataclasses.replace(task, generate=lambda weights, count, key: None)
    assert constant_prediction.scores(of_generator) == {}


def test_a_clients_own_constant_is_of_its_personalization_set():
    """Silos' own means are 2 and 8, errors (.5 + .5) / 2 and 0; of the device, 9 before 5: 8."""
    silos = toy.scalar_task({"a": [1.0, 3.0], "b": [8.0]}, setting="cross_silo")
    expected = {"own mean": pytest.approx({"valid": 0.25, "test": 0.25})}
    assert constant_prediction.own_scores(silos) == expected
    device = toy.scalar_task({"a": [1.0, 3.0]}, {"v": ([9.0], [5.0])})
    expected = {"own mean": pytest.approx({"valid": 8.0, "test": 8.0})}
    assert constant_prediction.own_scores(device) == expected
    device = toy.scalar_task({"a": [1.0, 3.0]}, {"v": ([], [5.0])})  # The mean of all, 2.
    expected = {"own mean": pytest.approx({"valid": 4.5, "test": 4.5})}
    assert constant_prediction.own_scores(device) == expected


def test_a_clients_own_majority():
    task = toy.classifier_silos()
    labels = [task.train.fetch(i)["train"]["y"] for i in task.train.ids]
    expected = np.mean([np.mean(y == np.bincount(y).argmax()) for y in labels])
    assert constant_prediction.own_scores(task)["own majority"]["test"] == pytest.approx(expected)


def test_clients_without_a_score_are_in_no_mean():
    """Of v, scored on 5 where the constant is 2, and w, on nothing."""
    task = toy.scalar_task({"a": [1.0, 3.0]}, {"v": ([9.0], [5.0]), "w": ([9.0], [])})
    assert constant_prediction.scores(task) == pytest.approx({"valid": 4.5, "test": 4.5})
    nobody = toy.scalar_task({"a": [1.0, 3.0]}, {"w": ([9.0], [])})
    assert constant_prediction.scores(nobody) == {}
