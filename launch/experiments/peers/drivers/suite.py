"""This project's own algorithms, on its sequential backend."""

import dataclasses

import numpy as np
import problem
import tensorflow as tf
from cells import cell, fate, main

import motley_tff
from datasets import label_partition
from motley_tff import algorithms
from motley_tff.algorithms.optimizers import OptimizerConfig
from motley_tff.backends import base, sequential
from motley_tff.core import clients, functional_model, random_streams, task

SGD = OptimizerConfig("sgd", problem.RATE)


class _Products(tf.keras.Model):
    """x times each of its weights."""

    def __init__(self, num_weights):
        super().__init__()
        self.num_weights = num_weights

    def call(self, x, training=False, key=None):
        for _ in range(self.num_weights):
            x = x * tf.Variable(0.0, trainable=True)
        return x


def silos(initial=(problem.W0,), labels=problem.Y, sizes=problem.SIZES):
    def rows(i):
        x, y = np.full(sizes[i], problem.X[i]), np.full(sizes[i], labels[i])
        return {"x": x.astype(np.float32), "y": y.astype(np.float32)}

    parts = {f"{i}": dict.fromkeys(("train", "valid", "test"), rows(i)) for i in range(3)}
    data = clients.InMemoryClients(parts)

    def loss(y, outputs):
        return tf.square(outputs - y), tf.ones_like(y)

    model = functional_model.FunctionalModel(
        lambda: _Products(len(initial)),
        tuple(f"layer_{i}/kernel:0" for i in range(len(initial))),
        ((),) * len(initial),
        (False,) * (len(initial) - 1) + (True,),
        tuple(tf.keras.initializers.Constant(w) for w in initial),
    )
    return task.Task(
        "silos",
        "cross_silo",
        model,
        loss,
        (task.Metric("squared_error", loss, False),),
        lambda raw, training, key: (raw["x"], raw["y"]),
        data,
        data,
        data,
    )


def run(
    kind, look=None, initial=(problem.W0,), start=None, client=SGD, server=None, data=(), **own
):
    own = {"server_optimizer": server or OptimizerConfig("sgd", 1.0), **own}
    if "personal_optimizer" in {field.name for field in dataclasses.fields(kind)}:
        own.setdefault("personal_optimizer", SGD)
    algorithm = kind(client_optimizer=client, train_batch_size=problem.BATCH, train_epochs=1, **own)
    a_task = silos(initial, **dict(data))
    built = algorithm.build(a_task, start or a_task.model.initial_weights(0))
    process = sequential.SequentialBackend().training(a_task, built)
    state, seen = process.initialize(), []
    for number in range(1, problem.ROUNDS + 1):
        key = random_streams.key(0, "local_training", number)
        state, _ = process.next(state, [base.Round(number, tuple(a_task.train.ids), key)])
        view = _View(process, state, built)
        seen.append((look or _View.shared)(view))
    return seen


class _View:
    def __init__(self, process, state, algorithm):
        self.weights, self.states = process.weights(state), process.client_states(state)
        self.algorithm = algorithm

    def shared(self):
        return [np.ravel(w) for w in tf.nest.flatten(self.weights)]

    def models(self):
        return np.ravel(tf.nest.flatten(self.weights)[0])

    def own(self):
        models = [self.algorithm.personal_model(self.weights, s) for s in self.states.values()]
        return [[float(w) for w in model] for model in models]

    def kept(self):
        return [[float(w) for w in tf.nest.flatten(s)] for s in self.states.values()]


@cell("fedavg", weighted_by="examples")
def _():
    return run(algorithms.FedAvg)


@cell("last_batch", weighted_by="examples")
def _():
    return run(algorithms.FedAvg, data={"sizes": problem.LAST_OF_ONE})


@cell("diverged_client", weighted_by="examples")
def _():
    return run(algorithms.FedAvg, data={"labels": (*problem.Y[:2], float("nan"))})


@cell("client_momentum", weighted_by="examples")
def _():
    return run(algorithms.FedAvg, client=OptimizerConfig("momentum", problem.RATE))


@cell("fedprox", weighted_by="examples")
def _():
    return run(algorithms.TRAINING["fedprox"], proximal_strength=problem.MU)


@cell("fedsgd", weighted_by="examples")
def _():
    return run(algorithms.TRAINING["fedsgd"], server=SGD)


_BETAS = {"beta_1": problem.BETA_1, "beta_2": problem.BETA_2}
for _name, _more in {"adam": _BETAS, "yogi": _BETAS, "adagrad": {}}.items():
    _optimizer = OptimizerConfig(_name, problem.SERVER_RATE, {"epsilon": problem.TAU, **_more})
    cell("fed" + _name, weighted_by="examples")(
        lambda optimizer=_optimizer: run(algorithms.FedAvg, server=optimizer)
    )


@cell("fedavgm", weighted_by="examples")
def _():
    return run(algorithms.FedAvg, server=OptimizerConfig("fedavgm", 1.0))


@cell("ditto.personal", weighted_by="examples")
def _():
    return run(algorithms.Ditto, _View.own, regularization=problem.LAMBDA)


@cell("apfl.own", weighted_by="examples")
def _():
    return run(algorithms.Apfl, _View.kept, alpha=problem.ALPHA)


_PFEDME = {"regularization": problem.LAMBDA, "inner_steps": problem.PFEDME_STEPS}
cell("pfedme.global", weighted_by="examples")(lambda: run(algorithms.PFedMe, **_PFEDME))
cell("pfedme.personal", weighted_by="examples")(
    lambda: run(algorithms.PFedMe, _View.own, **_PFEDME)
)


@cell("per_fedavg", weighted_by="examples")
def _():
    return run(algorithms.PerFedAvg)


_PAIR = (problem.BASE0, problem.LAST0)


@cell("fedper.newest", weighted_by="examples")
def _():
    return run(algorithms.FedPer, _View.own, _PAIR)


@cell("fedrep.newest", weighted_by="examples")
def _():
    return run(algorithms.FedRep, _View.own, _PAIR, head_epochs=1)


@cell("fedbabu.global", weighted_by="examples")
def _():
    return run(algorithms.TRAINING["fedbabu"], initial=_PAIR)


@cell("ifca", weighted_by="examples")
def _():
    start = [(np.float32(w),) for w in problem.CENTRES]
    return run(algorithms.TRAINING["hypcluster"], _View.models, start=start, num_clusters=2)


def _evaluated(silos_of_hits):
    """Returns the means of a run, where a label says whether an answer is right."""

    def hits(y, predictions):
        return y, tf.ones_like(y)

    parts = {}
    for i, y in enumerate(silos_of_hits):
        rows = {"x": np.ones(len(y), np.float32), "y": np.array(y, np.float32)}
        parts[f"{i}"] = dict.fromkeys(("train", "valid", "test"), rows)
    data = clients.InMemoryClients(parts)
    metrics = (task.Metric("accuracy", hits, True),)
    scored = dataclasses.replace(silos(), metrics=metrics, train=data, valid=data, test=data)
    result = motley_tff.run(scored, algorithms.Local(client_optimizer=SGD), rounds=1)
    return result.summary


@cell("accuracy", "its run and summary")
def _():
    pairs = zip(problem.HITS, problem.COUNTS)
    table = _evaluated([[1.0] * hits + [0.0] * (count - hits) for hits, count in pairs])
    return [table[table.split == "test"].iloc[-1]["baseline_mean"]]


_LABELS = np.arange(1000) % 10


def _deal(text):
    stream = np.random.default_rng(7)
    partition = label_partition.parse(text)
    counts = label_partition.draw(partition, np.full(10, 100), 7, stream)
    return label_partition.deal(counts, _LABELS, stream)


cell("dirichlet", "its partition")(lambda: fate(lambda: _deal("dirichlet:0.5")))
cell("shards", "its partition into two classes a client")(lambda: fate(lambda: _deal("classes:2")))
main()
