"""Smaller personalization sets, held-out parts, and other clients' examples."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import FineTuning, OptimizerConfig
from motley_tff.core import clients
from motley_tff.experiment import held_out
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
    task = held_out.with_fraction(_task(), fraction, seed=3)
    found = [len(_numbers(task, c, "personalization")) for c in task.test.ids]
    assert tuple(found) == sizes


def test_what_is_left_depends_on_the_seed_and_evaluation_sets_stay():
    a, b = (held_out.with_fraction(_task((40,)), 0.5, seed) for seed in (1, 2))
    assert list(_numbers(a, "c0", "personalization")) != list(_numbers(b, "c0", "personalization"))
    np.testing.assert_array_equal(_numbers(a, "c0", "evaluation"), 50 + np.arange(40))


@pytest.mark.parametrize("fraction, sizes", [(0.2, (2, 1, 0)), (0.9, (9, 4, 0))])
def test_a_holdout_and_the_rest_are_the_whole(fraction, sizes):
    whole = _task()
    task = held_out.with_holdout(whole, fraction, seed=3)
    for client_id, size in zip(whole.test.ids, sizes, strict=True):
        kept = _numbers(task, client_id, "personalization")
        held = _numbers(task, client_id, held_out.HOLDOUT)
        assert len(held) == size
        assert sorted([*kept, *held]) == list(_numbers(whole, client_id, "personalization"))


def test_ood_examples_are_those_of_others():
    task = held_out.with_ood(_task((10, 5, 4)), num_examples=9, seed=3)
    everything = set()
    for i, client_id in enumerate(task.test.ids):
        found = _numbers(task, client_id, held_out.OOD)
        assert not np.any((found >= 100 * i) & (found < 100 * i + 100))
        assert np.all(found % 100 >= 50), "only evaluation examples"
        everything |= set(found)
    assert len(everything) == 9


def test_ood_examples_are_of_all_clients_alike():
    task = held_out.with_ood(_task((10, 10, 10)), num_examples=7, seed=3)
    found = {float(x) for c in task.test.ids for x in _numbers(task, c, held_out.OOD)}
    owners = np.array(sorted(found)) // 100
    assert np.unique(owners, return_counts=True)[1].max() <= 3, "of each a third, rounded up"


def test_validation_clients_are_cut_as_test_clients_are():
    both, other = _task((4,)), _task((6, 2))
    silos = held_out.with_fraction(both, 0.5, seed=3)
    assert silos.valid is silos.test
    task = held_out.with_fraction(dataclasses.replace(both, valid=other.valid), 0.5, seed=3)
    for clients_of, sizes in ((task.valid, (3, 1)), (task.test, (2,))):
        found = [len(clients_of.fetch(c)["personalization"]["x"]) for c in clients_of.ids]
        assert tuple(found) == sizes


def test_there_may_be_fewer_ood_examples_than_asked_for():
    task = held_out.with_ood(_task((2, 1)), num_examples=100, seed=3)
    np.testing.assert_array_equal(_numbers(task, "c0", held_out.OOD), [150.0])
    np.testing.assert_array_equal(_numbers(task, "c1", held_out.OOD), [50.0, 51.0])


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
    work = tuned.work(("evaluation", held_out.HOLDOUT, held_out.OOD), "personalization")
    found = []
    for task in (arrays, _in_graph(arrays)):
        task = held_out.with_ood(held_out.with_holdout(task, 0.3, 7), 6, 7)
        with registry.BACKENDS[name if task.test.in_graph else "sequential"]() as backend:
            found.append(toy.evaluate(task, work, _ZERO, backend=backend))
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *found)
    assert int(found[1]["c0"]["num_examples"][held_out.HOLDOUT]) == 3
