"""Each hyperparameter changes a number, or a table here says why not; those of every algorithm and
personalization, found by reading their dataclasses, on a model of three weights.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from motley_tff import algorithms
from motley_tff.algorithms import kept_optimizers
from motley_tff.core import partition
from motley_tff.core.errors import UserError
from motley_tff.experiment import defaults, warm_start
from motley_tff.experiment.config import RunConfig
from tests import toy
from tests.contracts import configurations

pytestmark = pytest.mark.usefixtures("eagerly")
# {(the class's name, its field): why it, or its choice of optimizer, changes nothing}
_CHANGES_NOTHING = {
    ("fedsgd", "client_optimizer"): "clients send a gradient",
    ("fedsgd", "train_epochs"): "clients send a gradient",
    ("fedsgd", "train_batch_size"): "clients send a gradient, in parts",
    ("centralized", "server_optimizer"): "the model that was trained is the new one",
    ("mr_mtl", "client_optimizer"): "its rate is that of the silos' own models",
    ("pfedme", "client_optimizer"): "its rate is eta",
}
# {field: rounds, or their cohorts}, where one does not show it.
_ROUNDS = {
    **dict.fromkeys(("teacher", "student", "client_schedule", "server_schedule"), 2),
    **dict.fromkeys(("decay_factor", "decay_rounds"), 2),
    **dict.fromkeys(("balance", "balance_rounds"), 3),
    # A cluster has momentum when its silo stays away.
    "steps_empty_clusters": (("t0", "t1"), ("t1",)),
}


@functools.cache
def _task(is_central=False):
    task = toy.three_weights("cross_silo", (2, 4))
    return partition.centralize(task, 1e9, lambda: None) if is_central else task


class _Numbers:
    """What a configuration computes: in training, in an evaluation, each when it is asked for; if
    it is refused, the words.
    """

    def __init__(self, config, rounds):
        try:
            self._config = defaults.resolve(config, "cross_silo", 2)
            self._config.check()
            self._built = self._build()
            self._refusal = None
        except UserError as error:
            self._refusal = str(error)
        self._rounds = rounds

    def of(self, kind):
        return self._refusal or getattr(self, kind)

    def _build(self):
        algorithm = self._config.algorithm
        task = _task(algorithm.card.is_central)
        weights = task.model.initial_weights(0)
        if isinstance(algorithm, algorithms.HypCluster):
            weights = warm_start.random_models(task, 0, algorithm.num_clusters)
        return kept_optimizers.build(algorithm, task, weights)

    @functools.cached_property
    def _trained(self):
        task = _task(self._config.algorithm.card.is_central)
        scheduled = self._config.scheduled(self._built)
        return self._built, scheduled, toy.train(task, scheduled, self._rounds)

    @functools.cached_property
    def of_training(self):
        built, scheduled, run = self._trained
        sent = built.bytes_since(None) if built.bytes_since else ()
        weights = run.weights if scheduled is built else run.weights[0]  # Not the factor.
        return _flat((weights, run.client_states, sent))

    @functools.cached_property
    def of_personalization(self):
        task = _task()
        work = self._config.personalization.build(task).work(("test",), "train")
        return _flat(toy.evaluate(task, work, task.model.initial_weights(0)))

    @functools.cached_property
    def of_own_models(self):
        """None if the algorithm leaves them to a personalization."""
        if self._config.personalization is not None:
            return None
        task, (built, scheduled, run) = _task(), self._trained
        own = self._config.build_personalization(task, built)
        states = [*run.client_states.values()] if run.client_states else None
        weights = run.weights if own.wants_server_weights else scheduled.global_model(run.weights)
        return _flat(toy.evaluate(task, own.work(("test",), "train"), weights, None, states))


def _flat(numbers):
    return [np.ravel(leaf).tolist() for leaf in tf.nest.flatten(numbers)]


def _unmoved(config, part, kinds):
    """Returns the fields of a part of a configuration that change none of these numbers."""
    for change in configurations.small(config):
        config = change.made_to(config)
    base = functools.cache(lambda rounds: _Numbers(config, rounds))
    unmoved = set()
    for change in configurations.changes(config):
        owner, _, name = change.field.partition(".")
        if owner == part:
            rounds = _ROUNDS.get(name, 1)
            one, other = base(rounds), _Numbers(change.made_to(config), rounds)
            if all(one.of(kind) == other.of(kind) for kind in kinds):
                unmoved.add(name)
    return unmoved


def _expected(name):
    return {field for owner, field in _CHANGES_NOTHING if owner == name}


@pytest.mark.parametrize("name", algorithms.TRAINING)
def test_those_of_algorithms(name):
    config = RunConfig(algorithms.TRAINING[name]())
    assert _unmoved(config, "algorithm", ("of_training", "of_own_models")) == _expected(name)


@pytest.mark.parametrize("name", algorithms.PERSONALIZATIONS)
def test_those_of_personalizations(name):
    config = RunConfig(personalization=algorithms.PERSONALIZATIONS[name]())
    assert _unmoved(config, "personalization", ("of_personalization",)) == _expected(name)
