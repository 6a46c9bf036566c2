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


class Scalar(tf.keras.Model):
    """Outputs w for every example."""

    vectorizes = True

    def __init__(self, initial=0.0):
        super().__init__()
        self._initial = initial
        self.layer = tf.keras.layers.Dense(
            1, use_bias=False, kernel_initializer=tf.keras.initializers.Constant(initial)
        )

    @property
    def last_layer(self):
        return (self.layer,)

    def call(self, x, training=False, key=None):
        return self.layer(tf.ones_like(x)[:, None])[:, 0]


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


class Pair(tf.keras.Model):
    """Outputs the mean of b + h: a base and a last layer of `width` numbers each, first 0."""

    vectorizes = True

    def __init__(self, width=1):
        super().__init__()
        self.base, self.head = (
            tf.keras.layers.Dense(width, use_bias=False, kernel_initializer="zeros")
            for _ in range(2)
        )

    @property
    def last_layer(self):
        return (self.head,)

    def call(self, x, training=False, key=None):
        ones = tf.ones_like(x)[:, None]
        return tf.reduce_mean(self.base(ones) + self.head(ones), axis=1)


class _Bare:
    """A model without Keras layers, whose making is most of an eager step."""

    def _next(self):
        """Returns the next of the weights that `FunctionalModel.apply` hands out."""
        return tf.Variable(0.0, trainable=True)


class _Scalar(_Bare):
    def __call__(self, x, training, key):
        return (tf.ones_like(x)[:, None] @ self._next())[:, 0]


class _Pair(_Bare):
    def __call__(self, x, training, key):
        ones = tf.ones_like(x)[:, None]
        return tf.reduce_mean(ones @ self._next() + ones @ self._next(), axis=1)


class _TwoLayers(_Bare):
    def embed(self, x):
        kernel, bias = self._next(), self._next()
        return tf.tanh(x @ kernel + bias)

    def __call__(self, x, training, key):
        h = self.embed(x)
        kernel, bias = self._next(), self._next()
        return (tensor_random.dropout(h, 0.25, key) if training else h) @ kernel + bias


def _model(keras, bare, example):
    """Returns a Keras model with its weights, which computes as the bare one."""
    return dataclasses.replace(functional_model.from_keras(keras, example), build=bare)


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
        _model(lambda: Scalar(initial), _Scalar, np.zeros([1], np.float32)),
        half_squared_error,
        (task.Metric("half_squared_error", half_squared_error, False),),
        lambda raw, training, key: (raw["x"], raw["x"]),
        *sources,
        drop_remainder=drop_remainder,
    )


def with_pair(scalar, width=1):
    """Returns a scalar task whose model is a `Pair`."""
    model = _model(lambda: Pair(width), _Pair, np.zeros([1], np.float32))
    return dataclasses.replace(scalar, model=model)


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


class _ThreeWeights(_Bare):
    def embed(self, x):
        return x @ self._next()

    def __call__(self, x, training, key):
        return self.embed(x) @ self._next()


class ThreeWeights(tf.keras.Model):
    """Two logits of one number: a base of one weight, a last layer of two."""

    def __init__(self):
        super().__init__()
        self.base, self.head = (tf.keras.layers.Dense(n, use_bias=False) for n in (1, 2))

    @property
    def last_layer(self):
        return (self.head,)

    def embed(self, x):
        return self.base(x)

    def call(self, x, training=False, key=None):
        return self.head(self.embed(x))


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
        model=_model(ThreeWeights, _ThreeWeights, np.ones([1, 1], np.float32)),
        preprocess=lambda raw, training, key: (raw["x"][:, :1], raw["y"] // 2),
    )


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
    """Returns a classifier task whose model makes no Keras layers."""
    return dataclasses.replace(
        classifier, model=dataclasses.replace(classifier.model, build=_TwoLayers)
    )


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
