"""Absent and slow clients: every algorithm stays finite, and its law (`registry.LAWS`) holds.

Rounds have other cohorts each, smaller than the population, and half of the clients straggle. That
other backends give the same is `test_agreement`'s.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import stragglers
from motley_tff.backends import base
from motley_tff.core import algorithm as algorithm_lib, random_streams
from tests import toy
from tests.contracts import registry

SIZES = {"a": 6, "b": 3, "c": 9, "d": 4}
COHORTS = (("a", "c", "d"), ("b", "c"), ("d",), ("a", "b", "d"))
STRAGGLER_RATE = 0.5
pytestmark = pytest.mark.usefixtures("eagerly")


class Run(NamedTuple):
    """A run, after every round: the server's weights and the silos' states."""

    algorithm: algorithm_lib.Algorithm
    weights: list[Any]
    states: list[dict[str, Any]]
    cohorts: Any
    sizes: dict[str, int]


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(1)
    numbers = {name: rng.normal(size=n) for name, n in SIZES.items()}
    return toy.scalar_task(numbers, initial=0.3, setting="cross_silo")


@pytest.fixture(scope="module")
def train(task):
    """Returns `(builder, cohorts) -> Run`; what was built stays compiled."""
    built = {}
    with registry.BACKENDS[registry.REFERENCE]() as backend:

        def run(build, cohorts=COHORTS, with_base=False):
            if (build, with_base) not in built:
                silos = toy.with_pair(task) if with_base else task
                algorithm = build(silos, silos.model.initial_weights(0))
                slow = stragglers.slowed(algorithm, STRAGGLER_RATE)
                built[build, with_base] = algorithm, backend.training(silos, slow)
            return _run(*built[build, with_base], cohorts)

        yield run


def _run(algorithm, process, cohorts, seed=5):
    plan = [
        base.Round(number, cohort, random_streams.key(seed, "local_training", number))
        for number, cohort in enumerate(cohorts, 1)
    ]
    states = toy.run(process, plan).states
    after = [(process.weights(state), process.client_states(state)) for state in states]
    return Run(algorithm, *map(list, zip(*after, strict=True)), cohorts, SIZES)


def test_every_algorithm_states_its_law():
    every = {*registry.TRAINING, *registry.STATEFUL}
    assert set(registry.LAWS) == every - {*registry.INSTALLED}


@pytest.mark.parametrize("name", registry.LAWS)
def test_law(name, train):
    registry.LAWS[name](train)


# An algorithm without clients' states has a law, which is about its weights.
@pytest.mark.parametrize("name", [*registry.STATEFUL, *registry.INSTALLED])
def test_absent_silos_stay_and_the_others_move(name, train):
    build = {**registry.TRAINING, **registry.STATEFUL}[name]
    run = train(build, with_base=name in registry.WITH_BASE)
    for leaf in tf.nest.flatten((run.weights, run.states)):
        assert np.isfinite(leaf).all()
    for before, after, cohort in zip(run.states, run.states[1:], run.cohorts[1:], strict=False):
        for client_id in after:
            own = zip(*map(tf.nest.flatten, (before[client_id], after[client_id])), strict=True)
            moves = any(np.any(a != b) for a, b in own)
            assert client_id in cohort or not moves, client_id
            assert moves or client_id not in cohort or name in registry.MAY_STAY, client_id
