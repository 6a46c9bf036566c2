"""What one constant is worth, by hand."""

import dataclasses

import numpy as np
import pytest

from datasets import vehicle
from motley_tff.core import clients
from motley_tff.experiment import constant_prediction
from tests import toy

_SILOS = toy.scalar_task({"a": [1.0, 3.0]}, setting="cross_silo")
_OTHER = toy.scalar_task({"a": [7.0]}, setting="cross_silo")


def _device(**held_out):
    """Returns training labels of mean 2, and clients (personalization set, evaluation set)."""
    return toy.scalar_task({"a": [1.0, 3.0]}, held_out)


@pytest.mark.parametrize(
    ("task", "valid", "test"),
    [
        # The mean of (1, 3, 8) is 4; half squared errors 4.5, .5 and 8; silos count alike.
        (toy.scalar_task({"a": [1.0, 3.0], "b": [8.0]}, setting="cross_silo"), 5.25, 5.25),
        # Labels of training parts alone are looked at.
        (dataclasses.replace(_SILOS, test=_OTHER.test), 0.5, 12.5),
        (_device(v=([9.0], [5.0])), 4.5, 4.5),
        # Clients without a score are in no mean.
        (_device(v=([9.0], [5.0]), w=([9.0], [])), 4.5, 4.5),
    ],
)
def test_regression_says_the_mean_of_all_training_labels(task, valid, test):
    expected = pytest.approx({"valid": valid, "test": test})
    assert constant_prediction.scores(task) == expected


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


def test_a_clients_own_majority():
    task = toy.classifier_silos()
    labels = [task.train.fetch(i)["train"]["y"] for i in task.train.ids]
    expected = np.mean([np.mean(y == np.bincount(y).argmax()) for y in labels])
    assert constant_prediction.own_scores(task)["own majority"]["test"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("task", "error"),
    [
        # Silos' own means are 2 and 8, errors (.5 + .5) / 2 and 0.
        (toy.scalar_task({"a": [1.0, 3.0], "b": [8.0]}, setting="cross_silo"), 0.25),
        (_device(v=([9.0], [5.0])), 8.0),  # 9 before 5.
        (_device(v=([], [5.0])), 4.5),  # The mean of all, 2.
    ],
)
def test_a_clients_own_constant_is_of_its_personalization_set(task, error):
    expected = {"own mean": pytest.approx({"valid": error, "test": error})}
    assert constant_prediction.own_scores(task) == expected


def test_nobody_has_a_score():
    assert constant_prediction.scores(_device(w=([9.0], []))) == {}
