"""Frozen layers are computed once a client, and no number shows it."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from datasets.kinds import classification
from datasets.models import (
    cnn,
    emnist_cnn,
    lenet,
    mlp,
    mobilenet_v2,
    stackoverflow_lstm,
    ted_transformer,
    text_models,
)
from motley_tff.algorithms import FineTuning, KnnPer, LpFt, ProximalFineTuning, optimizers
from motley_tff.backends import client_loop
from motley_tff.core import (
    client_work,
    clients,
    frozen,
    functional_model,
    task as task_lib,
    tensor_random,
)
from motley_tff.core.layer_groups import Features, LayerGroup
from tests import toy
from tests.contracts import registry

_SGD = optimizers.OptimizerConfig("momentum", 1.0, {"momentum": 0.5})
_KEY = tf.constant([3, 4])
_PICTURES, _TOKENS = (np.float32, (12, 12, 1)), (np.int32, (5,))
# {name: (architecture, type of an example)}
_ARCHITECTURES = {
    "emnist_cnn": (lambda: emnist_cnn.EmnistCnn(3), _PICTURES),
    "cnn": (lambda: cnn.Cnn(3, 12, (4, 5)), _PICTURES),
    "lenet": (lambda: lenet.LeNet(3), (np.float32, (16, 16, 1))),
    "mlp": (lambda: mlp.Mlp(3, (6, 5)), (np.float32, (4,))),
    "mobilenet": (lambda: mobilenet_v2.MobileNetV2(3), (np.float32, (32, 32, 3))),
    "stackoverflow": (lambda: stackoverflow_lstm.StackoverflowLstm(7, 4), _TOKENS),
    "text_classes": (lambda: text_models.TextLstm(7, 3, (4, 5, 6), True), _TOKENS),
    "bag_of_words": (lambda: text_models.BagOfWords(7, 3, (4,)), _TOKENS),
}
_NUM_PERSONAL, _NUM_SCORED = 7, 5


def _model(build, kind):
    dtype, shape = kind
    return functional_model.from_keras(build, np.zeros([1, *shape], dtype))


def _inputs(number, kind):
    rng, (dtype, shape) = np.random.default_rng(number), kind
    size = [number, *shape]
    values = rng.integers(0, 7, size) if dtype == np.int32 else rng.normal(size=size)
    return values.astype(dtype)


def _task(model, kind, preprocess=lambda raw, training, key: (raw["x"], raw["y"])):
    """Returns a task of one held-out client; labels are of each token if outputs are."""

    def examples(number):
        x = _inputs(number, kind)
        is_of_tokens = model.predict(model.initial_weights(0), x, False, _KEY).shape.rank == 3
        shape = x.shape if is_of_tokens else [number]
        return {"x": x, "y": np.random.default_rng(1).integers(0, 3, shape).astype(np.int32)}

    parts = {"personalization": examples(_NUM_PERSONAL), "evaluation": examples(_NUM_SCORED)}
    held_out = clients.InMemoryClients({"v": parts})
    accuracy = task_lib.Metric("accuracy", classification.accuracy, True)
    return task_lib.Task(
        "toy", "cross_device", model, classification.cross_entropy, (accuracy,), preprocess,
        clients.InMemoryClients({"t": {"train": parts["evaluation"]}}), held_out, held_out,
    )  # fmt: skip


def _work(task, params):
    return params.build(task).work(("evaluation",), "personalization")


def _curves(task, work, backend=None):
    weights = task.model.initial_weights(3)
    return toy.evaluate(task, work, weights, backend=backend)["v"]["curves"]["evaluation"]


def _assert_alike(task, params, backend=None):
    work = _work(task, params)
    expected = _curves(task, dataclasses.replace(work, frozen=None))
    curves = _curves(task, work, backend)
    assert len(set(np.round(expected["loss"], 6))) == len(expected["loss"])
    for name, values in expected.items():
        np.testing.assert_allclose(curves[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


_KINDS = {
    "last_layer": FineTuning(_SGD, (0.2,), 2, 3, last_layer=True),
    "lp_ft": LpFt(_SGD, (0.1, 0.3), 3, 3, probing_epochs=2),
}


_slow = functools.partial(pytest.param, marks=pytest.mark.slow)
_QUICK = ("emnist_cnn", "stackoverflow")


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", [n if n in _QUICK else _slow(n) for n in _ARCHITECTURES])
def test_architectures_give_the_same_curves(name):
    build, kind = _ARCHITECTURES[name]
    task = _task(_model(build, kind), kind)
    for params in _KINDS.values():
        _assert_alike(task, params)


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        ("sequential", "lp_ft"),
        _slow("sequential", "last_layer"),
        _slow("tff", "lp_ft"),
        _slow("tff", "last_layer"),
    ],
)
def test_graphs_give_the_same_curves(backend, kind):
    build, inputs = _ARCHITECTURES["emnist_cnn"]
    with registry.BACKENDS[backend]() as opened:
        _assert_alike(_task(_model(build, inputs), inputs), _KINDS[kind], opened)


# Rows of the batches that the first layer of `_Counting` gets; None while a graph is traced.
_computed: list[int | None] = []


class _Counting(tf.keras.Model):
    """A dense layer, dropout, logits."""

    def __init__(self):
        super().__init__()
        self.hidden, self.logits = tf.keras.layers.Dense(4), tf.keras.layers.Dense(3)

    @property
    def last_layer(self):
        return (self.logits,)

    @property
    def layer_groups(self):
        return (LayerGroup(lambda x, *_: self.embed(x)), LayerGroup(self.classify, draws=True))

    def embed(self, x):
        _computed.append(x.shape[0])
        return self.hidden(x)

    def classify(self, h, training, key):
        return self.logits(tensor_random.dropout(h, 0.5, key) if training else h)

    def call(self, x, training=False, key=None):
        return self.classify(self.embed(x), training, key)


_NUMBERS = (np.float32, (4,))


def _num_computed(task, work):
    """Returns how many examples the first layer is computed of."""
    assert task.model.cuts
    _computed.clear()
    _curves(task, work)
    return sum(number for number in _computed if number is not None)


def _augmented(raw, training, key):
    noise = tensor_random.uniform(key, tf.shape(raw["x"])) if training else 0.0
    return raw["x"] + noise, raw["y"]


class _OwnStep(FineTuning):
    def step(self, task, optimizer, learner, batch, stage):
        return learner


_ONCE = _NUM_PERSONAL + _NUM_SCORED
_ALL_OF = {"personalization": 2 * _NUM_PERSONAL, "evaluation": 3 * _NUM_SCORED}


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("params", "preprocess", "expected"),
    [
        (_KINDS["last_layer"], None, _ONCE),
        # Of two rates three epochs each, all but the last are probed.
        (_KINDS["lp_ft"], None, _ONCE + 2 * _ONCE),
        (ProximalFineTuning(_SGD, (0.2,), 2, 3, last_layer=True), None, _ONCE),
        (FineTuning(_SGD, (0.2,), 2, 3), None, sum(_ALL_OF.values())),
        # What is augmented is another in each batch.
        (_KINDS["last_layer"], _augmented, _ALL_OF["personalization"] + _NUM_SCORED),
        # Nobody knows what a step of one's own trains.
        (_OwnStep(_SGD, (0.2,), 2, 3, last_layer=True), None, 3 * _NUM_SCORED),
    ],
)
def test_frozen_layers_are_computed_once(params, preprocess, expected):
    model = _model(_Counting, _NUMBERS)
    task = _task(model, _NUMBERS, *([preprocess] if preprocess else []))
    assert _num_computed(task, _work(task, params)) == expected


@pytest.fixture()
def counted():
    return _task(_model(_Counting, _NUMBERS), _NUMBERS)


@pytest.mark.usefixtures("eagerly")
def test_augmented_examples_give_the_same_curves(counted):
    task = dataclasses.replace(counted, preprocess=_augmented)
    _assert_alike(task, _KINDS["last_layer"])


@pytest.mark.usefixtures("eagerly")
def test_an_epoch_of_some_examples_reads_no_table(counted):
    work = client_work.capped(_work(counted, _KINDS["last_layer"]), "personalization", 2)
    assert _num_computed(counted, work) == 2 * 2 + _NUM_SCORED


@pytest.mark.usefixtures("eagerly")
def test_examples_whose_features_do_not_fit_have_no_table(counted, monkeypatch):
    # Room for what is scored, not for what is trained on.
    monkeypatch.setattr(frozen, "MOST_BYTES", 4 * 4 * _NUM_SCORED)
    params = _KINDS["last_layer"]
    _assert_alike(counted, params)
    number = _num_computed(counted, _work(counted, params))
    assert number == _ALL_OF["personalization"] + _NUM_SCORED


@pytest.mark.usefixtures("eagerly")
def test_clients_of_unknown_size(counted):
    source = clients.DerivedClients(counted.test, lambda parts, client_id: parts)
    source.sizes = {}
    _assert_alike(dataclasses.replace(counted, valid=source, test=source), _KINDS["last_layer"])


def test_a_client_without_examples(counted):
    parts = counted.test.fetch("v")
    empty = {name: values[:0] for name, values in parts["personalization"].items()}
    source = clients.InMemoryClients({"v": {**parts, "personalization": empty}})
    task = dataclasses.replace(counted, valid=source, test=source)
    losses = _curves(task, _work(task, _KINDS["last_layer"]))["loss"]
    assert losses[0] == pytest.approx(losses[-1], rel=1e-6)


def test_a_graph_has_the_convolutions_once():
    """Not in the loop of epochs: a table's and no other's."""
    build, kind = _ARCHITECTURES["emnist_cnn"]
    task = _task(_model(build, kind), kind)
    work = _work(task, _KINDS["last_layer"])

    def run(*weights):
        key = tf.zeros([2], tf.int32)
        parts = task.test.fetch("v")
        return client_loop.run_client(task, work, weights, (), parts, key, tf.constant(0)).metrics

    graph = (
        tf.function(run, autograph=False)
        .get_concrete_function(*(tf.TensorSpec(shape, tf.float32) for shape in task.model.shapes))
        .graph
    )
    names = [f.signature.name for f in graph.as_graph_def().library.function
             if any(node.op == "Conv2D" for node in f.node_def)]  # fmt: skip
    assert len(names) == 2, names  # One for each part.


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", _ARCHITECTURES)
def test_outputs_from_every_cut(name):
    build, kind = _ARCHITECTURES[name]
    model = _model(build, kind)
    weights, x = model.initial_weights(3), _inputs(4, kind)
    assert len(model.cuts) == (3 if name in _QUICK else 2)
    for cut in model.cuts:
        for training in (False,) if cut.draws else (False, True):
            values = model.features(weights, x, cut, training)
            assert values.shape == (4, *cut.shape)
            outputs = model.predict(weights, Features(values, cut), training, _KEY)
            expected = model.predict(weights, x, training, _KEY)
            np.testing.assert_allclose(outputs, expected, atol=1e-6)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", [n for n in _ARCHITECTURES if n != "mobilenet"] + ["ted"])
def test_representation_and_outputs_come_together(name):
    ted = (lambda: ted_transformer.TedTransformer(7), _TOKENS)
    build, kind = _ARCHITECTURES.get(name, ted)
    model = _model(build, kind)
    weights, x = model.initial_weights(3), _inputs(4, kind)
    h, outputs = model.embed_and_predict(weights, x, _KEY)
    np.testing.assert_allclose(h, model.embed(weights, x), atol=1e-6)
    np.testing.assert_allclose(outputs, model.predict(weights, x, False, _KEY), atol=1e-6)


@pytest.mark.usefixtures("eagerly")
def test_knn_per_computes_an_example_once(counted, monkeypatch):
    after_embed = lambda model, h: model.classify(h, False, None)  # noqa: E731
    monkeypatch.setattr(_Counting, "after_embed", after_embed, raising=False)
    work = _work(counted, KnnPer((2,), (0.5,)))
    assert _num_computed(counted, work) == _ONCE


@pytest.mark.usefixtures("eagerly")
def test_where_all_is_trained_no_cut_is_looked_for(counted):
    """That traces the model: a second and a half of MobileNetV2."""
    _curves(counted, _work(counted, FineTuning(_SGD, (0.2,), 1, 3)))
    assert "cuts" not in vars(counted.model)
