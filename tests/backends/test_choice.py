"""Which backend is chosen, and that small linear models never fall back."""

import dataclasses

import pytest

from motley_tff.backends import choice
from motley_tff.core import clients
from tests import synthetic, toy
from tests.errors import refused


@pytest.fixture(scope="module")
def linear():
    return toy.scalar_task({"a": [1.0], "b": [2.0]}, setting="cross_silo")


def _choose(task, requested="auto", aggregator="mean", changes=False, limit=1e9):
    return choice.choose(requested, aggregator, task, changes, limit)


def test_auto(linear):
    assert _choose(linear)[0] == "vectorized"
    assert _choose(linear, changes=True)[0] == "sequential"
    assert _choose(linear, aggregator="robust") == ("tff", "--aggregator=robust is one of TFF's")
    assert _choose(toy.classifier_task())[0] == "sequential"


def test_auto_stacks_no_large_model():
    options = {"setting": "cross_silo", "partition": "iid", "num_clients": 2}
    small, large = (synthetic.task("mnist", model_sizes=(n,), **options) for n in (188, 189))
    assert (small.model.num_weights, large.model.num_weights) == (149_470, 150_265)
    assert _choose(small)[0] == "vectorized"
    name, why = _choose(large)
    assert name == "sequential" and "stacked, a model of 150,265 weights is slower" in why
    assert _choose(large, "vectorized")[0] == "vectorized"


def test_what_is_asked_for(linear):
    for name in ("sequential", "tff", "vectorized"):
        assert _choose(linear, name) == (name, "asked for by --backend")


def test_fallbacks_say_why(linear):
    name, why = _choose(linear, "vectorized", limit=10)
    assert name == "sequential" and "--memory_limit_gb" in why and "GB" in why
    name, why = _choose(toy.classifier_task(), "vectorized")
    assert name == "sequential" and why.startswith("vectorized was asked for, but it would not")
    on_disk = clients.InGraphClients(["a"], lambda i: linear.train.fetch("a"))
    task = dataclasses.replace(linear, train=on_disk)
    assert "loaded by id" in _choose(task, "vectorized")[1]


@pytest.mark.parametrize(
    ("backend", "aggregator", "expected"),
    [("sequential", "secure", "tff or auto"), ("vectorized", "median", "sequential, tff or auto")],
)
def test_aggregators_need_other_backends(linear, backend, aggregator, expected):
    with refused("backend", backend, f"{expected}, as aggregator={aggregator}"):
        _choose(linear, backend, aggregator)


# The registered tasks whose model is linear; a new one adds its name.
@pytest.mark.parametrize("name", ["school", "vehicle"])
def test_linear_tasks_are_vectorized(name):
    task = synthetic.task(name)
    assert len(task.model.shapes) == 2, "a linear model has a kernel and a bias"
    assert _choose(task, limit=4e9) == (
        "vectorized",
        "a small dense model whose clients fit in memory",
    )
