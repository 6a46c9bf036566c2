"""Every algorithm under TFF's aggregators, on the aggregation process itself.

All but the laws of one cluster and of FedAvg's half fail if an aggregator is the plain mean.
"""

import functools
import gc
import logging

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import HypCluster
from motley_tff.backends.tff import aggregators as tff_aggregators, backend as tff_backend
from motley_tff.backends.tff.runtime import tff_runtime
from motley_tff.core import options, private_mean, robust_mean
from motley_tff.core.lazy import tff
from motley_tff.experiment.config import BackendConfig
from tests import toy
from tests.contracts import registry
from tests.errors import refused

_COHORT = 10
# Above the number from which TFF quantizes a tensor.
_WIDE = 20_001


@pytest.fixture(scope="module", autouse=True)
def runtime():
    with tff_runtime():
        yield


@functools.cache
def _task(width):
    return toy.with_pair(toy.scalar_task({"a": [1.0]}, setting="cross_silo"), width)


@functools.cache
def _algorithm(name, width=2):
    task = _task(width)
    return registry.AGGREGATED[name][0](task, task.model.initial_weights(0))


def _process(name, aggregator, width=2):
    """Returns the aggregation of an algorithm; many share one."""
    algorithm = _algorithm(name, width)
    return _cached_process(
        aggregator, tff_backend.type_of(algorithm.initial_weights), algorithm.groups
    )


@functools.cache
def _cached_process(aggregator, update_type, groups):
    built = tff_aggregators.build(aggregator, 0.001, _COHORT)
    return built.process(update_type, groups)


def _run(process, rounds):
    """Returns the mean update of each round, given (updates, weights) of each."""
    state, results = process.initialize(), []
    for updates, weights in rounds:
        output = process.next(state, updates, [np.float32(w) for w in weights])
        state = output.state
        results.append(tf.nest.map_structure(np.asarray, output.result))
    return results


def _changes(name, update):
    """Returns the leaves of an update that change a model; they must be a cluster's mean."""
    if not name.startswith("hypcluster"):
        return tf.nest.flatten(update)
    changes, mass = update
    places = mass > 0
    return [leaf[places] / mass[places].reshape([-1, 1, 1]) for leaf in changes]


def _update(name, *leaves, cluster=0):
    change = tuple(np.asarray(leaf, np.float32)[None] for leaf in leaves)
    return registry.AGGREGATED[name][1](change, cluster)


def _slow_if(slow, *values):
    return pytest.param(*values, marks=pytest.mark.slow if slow else ())


# One group, two, one for each cluster, and shared layers beside those; others are as one of them.
_KINDS = ("fedavg_adam", "fedper", "hypcluster", "hypcluster_shared")


def _accepted(aggregator, names):
    """Returns (name, aggregator) pairs; the kind that takes longest is slow."""
    return [
        _slow_if(name == "hypcluster_shared", name, aggregator)
        for name in names
        if aggregator not in registry.REFUSED.get(name, ())
    ]


# That clusters are bounded under `secure`, too, is seen after many rounds, below.
_BOUNDED = [
    *_accepted("robust", registry.AGGREGATED),
    *(_slow_if(True, "fedavg_adam", a) for a in registry.AGGREGATORS if a != "robust"),
]


@pytest.mark.parametrize(("name", "aggregator"), _BOUNDED)
def test_an_outlier_is_bounded(name, aggregator):
    ordinary = [_update(name, [0.1, 0.1], [0.1, 0.1]) for _ in range(_COHORT - 1)]
    outlier = _update(name, [7.0, 7.0], [7.0, 7.0])
    one = ([*ordinary, outlier], [5] * _COHORT)
    (mean,) = _run(_process(name, "mean"), [one])
    *_, found = _run(_process(name, aggregator), [one] * 3)
    for whole, bounded in zip(_changes(name, mean), _changes(name, found), strict=True):
        np.testing.assert_allclose(whole, (0.9 + 7) / _COHORT, rtol=1e-5)
        assert 0.02 < np.abs(bounded).max() < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg_adam", "hypcluster"])
def test_compressed_quantizes(name):
    rng = np.random.default_rng(0)
    # Too short to be clipped.
    leaves = 0.003 * rng.normal(size=(2, _WIDE)).astype(np.float32)
    one = ([_update(name, *leaves)], [5])
    (found,) = _run(_process(name, "compressed", _WIDE), [one])
    for leaf, exact in zip(_changes(name, found), _changes(name, one[0][0]), strict=True):
        assert len(np.unique(leaf)) <= 2**8
        step = (exact.max() - exact.min()) / (2**8 - 1)
        np.testing.assert_allclose(leaf, exact, atol=1.01 * step)


@pytest.mark.parametrize("aggregator", robust_mean.NAMES)
def test_the_median_and_the_trimmed_mean_are_those_of_the_sequential_backend(aggregator):
    leaves = np.random.default_rng(0).normal(size=(_COHORT, 2, 3)).astype(np.float32)
    process = tff_aggregators.build(aggregator, 0.0, _COHORT, 0.2).process(
        tff.to_type((tff.TensorType(np.float32, [2, 3]),))
    )
    updates = [(leaf,) for leaf in leaves]
    ((found,),) = _run(process, [(updates, np.arange(1, _COHORT + 1))])
    np.testing.assert_allclose(found, robust_mean.combine(aggregator, 0.2, leaves), rtol=1e-6)


@pytest.mark.parametrize(("name", "aggregator"), _accepted("secure", _KINDS))
def test_secure_sums_nothing_in_the_clear(name, aggregator):
    process = _process(name, aggregator).next
    tff.test.assert_not_contains_unsecure_aggregation(process)
    tff.test.assert_contains_secure_aggregation(process)


def _cohort(rng, with_rare):
    """Returns a round of ten: one in cluster 2, sometimes; of those in cluster 1 one is long."""
    updates, weights = [], []
    for i in range(_COHORT):
        direction = rng.normal(size=4)
        direction[0] = abs(direction[0]) + 3.0
        direction /= np.linalg.norm(direction)
        rare = with_rare and i == 0
        change = (10.0 if i == _COHORT - 1 else 1.0) * direction
        updates.append(_update("hypcluster", change[:2], change[2:], cluster=int(rare)))
        weights.append(rng.integers(1, 9))
    return updates, weights


@pytest.mark.slow
@pytest.mark.parametrize("aggregator", ["robust", "secure"])
def test_a_rare_cluster_still_learns_after_many_rounds(aggregator):
    rng = np.random.default_rng(0)
    plan = [_cohort(rng, with_rare=number % 3 == 1) for number in range(20)]
    found = _run(_process("hypcluster", aggregator), plan)[-1]
    exact = _run(_process("hypcluster", "mean"), plan[-1:])[0]
    (common, rare), (common_mean, rare_mean) = (
        _lengths(models, mass) for models, mass in (found, exact)
    )
    np.testing.assert_allclose(found[1], exact[1], rtol=1e-5)
    assert rare > 0.95 * rare_mean
    assert common < 0.85 * common_mean, "the long one is clipped"


def _lengths(changes, mass):
    """Returns the length of each cluster's mean change; no one is in the third."""
    flat = np.concatenate([leaf.reshape(3, -1) for leaf in changes], axis=1)
    assert not flat[2].any()
    return np.linalg.norm(flat[:2], axis=1) / mass[:2]


def test_one_cluster_is_fedavg():
    task = _task(2)
    alone = toy.like(registry.PARAMS, HypCluster).build(task, [task.model.initial_weights(0)])
    process = _cached_process("robust", tff_backend.type_of(alone.initial_weights), alone.groups)
    changes = [_update("fedavg_adam", [i, 1.0], [0.1, -i]) for i in range(6)]
    weights = [100.0 * (1 + i) for i in range(6)]
    scattered = [(tuple(leaf[None] for leaf in u), np.ones(1, np.float32)) for u in changes]
    found = _run(process, [(scattered, weights)] * 3)
    expected = _run(_process("fedavg_adam", "robust"), [(changes, weights)] * 3)
    for (models, mass), update in zip(found, expected, strict=True):
        assert mass == 1.0
        for leaf, other in zip(models, update, strict=True):
            np.testing.assert_array_equal(leaf[0], other)


def test_fedavg_beside_another_half_is_as_alone():
    """FedPer's shared layers do not use up the length that FedAvg's half may have."""
    changes = [((1.0, 1.0), (0.5, 0.5)), ((0.1, 0.2), (0.1, 0.0)), ((2.0, 0.0), (0.0, 1.0))]
    expected = [_update("fedavg_adam", *c) for c in changes]
    both = [(u, (100.0 * u[0],)) for u in expected]
    found = _run(_process("fedper", "robust"), [(both, [1, 2, 3])] * 2)
    alone = _run(_process("fedavg_adam", "robust"), [(expected, [1, 2, 3])] * 2)
    for (mine, _), other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.slow
def test_without_zeros_the_bounds_are_those_of_tff():
    """A group that everybody is in, as one that somebody might be outside of."""
    built = tff_aggregators.build("robust", 0.0, _COHORT)
    value_type = tff_backend.type_of(_task(2).model.initial_weights(0))
    rng = np.random.default_rng(0)
    plan = []
    # At last some are as long as to be zeroed. (Who is zeroed is not counted in what comes after.)
    for longest in (3.0, 3.0, 3.0, 60.0):
        sizes = np.geomspace(0.1, longest, _COHORT)
        updates = [_update("fedavg_adam", *(size * rng.random((2, 2)))) for size in sizes]
        plan.append((updates, 10.0 ** rng.integers(1, 5, _COHORT)))
    weight_type = tff.TensorType(np.float32)
    whole, partial = (
        _run(factory.create(value_type, weight_type), plan)
        for factory in (built.whole, built.partial)
    )
    for a, b in zip(tf.nest.flatten(whole), tf.nest.flatten(partial), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6)


def test_secure_is_silent():
    """TensorFlow says of an assertion of TFF's that nobody used it; all else is heard."""
    said = []
    logger = logging.getLogger("tensorflow")
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logger.addHandler(handler)
    try:
        tff_aggregators.build("secure", 0.0, _COHORT).process(tff.TensorType(np.float32, [3]))
        gc.collect()
        logger.error("Object was never used, and something else")
    finally:
        logger.removeHandler(handler)
    assert said == ["Object was never used, and something else"]


def test_refusals():
    for name, aggregators in registry.REFUSED.items():
        if name.startswith("hypcluster"):
            for aggregator in aggregators:
                with refused("aggregator", aggregator, "outside a cluster"):
                    _process(name, aggregator)


def test_every_algorithm_and_aggregator_is_covered():
    (aggregators,) = (o for o in options.options(BackendConfig) if o.field == "aggregator")
    bounding = {*aggregators.choices} - {"mean", *robust_mean.NAMES}
    assert set(registry.AGGREGATORS) == bounding
    every = {name for name, refused in registry.REFUSED.items() if set(refused) == bounding}
    algorithms = {*registry.TRAINING, *registry.STATEFUL} - {*registry.INSTALLED}
    assert {*registry.AGGREGATED, *every} == algorithms


def _private(noise, updates):
    """Returns the mean of updates, float32 [n] each, of ten clients that were asked."""
    built = tff_aggregators.build("differentially_private", noise, _COHORT)
    process = built.process(tff.to_type((tff.TensorType(np.float32, [len(updates[0])]),)))
    ((mean,),) = _run(process, [([(u,) for u in updates], [1.0] * len(updates))])
    return mean


@pytest.mark.filterwarnings("ignore:A significant amount of noise")  # We say how much.
def test_a_private_sum_has_the_noise_that_is_on_record():
    """TFF's first clipping norm is 0.1; 20,000 numbers tell the deviation to half a percent."""
    noise = private_mean.added_noise(0.9, _COHORT) * 0.1 / _COHORT
    mean = _private(0.9, np.zeros((_COHORT, 20_000), np.float32))
    assert np.std(mean) == pytest.approx(noise, rel=0.02)


def test_a_private_mean_clips_what_is_long_and_divides_by_who_was_asked():
    """Zeroing, by a threshold without noise, would leave nothing of the first."""
    mean = _private(0.0, np.array([[1e6, 0], [0, 0.05], [0, 0]], np.float32))
    np.testing.assert_allclose(mean, [0.1 / _COHORT, 0.05 / _COHORT], rtol=1e-5)
