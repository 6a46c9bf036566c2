"""What the contract tests run over. A new algorithm, personalization or backend adds a line.

Those of installed packages add themselves, with the hyperparameters that they have by default.
"""

import contextlib
import dataclasses

import numpy as np
import tensorflow as tf

from motley_tff import algorithms
from motley_tff.algorithms import (
    Apfl,
    Ditto,
    FedAvg,
    FedBabu,
    FedBn,
    FedDyn,
    FedNova,
    FedPer,
    FedProx,
    FedRep,
    FedSgd,
    FedStc,
    FedStcServer,
    FineTuning,
    HypCluster,
    KnnPer,
    Local,
    LpFt,
    Mocha,
    MrMtl,
    PerFedAvg,
    PersFL,
    PFedMe,
    ProximalFineTuning,
    Scaffold,
    optimizers,
)
from motley_tff.backends import sequential, vectorized
from tests import toy


def _config(name, rate, **parameters):
    return optimizers.OptimizerConfig(name, rate, parameters)


PARAMS = FedAvg(
    client_optimizer=_config("sgd", 0.1),
    server_optimizer=_config("adam", 0.03, beta_1=0.9, beta_2=0.99, epsilon=1e-3),
    train_epochs=2,
    train_batch_size=4,
)
_MOMENTUM = FedAvg(
    client_optimizer=_config("momentum", 0.05, momentum=0.5),
    server_optimizer=_config("fedavgm", 2.0, momentum=0.9),
    train_epochs=1,
    train_batch_size=5,
)
# The only kind of server under which MR-MTL's model is the mean.
_OF_GAIN_1 = dataclasses.replace(_MOMENTUM, server_optimizer=_config("fedavgm", 1.0, momentum=0.9))
# The only kind whose step is as sparse as FedSTC's update.
_SPARSE = dataclasses.replace(_MOMENTUM, server_optimizer=_config("sgd", 0.5))


def several_models(weights):
    """Returns three models whose losses differ, also with the first one's base.

    (A last layer that is shifted by the same number everywhere has the same softmax.)
    """
    factors = ((1.0, 0.0), (0.3, 0.4), (-0.7, -0.6))
    return [tuple(w * np.float32(a) + np.float32(b) for w in weights) for a, b in factors]


def _of(params, kind, **own):
    """Returns the builder of an algorithm with FedAvg's hyperparameters and others of its own."""
    algorithm = toy.like(params, kind, **own)
    return lambda task, w, change=_as_it_is: change(algorithm).build(task, w)


def _as_it_is(algorithm):
    return algorithm


def _of_models(params, **own):
    """Returns the builder of HypCluster on three models."""
    build = _of(params, HypCluster, **own)
    return lambda task, w, *change: build(task, several_models(w), *change)


# name -> builder(task, initial weights, what changes the algorithm, if anything)
TRAINING = {
    "fedavg_adam": _of(PARAMS, FedAvg),
    "fedavg_fedavgm": _of(_MOMENTUM, FedAvg),
    "fedprox": _of(PARAMS, FedProx, proximal_strength=0.5),
    "fedsgd": _of(PARAMS, FedSgd),
    "fednova": _of(_MOMENTUM, FedNova),
    "fedstc_server": _of(_SPARSE, FedStcServer, sparsity=0.4),
    "fedbabu": _of(PARAMS, FedBabu),
    "per_fedavg": _of(_MOMENTUM, PerFedAvg, personal_optimizer=_config("sgd", 0.1)),
    "hypcluster": _of_models(PARAMS),
    "hypcluster_shared": _of_models(PARAMS, shares_base_layers=True),
}

# Of these, the model needs layers below its last, of which a toy's first counts as a norm.
WITH_BASE = ("fedbabu", "fedbn")


def _silo(params, kind, **own):
    return _of(params, kind, personal_optimizer=_config("sgd", 0.2), **own)


# Algorithms whose clients keep a state; on silos.
STATEFUL = {
    "scaffold": _of(PARAMS, Scaffold),
    "feddyn": _of(PARAMS, FedDyn, dynamic_regularization=0.5),
    "fedstc": _of(_SPARSE, FedStc, sparsity=0.4),
    "local": _silo(PARAMS, Local),
    "ditto": _silo(PARAMS, Ditto, regularization=0.5),
    "mocha": _silo(PARAMS, Mocha, regularization=0.5, outer=2),
    "mr_mtl": _silo(_OF_GAIN_1, MrMtl, regularization=0.5),
    "apfl": _silo(PARAMS, Apfl, alpha=0.3),
    "fedper": _silo(PARAMS, FedPer),
    "fedrep": _silo(PARAMS, FedRep, head_epochs=3),
    "fedbn": _of(PARAMS, FedBn),
    "pfedme": _silo(_MOMENTUM, PFedMe, regularization=2.0, inner_steps=3),
    "persfl": _silo(PARAMS, PersFL),
}
# A residual of arrays of one number is always nothing: its model needs several. And a norm, layers
# to share.
OF_ARRAYS = ("fedstc", "fedbn")
# Of these, a silo of a cohort may keep its state: no better teacher came.
MAY_STAY = ("persfl", "fedstc")


def _keeps_states(kind):
    task = toy.with_pair(toy.scalar_task({"a": [1.0]}, setting="cross_silo"))
    return kind().build(task, task.model.initial_weights(0)).initial_client_state is not None


# Algorithms and personalizations of installed packages. They need state no law.
INSTALLED = tuple(algorithms.plugged())
for _name in INSTALLED:
    if _name in algorithms.TRAINING:
        _kind = algorithms.TRAINING[_name]
        (STATEFUL if _keeps_states(_kind) else TRAINING)[_name] = lambda task, w, kind=_kind: (
            kind().build(task, w)
        )

# --- laws: what stays true when clients are absent or slow ----------------------------------------

PLAIN = FedAvg(_config("sgd", 0.2), _config("sgd", 1.0), 2, 4)
# Passes with shuffles of their own do the same only on full batches.
_FULL = dataclasses.replace(PLAIN, train_batch_size=100)
_ONE_STEP = FedAvg(_config("sgd", 1.0), _config("sgd", 1.0), 1, 100)
_fedavg, _full_fedavg, _one_step = (_of(params, FedAvg) for params in (PLAIN, _FULL, _ONE_STEP))
_local, _full_local = (_silo(params, Local) for params in (PLAIN, _FULL))


def _of_one_model(**own):
    """Returns the builder of HypCluster on the one model that it is given."""
    return lambda task, w: toy.like(PLAIN, HypCluster, **own).build(task, [w])


def _of_global_model(run):
    return [run.algorithm.global_model(weights) for weights in run.weights]


def _of_own_models(run):
    return run.states


def _of_shared_layers(run):
    return [shared for _, shared in run.weights]


def _close(found, expected):
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(np.ravel(a), np.ravel(b), rtol=1e-5, atol=1e-6)


def _gives_back(other, what, limit, expected=None):
    """Law: at some parameters (`limit`), the algorithm is another one, after every round."""

    def law(train):
        _close(what(train(limit)), (expected or what)(train(other)))

    return law


def _mean_of_the_cohort(train):
    """Law: from one model, a round's is the weighted mean of what each client alone makes of it."""
    together = train(_fedavg)
    (weights,) = together.weights[0]
    cohort = together.cohorts[0]
    alone = [train(_fedavg, [(client_id,)]).weights[0][0] for client_id in cohort]
    sizes = [together.sizes[client_id] for client_id in cohort]
    _close(weights, np.average(alone, axis=0, weights=sizes))


def _first_body_is_fedavgs(train):
    """Law: of one full step a round, FedBABU's first body is FedAvg's; its head stays."""
    run = train(_of(_ONE_STEP, FedBabu), with_base=True)
    expected = train(_one_step, with_base=True)
    (body, head), (fedavgs_body, fedavgs_head) = run.weights[0], expected.weights[0]
    _close(body, fedavgs_body)
    assert fedavgs_head.item() != head.item()
    assert {weights[1].item() for weights in run.weights} == {head.item()}
    assert len({weights[0].item() for weights in run.weights}) == len(run.weights)


def _of_one_silo_is_fedavg(train):
    """Law: FedBN of one silo is FedAvg; of several, who is absent keeps its norms (below)."""
    alone = [("c",)] * 3
    run = train(_of(PLAIN, FedBn), alone, with_base=True)
    expected = train(_fedavg, alone, with_base=True)
    pairs = zip(run.weights, run.states, strict=True)
    _close([run.algorithm.personal_model(w, s["c"]) for w, s in pairs], expected.weights)


def _mean_of_all_silos(train):
    """Law: MR-MTL's model is the mean of all silos' models, also of those who were absent."""
    run = train(_silo(PLAIN, MrMtl, regularization=0.5))
    for found, states in zip(_of_global_model(run), run.states, strict=True):
        sizes = [run.sizes[i] for i in states]
        leaves = zip(*states.values(), strict=True)
        _close(found, [np.average(leaf, axis=0, weights=sizes) for leaf in leaves])


def _rows_are_the_silos_models(train):
    """Law: Mocha's server sends relations of all silos' models, also of those who were absent.

    And lambda = 0 is local training.
    """
    run = train(STATEFUL["mocha"])
    for (_, (own, (others,))), states in zip(run.weights, run.states, strict=True):
        relations = run.algorithm.matrices(list(states.values()))["relations"]
        rows = np.array([np.ravel(model) for (model,) in states.values()])
        _close(own, np.diag(relations))
        _close(others, (relations - np.diag(own)) @ rows)
    without = _silo(PLAIN, Mocha, regularization=0.0)
    _gives_back(_local, _of_own_models, without)(train)


def _variate_is_the_mean_of_all(train):
    """Law: SCAFFOLD's variate is the mean of all silos', also of those who were absent."""
    run = train(_of(PLAIN, Scaffold))
    for (_, found, _), states in zip(run.weights, run.states, strict=True):
        sizes = [run.sizes[i] for i in states]
        leaves = zip(*states.values(), strict=True)
        _close(found, [np.average(leaf, axis=0, weights=sizes) for leaf in leaves])


def _steps_by_the_mean_of_all(train):
    """Law: FedDyn's model is the mean of the cohort's less h / alpha, the mean of all silos'
    states, also of those who were absent.
    """
    run = train(_of(PLAIN, FedDyn, dynamic_regularization=0.5))
    previous, before = dict.fromkeys(run.sizes, 0.0), np.float32([[0.3]])
    for ((after,), (mean,), _), states, cohort in zip(
        run.weights, run.states, run.cohorts, strict=True
    ):
        totals = {client_id: leaf for client_id, (leaf,) in states.items()}
        _close(mean, np.mean(list(totals.values()), axis=0))
        changes = [totals[i] - previous[i] for i in cohort]  # w - w_i
        _close(after, before - np.mean(changes, axis=0) - mean)
        previous, before = totals, after


# name -> law(train); `train(builder, cohorts)` returns a `test_absence.Run` on slow silos, of which
# one or another is absent. Every algorithm above states one.
LAWS = {
    "fedavg_adam": _mean_of_the_cohort,
    "fedavg_fedavgm": _mean_of_the_cohort,
    "fedprox": _gives_back(_fedavg, _of_global_model, _of(PLAIN, FedProx, proximal_strength=0.0)),
    "fedsgd": _gives_back(_one_step, _of_global_model, _of(_ONE_STEP, FedSgd)),
    "fednova": _gives_back(_one_step, _of_global_model, _of(_ONE_STEP, FedNova)),
    "scaffold": _variate_is_the_mean_of_all,
    "feddyn": _steps_by_the_mean_of_all,
    # Of arrays of one number nothing is left out.
    "fedstc_server": _gives_back(_fedavg, _of_global_model, _of(PLAIN, FedStcServer)),
    "fedstc": _gives_back(_fedavg, _of_global_model, _of(PLAIN, FedStc)),
    "fedbabu": _first_body_is_fedavgs,
    "per_fedavg": _gives_back(
        _fedavg, _of_global_model, _of(PLAIN, PerFedAvg, personal_optimizer=_config("sgd", 0.0))
    ),
    "hypcluster": _gives_back(_fedavg, _of_global_model, _of_one_model()),
    "hypcluster_shared": _gives_back(
        _fedavg, _of_global_model, _of_one_model(shares_base_layers=True)
    ),
    "local": _gives_back(_fedavg, _of_global_model, _local),
    "ditto": _gives_back(_local, _of_own_models, _silo(PLAIN, Ditto, regularization=0.0)),
    "mocha": _rows_are_the_silos_models,
    "mr_mtl": _mean_of_all_silos,
    "apfl": _gives_back(_fedavg, _of_global_model, _silo(PLAIN, Apfl, alpha=0.3)),
    "fedper": _gives_back(
        _full_fedavg,
        _of_shared_layers,
        _of(_FULL, FedPer, personal_optimizer=_FULL.client_optimizer, personal_layers=0),
        _of_global_model,
    ),
    # With one layer, which stays with the silo, and one pass: local training on full batches.
    "fedrep": _gives_back(
        _full_local, _of_own_models, _silo(_FULL, FedRep, head_epochs=_FULL.train_epochs)
    ),
    "fedbn": _of_one_silo_is_fedavg,
    "persfl": _gives_back(_fedavg, _of_global_model, _of(PLAIN, PersFL)),
    "pfedme": _gives_back(
        _full_local, _of_own_models, _silo(_FULL, PFedMe, regularization=0.0, inner_steps=1)
    ),
}


def _halves(change, cluster):
    """FedPer's update: the model's, and that of all layers but the last."""
    return change, change[:-1]


def _scattered(change, cluster):
    """HypCluster's update: the change at its cluster's place of three, and where that is."""
    is_chosen = (np.arange(3) == cluster).astype(np.float32)
    return tuple(np.multiply.outer(is_chosen, leaf) for leaf in change), is_chosen


# TFF's aggregators that bound what a client sends.
AGGREGATORS = ("robust", "compressed", "secure", "differentially_private")
# name -> (builder, (a client's change of the model, its cluster) -> its update), of all that take
# such an aggregator.
AGGREGATED = {
    **{
        name: (TRAINING[name], lambda change, cluster: change)
        for name in TRAINING
        if not name.startswith(("hypcluster", "fedstc", "fednova")) and name not in INSTALLED
    },
    **{
        name: (STATEFUL[name], lambda change, cluster: (change, ()))
        for name in ("local", "ditto", "apfl")
    },
    "persfl": (STATEFUL["persfl"], lambda change, cluster: change),
    "pfedme": (STATEFUL["pfedme"], lambda change, cluster: change),
    "fedper": (STATEFUL["fedper"], _halves),
    "fedrep": (STATEFUL["fedrep"], _halves),
    "fedbn": (STATEFUL["fedbn"], lambda change, cluster: change[1:]),
    "hypcluster": (TRAINING["hypcluster"], _scattered),
    "hypcluster_shared": (TRAINING["hypcluster_shared"], _scattered),
}
# name -> the aggregators that it refuses.
REFUSED = {
    "hypcluster": ("differentially_private",),
    "hypcluster_shared": ("differentially_private",),
    "fednova": AGGREGATORS,
    "scaffold": AGGREGATORS,
    "feddyn": AGGREGATORS,
    "fedstc": AGGREGATORS,
    "fedstc_server": AGGREGATORS,
    "mocha": AGGREGATORS,
    "mr_mtl": AGGREGATORS,
}

# name -> what the work gets of the global model's weights, where it gets something else.
BROADCASTS = {
    "hypcluster": lambda w: (
        tuple(np.stack(leaf) for leaf in zip(*several_models(w), strict=True)),
        np.zeros(3, np.float32),
    ),
}

# name -> builder(task)
PERSONALIZATIONS = {
    "finetuning": lambda task: FineTuning(
        _config("sgd", 1.0), (0.1,), max_epochs=3, batch_size=4
    ).build(task),
    "finetuning_rates": lambda task: FineTuning(
        _config("adam", 1.0), (0.01, 0.1), max_epochs=2, batch_size=4
    ).build(task),
    "lp_ft": lambda task: LpFt(
        _config("momentum", 1.0, momentum=0.5), (0.05, 0.1), 3, batch_size=4, probing_epochs=2
    ).build(task),
    "proximal": lambda task: ProximalFineTuning(
        _config("sgd", 1.0), (0.1, 0.2), max_epochs=2, batch_size=4, strength=0.5
    ).build(task),
    "hypcluster": lambda task: HypCluster(num_clusters=3).personalization(task, None),
    "knn_per": lambda task: KnnPer((2, 5), (0.3, 1.0)).build(task),
    "finetuning_last_layer": lambda task: FineTuning(
        _config("sgd", 1.0), (0.1,), 2, batch_size=4, last_layer=True
    ).build(task),
    **{
        name: lambda task, kind=kind: kind().build(task)
        for name, kind in algorithms.PERSONALIZATIONS.items()
        if name in INSTALLED
    },
}


@contextlib.contextmanager
def _tff():
    from motley_tff.backends.tff import backend as tff_backend
    from motley_tff.backends.tff.runtime import tff_runtime

    with tff_runtime():
        yield tff_backend.TffBackend()


def _always(times, numbers):
    """What is compiled: all, where the first rounds would not be."""
    return True


# name -> context manager of a backend; the first is the reference.
BACKENDS = {
    "sequential": lambda: contextlib.nullcontext(sequential.SequentialBackend()),
    "parallel": lambda: contextlib.nullcontext(sequential.SequentialBackend(parallel_clients=3)),
    "vectorized": lambda: contextlib.nullcontext(vectorized.VectorizedBackend(_always)),
    "tff": _tff,
}
REFERENCE = "sequential"
