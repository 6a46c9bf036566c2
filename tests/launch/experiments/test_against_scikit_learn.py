"""The comparison with scikit-learn: its statistics by hand, its models on rows of a tiny table."""

import sys

import numpy as np
import pandas as pd
import pytest

import motley_tff as motley
from tests.launch import commands

_MODULE = "launch.experiments.own_tables.against_scikit_learn"


@pytest.fixture(scope="module")
def script():
    with commands.opened(_MODULE):
        yield sys.modules[_MODULE]


def test_a_relative_difference_and_its_interval_by_hand(script):
    """Differences 1 and 3 over a mean of 10: 0.2, and 12.706 standard errors of 0.1."""
    theirs = {"a": 8.0, "b": 12.0}
    mean, low, high = script.relative_difference({"b": 15.0, "a": 9.0}, theirs)
    assert (mean, low, high) == pytest.approx((0.2, 0.2 - 1.27062, 0.2 + 1.27062), rel=1e-4)


def _task(label):
    rng = np.random.default_rng(0)
    clients = np.repeat([f"c{i}" for i in range(20)], 8)
    x = rng.normal(size=len(clients))
    frame = pd.DataFrame({"who": clients, "x": x, "y": label(x)})
    return motley.create_task("table", data=frame, client="who", label="y")


def test_numbers_on_a_line_are_predicted_by_either_and_classes_by_the_pooled_model(script):
    for way in (script.of_pooled, script.of_each):
        result = way(_task(lambda x: 3.0 * x + 1.0))
        assert max(result.test.values()) < 1e-4 and len(result.test) == 3
        assert "strength 0.0001" in result.name
    result = script.of_pooled(_task(lambda x: np.where(x > 0, "yes", "no")))
    assert np.mean([*result.test.values()]) < 0.1


def test_a_client_of_one_class_predicts_it(script):
    task = _task(lambda x: np.where(x > 0, "yes", "no"))
    rows = np.zeros((3, 1)), np.array([1, 1, 1])
    assert script.error(task, script.fitted(task, rows, 1.0), rows) == 0.0
    assert script.error(task, script.fitted(task, rows, 1.0), (rows[0], np.array([0, 1, 1]))) > 0.3
