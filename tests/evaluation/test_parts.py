"""Smaller personalization sets and other parts; their laws are in `core/test_client_laws`."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import FineTuning, OptimizerConfig
from motley_tff.core import clients
from motley_tff.evaluation import parts
from tests import toy
from tests.contracts import registry

_ZERO = (np.zeros([1, 1], np.float32),)


def _task(sizes=(10, 5, 1)):
    """Returns a task whose clients' numbers are their own: client i has 100 i + 0, 1, 2, ..."""
    held = {
        f"c{i}": (100.0 * i + np.arange(n), 100.0 * i + 50 + np.arange(n))
        for i, n in enumerate(sizes)
    }
    return toy.scalar_task({"t": [1.0]}, held)


def _numbers(task, client_id, part):
    return np.asarray(task.test.fetch(client_id)[part]["x"])


def test_what_is_left_depends_on_the_seed_and_evaluation_sets_stay():
    a, b = (parts.smaller_personalization_sets(_task((40,)), 0.5, seed) for seed in (1, 2))
    assert list(_numbers(a, "c0", "personalization")) != list(_numbers(b, "c0", "personalization"))
    np.testing.assert_array_equal(_numbers(a, "c0", "evaluation"), 50 + np.arange(40))


def test_validation_clients_are_cut_as_test_clients_are():
    both, other = _task((4,)), _task((6, 2))
    silos = parts.smaller_personalization_sets(both, 0.5, seed=3)
    assert silos.valid is silos.test
    task = parts.smaller_personalization_sets(
        dataclasses.replace(both, valid=other.valid), 0.5, seed=3
    )
    for clients_of, sizes in ((task.valid, (3, 1)), (task.test, (2,))):
        left = [len(clients_of.fetch(c)["personalization"]["x"]) for c in clients_of.ids]
        assert tuple(left) == sizes


def _in_graph(task):
    """Returns the same numbers from clients that are loaded by id."""

    def load(client_id):
        number = tf.strings.to_number(tf.strings.substr(client_id, 1, -1))
        first = 100 * number + tf.range(10.0)
        return {"personalization": {"x": first}, "evaluation": {"x": 50 + first}}

    return toy.with_held_out(task, clients.InGraphClients(task.test.ids, load))


@pytest.mark.parametrize("name", ["sequential", pytest.param("tff", marks=pytest.mark.slow)])
def test_clients_loaded_by_id_are_cut_alike(name, request):
    if name == "sequential":
        request.getfixturevalue("eagerly")
    arrays = _task((10, 10, 10))
    tuned = FineTuning(OptimizerConfig("sgd", 1.0), (0.1,), 1).build(arrays)
    work = tuned.work(("evaluation", parts.HOLDOUT, parts.OOD), "personalization")
    outputs = []
    for task in (arrays, _in_graph(arrays)):
        task = parts.distribution_shift(parts.held_out_part(task, 0.3, 7), 6, 7)
        with registry.BACKENDS[name if task.test.in_graph else "sequential"]() as backend:
            outputs.append(toy.evaluate(task, work, _ZERO, backend=backend))
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *outputs)
    assert int(outputs[1]["c0"]["num_examples"][parts.HOLDOUT]) == 3
