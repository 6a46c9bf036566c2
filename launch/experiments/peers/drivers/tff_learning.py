"""TFF's own `tff.learning.algorithms`, in this project's environment."""

import collections
import os
import subprocess

import problem
import tensorflow as tf
import tensorflow_federated as tff
from cells import cell, main

OPTIMIZERS, ALGORITHMS = tff.learning.optimizers, tff.learning.algorithms
SGD = OPTIMIZERS.build_sgdm(problem.RATE)
_SPEC = collections.OrderedDict(
    x=tf.TensorSpec((None, 1), tf.float32), y=tf.TensorSpec((None, 1), tf.float32)
)


def _linear(normed=False):
    layers = [tf.keras.layers.InputLayer(input_shape=(1,))]
    if normed:
        layers.append(tf.keras.layers.BatchNormalization(momentum=0.9, center=False, scale=False))
    initial = tf.keras.initializers.Constant(problem.W0)
    layers.append(tf.keras.layers.Dense(1, use_bias=False, kernel_initializer=initial))
    return tf.keras.Sequential(layers)


def model(normed=False):
    return lambda: tff.learning.models.from_keras_model(
        _linear(normed), loss=tf.keras.losses.MeanSquaredError(), input_spec=_SPEC
    )


def data(silo, labels=problem.Y, sizes=problem.SIZES):
    shape = (sizes[silo], 1)
    rows = collections.OrderedDict(
        x=tf.fill(shape, problem.X[silo]), y=tf.fill(shape, labels[silo])
    )
    return tf.data.Dataset.from_tensor_slices(rows).batch(problem.BATCH)


def run(process, look=None, chosen=((0, 1, 2),) * problem.ROUNDS, **of_data):
    state, seen = process.initialize(), []
    for silos in chosen:
        state = process.next(state, [data(silo, **of_data) for silo in silos]).state
        weights = process.get_model_weights(state)
        seen.append(look(weights) if look else weights.trainable[0])
    return seen


def fedavg(client=SGD, server=None, normed=False):
    server = server or OPTIMIZERS.build_sgdm(1.0)
    return ALGORITHMS.build_weighted_fed_avg(model(normed), client, server)


@cell("fedavg", weighted_by="examples")
def _():
    return run(fedavg())


@cell("fedavg_absent", weighted_by="examples")
def _():
    return run(fedavg(), chosen=([0, 1, 2], [0, 1], [0, 1, 2]))


@cell("diverged_client", weighted_by="examples")
def _():
    return run(fedavg(), labels=(*problem.Y[:2], float("nan")))


@cell("last_batch", weighted_by="examples")
def _():
    return run(fedavg(), sizes=problem.LAST_OF_ONE)


@cell("client_momentum", weighted_by="examples")
def _():
    return run(fedavg(OPTIMIZERS.build_sgdm(problem.RATE, problem.MOMENTUM)))


@cell("fedprox", weighted_by="examples")
def _():
    server = OPTIMIZERS.build_sgdm(1.0)
    return run(ALGORITHMS.build_weighted_fed_prox(model(), problem.MU, SGD, server))


@cell("fedsgd", weighted_by="examples")
def _():
    return run(ALGORITHMS.build_fed_sgd(model(), SGD))


_RATES = {"learning_rate": problem.SERVER_RATE, "epsilon": problem.TAU}
_BETAS = {"beta_1": problem.BETA_1, "beta_2": problem.BETA_2}


@cell("fedadam", weighted_by="examples")
def _():
    return run(fedavg(server=OPTIMIZERS.build_adam(**_RATES, **_BETAS)))


@cell("fedyogi", weighted_by="examples")
def _():
    return run(fedavg(server=OPTIMIZERS.build_yogi(**_RATES, **_BETAS)))


@cell("fedadagrad", weighted_by="examples")
def _():
    return run(fedavg(server=OPTIMIZERS.build_adagrad(**_RATES)))


@cell("fedavgm", weighted_by="examples")
def _():
    return run(fedavg(server=OPTIMIZERS.build_sgdm(1.0, problem.MOMENTUM)))


@cell("batchnorm", weighted_by="examples")
def _():
    return run(fedavg(normed=True), lambda weights: weights.non_trainable[0])


def _evaluated(batches, metric, width):
    def given():
        keras = tf.keras.Sequential([tf.keras.layers.Dense(width, use_bias=False)])
        keras.layers[0].kernel_initializer = tf.keras.initializers.Identity()
        keras.build((None, width))
        spec = collections.OrderedDict(
            x=tf.TensorSpec((None, width), tf.float32), y=tf.TensorSpec((None, 1), tf.float32)
        )
        loss = tf.keras.losses.MeanSquaredError() if width == 1 else _classes
        return tff.learning.models.from_keras_model(keras, loss, spec, metrics=metric())

    process = ALGORITHMS.build_fed_eval(given)
    output = process.next(process.initialize(), batches)
    return output.metrics["client_work"]["eval"]["current_round_metrics"]


_classes = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _rows(x, y, batch):
    rows = collections.OrderedDict(x=tf.constant(x), y=tf.constant(y)[:, None])
    return tf.data.Dataset.from_tensor_slices(rows).batch(batch)


def _right():
    return [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")]


@cell("accuracy", "its evaluation")
def _():
    clients = []
    for hits, count in zip(problem.HITS, problem.COUNTS):
        said = tf.one_hot([0] * hits + [1] * (count - hits), 3)
        clients.append(_rows(said, [0.0] * count, 4))
    return [_evaluated(clients, _right, 3)["accuracy"]]


@cell("ties", "its evaluation")
def _():
    return [_evaluated([_rows(tf.zeros((4, 3)), [0.0, 1.0, 2.0, 0.0], 4)], _right, 3)["accuracy"]]


@cell("diverged", "its evaluation")
def _():
    nan = tf.fill((4, 3), float("nan"))
    return [_evaluated([_rows(nan, [0.0, 1.0, 2.0, 0.0], 4)], _right, 3)["accuracy"]]


@cell("loss", "its evaluation")
def _():
    x = [[error**0.5] for error in problem.ERRORS]
    return [_evaluated([_rows(x, [0.0] * 5, problem.BATCH)], list, 1)["loss"]]


main()
# TFF leaves its worker running, which would keep our caller waiting.
subprocess.run(["pkill", "-P", str(os.getpid())], check=False)
