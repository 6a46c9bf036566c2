"""Smaller personalization sets, held-out parts, and other clients' examples."""

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


@pytest.mark.parametrize("fraction, sizes", [(1.0, (10, 5, 1)), (0.5, (5, 3, 1)), (0.3, (3, 2, 1))])
def test_fractions_are_rounded_up(fraction, sizes):
    task = parts.smaller_personalization_sets(_task(), fraction, seed=3)
    left = [len(_numbers(task, c, "personalization")) for c in task.test.ids]
    assert tuple(left) == sizes


def test_what_is_left_depends_on_the_seed_and_evaluation_sets_stay():
    a, b = (parts.smaller_personalization_sets(_task((40,)), 0.5, seed) for seed in (1, 2))
    assert list(_numbers(a, "c0", "personalization")) != list(_numbers(b, "c0", "personalization"))
    np.testing.assert_array_equal(_numbers(a, "c0", "evaluation"), 50 + np.arange(40))


@pytest.mark.parametrize("fraction, sizes", [(0.2, (2, 1, 0)), (0.9, (9, 4, 0))])
def test_a_holdout_and_the_rest_are_the_whole(fraction, sizes):
    whole = _task()
    task = parts.held_out_part(whole, fraction, seed=3)
    for client_id, size in zip(whole.test.ids, sizes, strict=True):
        kept = _numbers(task, client_id, "personalization")
        held = _numbers(task, client_id, parts.HOLDOUT)
        assert len(held) == size
        assert sorted([*kept, *held]) == list(_numbers(whole, client_id, "personalization"))


def test_ood_examples_are_those_of_others():
    task = parts.distribution_shift(_task((10, 5, 4)), num_examples=9, seed=3)
    everything = set()
    for i, client_id in enumerate(task.test.ids):
        others = _numbers(task, client_id, parts.OOD)
        assert not np.any((others >= 100 * i) & (others < 100 * i + 100))
        assert np.all(others % 100 >= 50), "only evaluation examples"
        everything |= set(others)
    assert len(everything) == 9


def test_ood_examples_are_of_all_clients_alike():
    task = parts.distribution_shift(_task((10, 10, 10)), num_examples=7, seed=3)
    numbers = {float(x) for c in task.test.ids for x in _numbers(task, c, parts.OOD)}
    owners = np.array(sorted(numbers)) // 100
    assert np.unique(owners, return_counts=True)[1].max() <= 3, "of each a third, rounded up"


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


def test_there_may_be_fewer_ood_examples_than_asked_for():
    task = parts.distribution_shift(_task((2, 1)), num_examples=100, seed=3)
    np.testing.assert_array_equal(_numbers(task, "c0", parts.OOD), [150.0])
    np.testing.assert_array_equal(_numbers(task, "c1", parts.OOD), [50.0, 51.0])


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
