"""What the contract tests run over. A new algorithm, personalization or backend adds a line."""

import contextlib

import numpy as np

from motley_tff.algorithms import (
    apfl,
    ditto,
    fedavg,
    fedper,
    fedprox,
    fedsgd,
    finetuning,
    hypcluster,
    knn_per,
    local,
    mocha,
    mr_mtl,
    optimizers,
    per_fedavg,
    pfedme,
)
from motley_tff.backends import sequential, vectorized


def _config(name, rate, **parameters):
    return optimizers.OptimizerConfig(name, rate, parameters)


PARAMS = fedavg.Params(
    client_optimizer=_config("sgd", 0.1),
    server_optimizer=_config("adam", 0.03, beta_1=0.9, beta_2=0.99, epsilon=1e-3),
    train_epochs=2,
    train_batch_size=4,
)
_MOMENTUM = fedavg.Params(
    client_optimizer=_config("momentum", 0.05, momentum=0.5),
    server_optimizer=_config("fedavgm", 2.0, momentum=0.9),
    train_epochs=1,
    train_batch_size=5,
)


def several_models(weights):
    """Returns three models whose losses differ, also with the first one's base.

    (A last layer that is shifted by the same number everywhere has the same softmax.)
    """
    factors = ((1.0, 0.0), (0.3, 0.4), (-0.7, -0.6))
    return [tuple(w * np.float32(a) + np.float32(b) for w in weights) for a, b in factors]


# name -> builder(task, initial weights)
TRAINING = {
    "fedavg_adam": lambda task, w: fedavg.build(task, PARAMS, w),
    "fedavg_fedavgm": lambda task, w: fedavg.build(task, _MOMENTUM, w),
    "fedprox": lambda task, w: fedprox.build(task, PARAMS, w, 0.5),
    "fedsgd": lambda task, w: fedsgd.build(task, PARAMS, w),
    "per_fedavg": lambda task, w: per_fedavg.build(
        task, per_fedavg.Params(_MOMENTUM, _config("sgd", 0.1)), w
    ),
    "hypcluster": lambda task, w: hypcluster.build(
        task, hypcluster.Params(PARAMS), several_models(w)
    ),
    "hypcluster_shared": lambda task, w: hypcluster.build(
        task, hypcluster.Params(PARAMS, shares_base_layers=True), several_models(w)
    ),
}

# Algorithms whose clients keep a state; on silos.
_OWN = _config("sgd", 0.2)
STATEFUL = {
    "local": lambda task, w: local.build(task, local.Params(PARAMS, _OWN), w),
    "ditto": lambda task, w: ditto.build(task, ditto.Params(PARAMS, _OWN, 0.5), w),
    "mocha": lambda task, w: mocha.build(task, mocha.Params(PARAMS, _OWN, 0.5, outer=2), w),
    "mr_mtl": lambda task, w: mr_mtl.build(task, mr_mtl.Params(_MOMENTUM, _OWN, 0.5), w),
    "apfl": lambda task, w: apfl.build(task, apfl.Params(PARAMS, _OWN, 0.3), w),
    "fedper": lambda task, w: fedper.build(task, fedper.Params(PARAMS, _OWN), w),
    "pfedme": lambda task, w: pfedme.build(task, pfedme.Params(_MOMENTUM, _OWN, 2.0, 3), w),
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
        for name in ("fedavg_adam", "fedavg_fedavgm", "fedprox", "fedsgd", "per_fedavg")
    },
    **{
        name: (STATEFUL[name], lambda change, cluster: (change, ()))
        for name in ("local", "ditto", "apfl")
    },
    "pfedme": (STATEFUL["pfedme"], lambda change, cluster: change),
    "fedper": (STATEFUL["fedper"], _halves),
    "hypcluster": (TRAINING["hypcluster"], _scattered),
    "hypcluster_shared": (TRAINING["hypcluster_shared"], _scattered),
}
# name -> the aggregators that it refuses.
REFUSED = {
    "hypcluster": ("differentially_private",),
    "hypcluster_shared": ("differentially_private",),
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
    "finetuning": lambda task: finetuning.build(
        task, finetuning.Params(_config("sgd", 1.0), (0.1,), max_epochs=3, batch_size=4)
    ),
    "finetuning_rates": lambda task: finetuning.build(
        task, finetuning.Params(_config("adam", 1.0), (0.01, 0.1), max_epochs=2, batch_size=4)
    ),
    "hypcluster": lambda task: hypcluster.personalization(task, 3),
    "knn_per": lambda task: knn_per.build(task, knn_per.Params((2, 5), (0.3, 1.0))),
    "finetuning_last_layer": lambda task: finetuning.build(
        task,
        finetuning.Params(_config("sgd", 1.0), (0.1,), 2, batch_size=4, last_layer=True),
    ),
}


@contextlib.contextmanager
def _tff():
    from motley_tff.backends import tff_backend, tff_worker

    with tff_worker.tff_runtime():
        yield tff_backend.TffBackend()


# name -> context manager of a backend; the first is the reference.
BACKENDS = {
    "sequential": lambda: contextlib.nullcontext(sequential.SequentialBackend()),
    "parallel": lambda: contextlib.nullcontext(sequential.SequentialBackend(parallel_clients=3)),
    "vectorized": lambda: contextlib.nullcontext(vectorized.VectorizedBackend()),
    "tff": _tff,
}
REFERENCE = "sequential"
