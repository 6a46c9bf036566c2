"""Every algorithm gives the same numbers on every backend: 1e-5 relative."""

import numpy as np
import pytest
import tensorflow as tf

from motley_tff import algorithms
from motley_tff.algorithms.personal_training import SiloAlgorithm
from motley_tff.backends import base, stacked_loop, stacking, vectorized
from motley_tff.core import random_streams
from motley_tff.evaluation import client_scores
from tests import toy
from tests.contracts import registry

# The reference in several threads is in `backends/test_sequential`.
_OTHERS = [name for name in registry.BACKENDS if name not in (registry.REFERENCE, "parallel")]


@pytest.fixture(scope="module")
def task():
    return toy.classifier_task(3, (7, 20, 7))


@pytest.fixture(scope="module")
def silos():
    """Silos whose short last batches are dropped; one is smaller than a batch."""
    rng = np.random.default_rng(1)
    sizes = {"a": 11, "b": 3, "c": 24}
    numbers = {name: rng.normal(size=n) for name, n in sizes.items()}
    return toy.scalar_task(numbers, initial=0.3, drop_remainder=True, setting="cross_silo")


@pytest.fixture(scope="module")
def backend(request):
    with registry.BACKENDS[request.param]() as opened:
        yield opened


def _compared(names, quick=(), on_tff=()):
    """Parametrizes over every name on the vectorized backend, some on TFF's, slow but for `quick`.

    TFF runs a client as the reference does (`client_loop`); what may go wrong there is how models,
    states and updates of one structure or another come and go.
    """
    on_tff = [*on_tff, *(name for name in names if name in registry.INSTALLED)]
    cases = [("vectorized", name) for name in names] + [("tff", name) for name in on_tff]
    return pytest.mark.parametrize(
        ("backend", "name"),
        [pytest.param(*c, marks=[] if c[1] in quick else pytest.mark.slow) for c in cases],
        indirect=["backend"],
        scope="module",
    )


_on_both = pytest.mark.parametrize("backend", _OTHERS, indirect=True, scope="module")


@pytest.fixture()
def several_groups(monkeypatch):
    """Clients of similar size are stacked, however little is saved; elsewhere all are one stack."""
    monkeypatch.setattr(stacking, "MAX_PADDING_NUMBERS", 0)
    group, made = stacking.groups, []
    monkeypatch.setattr(
        stacking, "groups", lambda *args, **named: made.append(group(*args, **named)) or made[-1]
    )
    yield
    assert not made or any(len(groups) > 1 for groups in made)


def _train(backend, task, build, changing=False):
    """Returns a `toy.Run` of three rounds, in the second of which a client may stay away."""
    process = backend.training(task, build(task, task.model.initial_weights(7)))
    plan = []
    for number in (1, 2, 3):
        ids = task.train.ids[1:] if changing and number == 2 else task.train.ids
        plan.append(base.Round(number, ids, random_streams.key(5, "local_training", number)))
    return toy.run(process, plan)


@_compared(registry.STATEFUL, ["mr_mtl"], ["mr_mtl", "fedstc", "mocha", "persfl"])
def test_stateful_training(backend, name, silos, request):
    if name == "mr_mtl":
        request.getfixturevalue("several_groups")
    silos = toy.with_pair(silos, width=5) if name in registry.OF_ARRAYS else silos

    def compute(backend):
        run = _train(backend, silos, registry.STATEFUL[name], name == "mr_mtl")
        return run.weights, run.client_states

    expected, expected_states = _reference(("stateful", name), compute)
    found, states = compute(backend)
    assert list(states) == list(silos.train.ids)
    _assert_close((found, states), (expected, expected_states))
    sums = {sum(float(np.sum(leaf)) for leaf in tf.nest.flatten(s)) for s in states.values()}
    assert len(sums) == len(states)


def _assert_close(found, expected):
    for a, b in zip(tf.nest.flatten(expected), tf.nest.flatten(found), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


# A model that is the state itself, a mixture with the global one, a last layer.
@_compared(["ditto", "apfl", "fedper"], ["ditto"], ["fedper"])
def test_personal_models_are_scored_alike(backend, name, silos):
    def compute(backend):
        algorithm = registry.STATEFUL[name](silos, silos.model.initial_weights(7))
        weights = tf.nest.map_structure(np.asarray, algorithm.initial_weights)
        ids = silos.valid.ids[::-1]
        # Any states do, as long as they differ.
        states = [
            tf.nest.map_structure(
                lambda leaf, i=i: np.asarray(leaf) + np.float32(0.1 * i),
                algorithm.initial_client_state(i),
            )
            for i in range(len(ids))
        ]
        scoring = SiloAlgorithm().personalization(silos, algorithm)
        work = scoring.work(("valid", "test", "train"), "train")
        key = random_streams.key(5, "personalization", 3)
        return list(
            backend.map_clients(
                base.ClientCall(silos, work, weights, silos.valid, ids, key, states)
            )
        )

    expected, found = _reference(("personal", name), compute), compute(backend)
    assert [client for client, _ in found] == [client for client, _ in expected]
    # Stacks have padding behind the examples, which goes here.
    arrays = [client_scores.stack([m for _, m in each], True) for each in (found, expected)]
    _assert_close(*arrays)


def _personalize(backend, task, name, group, part):
    work = registry.PERSONALIZATIONS[name](task).work(group, part)
    key = random_streams.key(5, "personalization", 3)
    weights = registry.BROADCASTS.get(name, lambda w: w)(task.model.initial_weights(7))
    call = base.ClientCall(task, work, weights, task.valid, task.valid.ids[::-1], key)
    return list(backend.map_clients(call))


_reference_cache = {}


def _reference(name, compute):
    if name not in _reference_cache:
        with registry.BACKENDS[registry.REFERENCE]() as opened:
            _reference_cache[name] = compute(opened)
    return _reference_cache[name]


def test_every_registered_algorithm_is_compared(task, silos):
    silos = toy.with_pair(silos)
    weights, own = task.model.initial_weights(0), silos.model.initial_weights(0)
    compared = {build(task, weights).name for build in registry.TRAINING.values()}
    compared |= {build(silos, own).name for build in registry.STATEFUL.values()}
    # Central training is FedAvg with one client.
    federated = {n for n, kind in algorithms.TRAINING.items() if not kind.card.is_central}
    assert compared == federated


@_compared(
    registry.TRAINING,
    ["fedavg_fedavgm", *registry.INSTALLED],
    ["fedavg_fedavgm", "fedavg_adam", "hypcluster_shared"],
)
def test_training(backend, name, task, request):
    if name == "fedavg_fedavgm":
        request.getfixturevalue("several_groups")
    build = registry.TRAINING[name]
    changing = name == "fedavg_adam"
    expected = _reference(("training", name), lambda b: _train(b, task, build, changing))
    found = _train(backend, task, build, changing)
    _assert_close(found.weights, expected.weights)
    for number, (a, b) in enumerate(zip(expected.results, found.results, strict=True), 1):
        assert (b.number, b.num_clients) == (number, a.num_clients)
        assert b.means == pytest.approx(a.means, rel=1e-5)


@_compared(registry.PERSONALIZATIONS, ["finetuning"], ["finetuning", "knn_per"])
def test_personalization(backend, name, task):
    def compute(backend):
        return _personalize(backend, task, name, ("evaluation",), "personalization")

    expected, found = _reference(name, compute), compute(backend)
    assert [client for client, _ in found] == [client for client, _ in expected]
    for (_, a), (_, b) in zip(expected, found, strict=True):
        assert a["num_examples"] == b["num_examples"] and a.get("cluster") == b.get("cluster")
        _assert_close(b["curves"], a["curves"])


@pytest.mark.slow
@_on_both
def test_personalization_of_silos(backend, silos):
    def compute(backend):
        return _personalize(backend, silos, "finetuning", ("valid", "test"), "train")

    expected, found = _reference("silos", compute), compute(backend)
    for (_, a), (_, b) in zip(expected, found, strict=True):
        _assert_close(b["curves"], a["curves"])


def _stacked_works(silos):
    """Yields (name, client work, what the server sends, a client's state) of all that take rows."""
    weights = silos.model.initial_weights(7)
    for name, build in {**registry.TRAINING, **registry.STATEFUL}.items():
        built = build(silos, weights)
        state = () if built.initial_client_state is None else built.initial_client_state(0)
        yield name, built.work, built.initial_weights, state
        if built.personal_model is not None:
            scored = algorithms.TRAINING[built.name]().personalization(silos, built)
            work = scored.work(("valid", "test"), "train")
            yield f"{name}'s own models", work, built.initial_weights, state
    for name, build in registry.PERSONALIZATIONS.items():
        if name != "knn_per":  # The model has no representations.
            work = build(silos).work(("valid", "test"), "train")
            yield name, work, registry.BROADCASTS.get(name, lambda w: w)(weights), ()


@pytest.mark.parametrize(
    "names", [("finetuning",), pytest.param((), marks=pytest.mark.slow, id="all")]
)
def test_a_client_that_diverges_changes_nothing_of_the_others(names):
    numbers = {"good": [1.0, 2.0, 0.5], "bad": [1.0, np.inf], "fine": [-3.0] * 5}
    task = toy.with_pair(toy.scalar_task(numbers, setting="cross_silo"))
    works = [w for w in _stacked_works(task) if w[0] in names or (not names and w[1].takes_rows)]
    assert len(works) >= (len(names) or 25)
    for name, *work in works:
        _check_that_rows_do_not_meet(task, name, *work)


def _check_that_rows_do_not_meet(task, name, work, sent, state):
    def outputs(ids):
        stack = stacking.build(task.train, ids, work.parts)
        leaves = tf.nest.map_structure(lambda a: np.asarray(a)[None], sent)
        own = tf.nest.map_structure(lambda a: np.stack([[np.asarray(a)] * len(ids)]), state)
        key = random_streams.key(5, "local_training", 1)[None]

        def run(*args):
            return stacked_loop.run_stack(task, lambda _: work, work, {}, *args)

        args = tf.nest.map_structure(tf.convert_to_tensor, (leaves, own, stack, key))
        return tf.nest.flatten(vectorized.Program(run)(False, *args))

    together, without = outputs(["good", "bad", "fine"]), outputs(["good", "fine"])
    for found, expected in zip(together, without, strict=True):
        np.testing.assert_allclose(found.numpy()[:, [0, 2]], expected, rtol=1e-6, err_msg=name)
    assert not all(np.isfinite(leaf.numpy()[:, 1]).all() for leaf in together)


@_on_both
@pytest.mark.usefixtures("several_groups")
def test_divergence(backend):
    task = toy.scalar_task({"good": [1.0], "bad": [1.0, 2.0, np.inf]})
    algorithm = registry.TRAINING["fedprox"](task, task.model.initial_weights(0))
    process = backend.training(task, algorithm)
    plan = [base.Round(4, task.train.ids, random_streams.key(0, "local_training", 4))]
    with pytest.raises(base.DivergedError, match="round 4.*'bad'"):
        process.next(process.initialize(), plan)
