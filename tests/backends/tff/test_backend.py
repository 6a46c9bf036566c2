"""The TFF backend against stock TFF, its aggregators, and data loaded by id."""

import collections
import threading

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from motley_tff.algorithms import FedAvg, optimizers
from motley_tff.backends import base, sequential
from motley_tff.backends.tff import aggregators as tff_aggregators, backend as tff_backend
from motley_tff.backends.tff.runtime import LoopThread, tff_runtime
from motley_tff.backends.tff.workers import RemoteComputationError
from motley_tff.core import clients, functional_model, random_streams, task, tensor_random
from motley_tff.core.errors import UserError
from tests import toy

_BATCH = 4
_SEED = 11


@pytest.fixture(scope="module", autouse=True)
def runtime():
    with tff_runtime():
        yield


class Plain(toy.TwoLayers):
    """Without dropout: stock TFF has none that can be repeated."""

    def call(self, x, training=False, key=None):
        return super().call(x, False, key)


@pytest.fixture(scope="module")
def plain_task():
    import dataclasses

    return dataclasses.replace(
        toy.classifier_task(),
        model=functional_model.from_keras(Plain, np.zeros([1, 4], np.float32)),
    )


def _plan(ids, rounds):
    return [
        base.Round(r, ids, random_streams.key(_SEED, "local_training", r))
        for r in range(1, rounds + 1)
    ]


def _params():
    return FedAvg(
        optimizers.OptimizerConfig("sgd", 0.2),
        optimizers.OptimizerConfig("momentum", 0.5, {"momentum": 0.9}),
        train_batch_size=_BATCH,
    )


def _batches(a_task, client_id, round_key):
    """Returns a client's batches of one round as a dataset, by the documented key derivation."""
    key = tensor_random.client_round_key(round_key, random_streams.client_key(client_id))
    key = tensor_random.fold(key, tensor_random.PASS, 0)
    key = tensor_random.fold(key, tensor_random.EPOCH, 0)
    examples = a_task.train.fetch(client_id)["train"]
    size = len(examples["y"])
    order = tensor_random.permutation(tensor_random.fold(key, tensor_random.SHUFFLE, 0), size)
    data = (examples["x"][order.numpy()], examples["y"][order.numpy()])
    return tf.data.Dataset.from_tensor_slices(data).batch(_BATCH)


def _stock_process(a_task, initial):
    """Returns stock FedAvg on the same architecture, from the same weights."""
    spec = (tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int32))

    def model_fn():
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential(
                [
                    tf.keras.layers.Dense(8, activation="tanh", input_shape=(4,)),
                    tf.keras.layers.Dense(3),
                ]
            ),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=spec,
        )

    process = tff.learning.algorithms.build_weighted_fed_avg(
        model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.2),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(0.5, 0.9),
    )
    weights = tff.learning.models.ModelWeights(list(initial), [])
    return process, process.set_model_weights(process.initialize(), weights)


@pytest.mark.slow
def test_equal_to_stock_fed_avg(plain_task):
    """Same batches, same weights after three rounds."""
    initial = plain_task.model.initial_weights(_SEED)
    ours = tff_backend.TffBackend().training(plain_task, _params().build(plain_task, initial))
    plan = _plan(plain_task.train.ids, 3)
    state = ours.run(ours.initialize(), plan, lambda *_: None)
    stock, stock_state = _stock_process(plain_task, initial)
    for one in plan:
        data = [_batches(plain_task, c, one.key) for c in one.client_ids]
        stock_state = stock.next(stock_state, data).state
    for a, b in zip(
        stock.get_model_weights(stock_state).trainable, ours.weights(state), strict=True
    ):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    assert not np.allclose(ours.weights(state)[0], initial[0])


@pytest.mark.slow
def test_differential_privacy_adds_noise_and_clips(plain_task):
    initial = plain_task.model.initial_weights(_SEED)
    algorithm = _params().build(plain_task, initial)
    steps = {}
    for noise in (0.001, 1.0):
        aggregator = tff_aggregators.build("differentially_private", noise, 50)
        process = tff_backend.TffBackend(aggregator).training(plain_task, algorithm)
        state = process.run(process.initialize(), _plan(plain_task.train.ids, 1), lambda *_: None)
        moved = [w - i for w, i in zip(process.weights(state), initial, strict=True)]
        steps[noise] = np.sqrt(sum((m**2).sum() for m in moved))
    assert steps[1.0] > 1.5 * steps[0.001]


def test_too_much_noise_for_a_small_cohort():
    with pytest.raises(UserError, match="dp_noise_multiplier=10 and 5 clients"):
        tff_aggregators.build("differentially_private", 10.0, 5)


def test_unknown_aggregator():
    with pytest.raises(UserError, match="unknown aggregator 'maen'"):
        tff_aggregators.build("maen", 1.0, 5)


def _in_graph_task(plain_task, ids=("c0", "c1", "c2", "c3")):
    """Returns the task with clients that a graph makes from their ids."""

    def load(client_id):
        number = tf.strings.to_number(tf.strings.substr(client_id, 1, -1), tf.int32)
        x = tf.random.stateless_normal([5 + number, 4], tf.stack([number, 3]), alg="philox")
        return {"train": collections.OrderedDict(x=x, y=tf.argmax(x[:, :3], 1, tf.int32))}

    import dataclasses

    source = clients.InGraphClients(ids, load)
    return dataclasses.replace(plain_task, train=source)


def test_clients_loaded_by_id_inside_the_computation(plain_task):
    a_task = _in_graph_task(plain_task)
    assert isinstance(a_task, task.Task)
    algorithm = _params().build(a_task, a_task.model.initial_weights(0))
    found = []
    for backend in (sequential.SequentialBackend(), tff_backend.TffBackend()):
        process = backend.training(a_task, algorithm)
        plan = _plan(a_task.train.ids[:3], 2)
        found.append(process.weights(process.run(process.initialize(), plan, lambda *_: None)))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_data_that_cannot_be_read_are_named(plain_task):
    a_task = _in_graph_task(plain_task, ("c0", "c1", "cx"))
    algorithm = _params().build(a_task, a_task.model.initial_weights(0))
    process = tff_backend.TffBackend().training(a_task, algorithm)
    with pytest.raises(UserError, match="the data of client 'cx' cannot be read") as caught:
        process.run(process.initialize(), _plan(a_task.train.ids, 1), lambda *_: None)
    assert "\n" not in str(caught.value)


class _LostWorkerError(grpc.RpcError):
    """What gRPC raises when a worker is gone."""


class _Clients(clients.InMemoryClients):
    """Clients of which one cannot be read; told by their ids inside graphs."""

    in_graph = True

    def fetch(self, client_id):
        if client_id == "bad":
            raise UserError("bad cannot be read")
        return super().fetch(client_id)


@pytest.mark.parametrize("error", [_LostWorkerError(), RemoteComputationError("lost")])
def test_a_workers_error_names_the_client_that_cannot_be_read_or_comes_out(error):
    examples = {"train": {"x": np.zeros(1)}}
    some = _Clients({"good": examples, "bad": examples})
    with (
        pytest.raises(UserError, match="bad cannot"),
        tff_backend._naming_unreadable(some, ("good", "bad")),
    ):
        raise error
    # Who took no part is not read.
    with pytest.raises(type(error)), tff_backend._naming_unreadable(some, ("good",)):
        raise error


def test_the_thread_of_a_runtime_does_not_keep_the_program():
    thread = LoopThread("some-thread")
    (found,) = (t for t in threading.enumerate() if t.name == "some-thread")
    assert found.daemon
    thread.close()
    found.join(10)
    assert not found.is_alive()
