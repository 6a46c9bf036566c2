"""The TFF backend against stock TFF, its aggregators, and data loaded by id."""

import collections
import dataclasses

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from motley_tff.algorithms import FedAvg, optimizers
from motley_tff.backends.tff import backend as tff_backend
from motley_tff.backends.tff.runtime import tff_runtime
from motley_tff.backends.tff.workers import RemoteComputationError
from motley_tff.core import clients
from motley_tff.core.errors import UserError
from tests import toy
from tests.errors import refused


@pytest.fixture(scope="module", autouse=True)
def runtime():
    with tff_runtime():
        yield


def _params():
    return FedAvg(
        optimizers.OptimizerConfig("sgd", 0.2),
        optimizers.OptimizerConfig("momentum", 0.5, {"momentum": 0.9}),
        train_epochs=2,
        train_batch_size=100,
    )


def _stock_process(initial):
    """Returns stock FedAvg on the toy classifier's architecture, from some weights."""

    def model_fn():
        dense = tf.keras.layers.Dense
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([dense(8, activation="tanh", input_shape=(4,)), dense(3)]),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=(tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int32)),
        )

    process = tff.learning.algorithms.build_weighted_fed_avg(
        model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.2),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(0.5, 0.9),
    )
    weights = tff.learning.models.ModelWeights(list(initial), [])
    return process, process.set_model_weights(process.initialize(), weights)


@pytest.mark.slow
def test_equal_to_stock_fed_avg():
    """The same weights after two rounds of two full batches, whose order does not matter."""
    task = toy.without_dropout(toy.classifier_task(3))
    initial = task.model.initial_weights(11)
    ours = toy.train(task, _params().build(task, initial), 2, tff_backend.TffBackend()).weights
    stock, state = _stock_process(initial)
    examples = [task.train.fetch(i)["train"] for i in task.train.ids]
    data = [tf.data.Dataset.from_tensors((batch["x"], batch["y"])).repeat(2) for batch in examples]
    for _ in range(2):
        state = stock.next(state, data).state
    for a, b in zip(stock.get_model_weights(state).trainable, ours, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    assert not np.allclose(ours[0], initial[0])


def _in_graph_task(ids):
    """Returns a task with clients that a graph makes from their ids: c2 has 2, 3 and 4."""
    task = toy.scalar_task({"a": [1.0]})

    def load(client_id):
        number = tf.strings.to_number(tf.strings.substr(client_id, 1, -1))
        return {"train": collections.OrderedDict(x=number + tf.range(number + 1.0))}

    return dataclasses.replace(task, train=clients.InGraphClients(ids, load))


def test_clients_loaded_by_id_inside_the_computation():
    """At client rate 1 each moves to its mean: 1.5 of two numbers, 3 of three; 0 stays away."""
    task = _in_graph_task(("c0", "c1", "c2"))
    params = FedAvg(optimizers.OptimizerConfig("sgd", 1.0))
    algorithm = params.build(task, task.model.initial_weights(0))
    run = toy.train(task, algorithm, [("c1", "c2")], tff_backend.TffBackend())
    assert run.weights[0].item() == pytest.approx((2 * 1.5 + 3 * 3.0) / 5)


def test_data_that_cannot_be_read_are_named():
    task = _in_graph_task(("c0", "c1", "cx"))
    algorithm = FedAvg().build(task, task.model.initial_weights(0))
    with refused("client 'cx'", "cannot be read"):
        toy.train(task, algorithm, backend=tff_backend.TffBackend())


class _LostWorkerError(grpc.RpcError):
    """What gRPC raises when a worker is gone."""


class _Clients(clients.InMemoryClients):
    """Clients of which one cannot be read; told by their ids inside graphs."""

    in_graph = True

    def fetch(self, client_id):
        if client_id == "bad":
            raise UserError("client 'bad'")
        return super().fetch(client_id)


@pytest.mark.parametrize("error", [_LostWorkerError(), RemoteComputationError("lost")])
def test_a_workers_error_names_the_client_that_cannot_be_read_or_comes_out(error):
    examples = {"train": {"x": np.zeros(1)}}
    some = _Clients({"good": examples, "bad": examples})
    with (
        refused("client 'bad'"),
        tff_backend._naming_unreadable(some, ("good", "bad")),
    ):
        raise error
    # Who took no part is not read.
    with pytest.raises(type(error)), tff_backend._naming_unreadable(some, ("good",)):
        raise error
