"""Tasks so small that expected numbers are arithmetic one can do by hand.

`scalar_task`: one weight w, no bias; an example is a number x with loss 0.5 * (w - x)^2, so its
gradient is w - x, and a full-batch step at rate r moves w to w - r * (w - mean(x)).
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from motley_tff.backends import base, sequential
from motley_tff.core import clients, functional_model, random_streams, task, tensor_random


class TwoLayers(tf.keras.Model):
    """A small classifier with dropout: dense 8, dropout 0.25, 3 logits."""

    def __init__(self):
        super().__init__()
        self.hidden = tf.keras.layers.Dense(8, activation="tanh")
        self.logits = tf.keras.layers.Dense(3)

    @property
    def last_layer(self):
        return (self.logits,)

    def embed(self, x):
        return self.hidden(x)

    def call(self, x, training=False, key=None):
        h = self.embed(x)
        return self.logits(tensor_random.dropout(h, 0.25, key) if training else h)


class Bare:
    """A model without Keras layers, whose making is most of an eager step."""

    def _next(self):
        """Returns the next of the weights that `FunctionalModel.apply` hands out."""
        return tf.Variable(0.0, trainable=True)


class _Scalar(Bare):
    """Outputs w for every example."""

    def __call__(self, x, training, key):
        return (tf.ones_like(x)[:, None] @ self._next())[:, 0]


class _Pair(Bare):
    """Outputs the mean of b + h: a base and a last layer of `width` numbers each, first 0."""

    def __call__(self, x, training, key):
        ones = tf.ones_like(x)[:, None]
        return tf.reduce_mean(ones @ self._next() + ones @ self._next(), axis=1)


class _TwoLayers(Bare):
    def embed(self, x):
        kernel, bias = self._next(), self._next()
        return tf.tanh(x @ kernel + bias)

    def __call__(self, x, training, key):
        h = self.embed(x)
        kernel, bias = self._next(), self._next()
        return (tensor_random.dropout(h, 0.25, key) if training else h) @ kernel + bias


def model(build, *shapes, initializer="zeros", vectorizes=True):
    """Returns a bare model with a kernel of each shape; the last one is its last layer, and of
    several the first one counts as a normalization layer.
    """
    names = tuple(f"layer_{i}/kernel:0" for i in range(len(shapes)))
    is_last = (*[False] * (len(shapes) - 1), True)
    initializers = (tf.keras.initializers.get(initializer),) * len(shapes)
    is_norm = (True, *[False] * (len(shapes) - 1)) if len(shapes) > 1 else ()
    return functional_model.FunctionalModel(
        build, names, shapes, is_last, initializers, vectorizes, is_norm=is_norm
    )


def half_squared_error(y, outputs):
    return 0.5 * tf.square(outputs - y), tf.ones_like(y)


def _numbers(values):
    return {"x": np.asarray(values, np.float32)}


def scalar_task(train, held_out=None, initial=0.0, drop_remainder=False, setting="cross_device"):
    """Returns a task of clients with numbers.

    Args:
      train: `{client: numbers}`.
      held_out: `{client: (personalization numbers, evaluation numbers)}`.
      initial: First value of w.
      drop_remainder: As in `Task`.
      setting: As in `Task`; silos use the numbers of `train` for all their parts.
    """
    if setting == "cross_silo":
        parts = ("train", "valid", "test")
        silos = {c: dict.fromkeys(parts, _numbers(v)) for c, v in train.items()}
        sources = [clients.InMemoryClients(silos)] * 3
    else:
        held_out = held_out or {"v": ([1.0], [2.0])}
        held = clients.InMemoryClients(
            {
                c: {"personalization": _numbers(p), "evaluation": _numbers(e)}
                for c, (p, e) in held_out.items()
            }
        )
        trained = clients.InMemoryClients({c: {"train": _numbers(v)} for c, v in train.items()})
        sources = [trained, held, held]
    return task.Task(
        "toy",
        setting,
        model(_Scalar, (1, 1), initializer=tf.keras.initializers.Constant(initial)),
        half_squared_error,
        (task.Metric("half_squared_error", half_squared_error, False),),
        lambda raw, training, key: (raw["x"], raw["x"]),
        *sources,
        drop_remainder=drop_remainder,
    )


def with_pair(scalar, width=1):
    """Returns a scalar task whose model is a base and a last layer, of `width` numbers each."""
    return dataclasses.replace(scalar, model=model(_Pair, (1, width), (1, width)))


def _cross_entropy(y, logits):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    return losses, tf.ones_like(losses)


def _accuracy(y, logits):
    hits = tf.cast(tf.equal(tf.argmax(logits, -1, tf.int32), y), tf.float32)
    return hits, tf.ones_like(hits)


def classifier_task(num_clients=5, sizes=(7, 12, 3, 20, 9), seed=0):
    """Returns a three-class task with dropout, clients of uneven sizes, and noise."""
    rng = np.random.default_rng(seed)

    def examples(n):
        x = rng.normal(size=(n, 4)).astype(np.float32)
        scores = x[:, :3] + 0.3 * rng.normal(size=(n, 3))
        return {"x": x, "y": np.argmax(scores, 1).astype(np.int32)}

    def population(prefix, parts):
        return clients.InMemoryClients(
            {
                f"{prefix}{i}": {part: examples(sizes[i % len(sizes)]) for part in parts}
                for i in range(num_clients)
            }
        )

    return task.Task(
        "toy",
        "cross_device",
        functional_model.from_keras(TwoLayers, np.zeros([1, 4], np.float32)),
        _cross_entropy,
        (task.Metric("accuracy", _accuracy, True),),
        lambda raw, training, key: (raw["x"], raw["y"]),
        population("t", ["train"]),
        population("v", ["personalization", "evaluation"]),
        population("e", ["personalization", "evaluation"]),
        label_field="y",
        prediction=lambda logits: tf.argmax(logits, -1),
    )


def classifier_silos(sizes=(7, 12, 3, 20), seed=0):
    """Returns the same three classes as silos, which drop short last batches."""
    device = classifier_task(len(sizes), sizes, seed)
    parts = {c: device.train.fetch(c)["train"] for c in device.train.ids}
    silos = clients.InMemoryClients(
        {c: dict.fromkeys(("train", "valid", "test"), examples) for c, examples in parts.items()}
    )
    return dataclasses.replace(
        device, setting="cross_silo", train=silos, valid=silos, test=silos, drop_remainder=True
    )


class _ThreeWeights(Bare):
    """Two logits of one number: a base of one weight, a last layer of two."""

    def embed(self, x):
        return x @ self._next()

    def __call__(self, x, training, key):
        return self.embed(x) @ self._next()


def three_weights(setting, sizes=(4, 6), seed=0):
    """Returns a task of two classes whose model has three weights; of devices one validates, and
    one tests.
    """
    if setting == "cross_silo":
        made = classifier_silos(sizes, seed)
    else:
        made = classifier_task(len(sizes), sizes, seed)
        held_out = {s: clients.subset(made.splits[s], made.splits[s].ids[:1]) for s in _HELD_OUT}
        made = dataclasses.replace(made, **held_out)
    return dataclasses.replace(
        made,
        model=model(
            _ThreeWeights, (1, 1), (1, 2),
            initializer="glorot_uniform", vectorizes=False,
        ),
        preprocess=lambda raw, training, key: (raw["x"][:, :1], raw["y"] // 2),
    )  # fmt: skip


_HELD_OUT = ("valid", "test")


def with_held_out(classifier, held_out):
    """Returns a cross-device task with other validation and test clients."""
    return dataclasses.replace(classifier, valid=held_out, test=held_out)


def without_dropout(classifier):
    """Returns a classifier task whose model draws nothing."""

    class Plain(TwoLayers):
        def call(self, x, training=False, key=None):
            return super().call(x, False, key)

    model = functional_model.from_keras(Plain, np.zeros([1, 4], np.float32))
    return dataclasses.replace(classifier, model=model)


def without_keras(classifier):
    """Returns a classifier task whose model makes no Keras layers; its first counts as a norm."""
    is_norm = (True, True, False, False)
    bare = dataclasses.replace(classifier.model, build=_TwoLayers, is_norm=is_norm)
    return dataclasses.replace(classifier, model=bare)


def like(params, kind, **own):
    """Returns an algorithm with FedAvg's hyperparameters `params` and others of its own."""
    return kind(**vars(params), **own)


class Run(NamedTuple):
    """Rounds that were run, by a process: each one's result and the state after each call."""

    process: Any
    results: list[base.RoundResult]
    states: list[Any]

    @property
    def weights(self):
        """The server's weights after the last round."""
        return self.process.weights(self.states[-1])

    @property
    def client_states(self):
        """`{client: state}` after the last round."""
        return self.process.client_states(self.states[-1])


def train(a_task, algorithm, rounds=1, backend=None):
    """Trains on the sequential backend, or another; returns a `Run`.

    `rounds` is how many all clients take part in, or the cohort of each.
    """
    cohorts = [a_task.train.ids] * rounds if isinstance(rounds, int) else rounds
    plan = [
        base.Round(n, tuple(cohort), random_streams.key(0, "local_training", n))
        for n, cohort in enumerate(cohorts, 1)
    ]
    return run((backend or sequential.SequentialBackend()).training(a_task, algorithm), plan)


def run(process, plan):
    """Runs rounds from a process's first state; returns a `Run`."""
    results, states = [], [process.initialize()]
    for rounds in base.by_call(plan, process.rounds_per_call):
        state, new_results = process.next(states[-1], rounds)
        results += new_results
        states.append(state)
    return Run(process, results, states[1:])


def evaluate(a_task, work, weights, ids=None, states=None, backend=None):
    """Returns `{test client: what client work says of it}`, of all or of `ids`."""
    key = random_streams.key(0, "personalization", 1)
    ids = a_task.test.ids if ids is None else ids
    call = base.ClientCall(a_task, work, weights, a_task.test, ids, key, states)
    return dict((backend or sequential.SequentialBackend()).map_clients(call))
