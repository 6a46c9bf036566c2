"""A text's padding is left out of training, and no number shows it."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from datasets.kinds import next_words
from datasets.models import stackoverflow_lstm, ted_transformer, text_models
from motley_tff.algorithms import FineTuning, OptimizerConfig
from motley_tff.core import clients, functional_model, learning, real_tokens
from motley_tff.core.client_work import Batch
from motley_tff.core.layer_groups import Features
from tests import toy

pytestmark = pytest.mark.usefixtures("eagerly")
_KEY = tf.constant([3, 4])
# Of two sentences, and one that only fills the batch.
_IDS = np.array([[5, 1, 2, 6, 0], [5, 3, 6, 0, 0], [5, 1, 1, 1, 6]], np.int32)
_MASK = np.array([1, 1, 0], np.float32)


def _task(architecture, **changes):
    model = functional_model.from_keras(architecture, np.zeros((1, 4), np.int32))
    source = clients.InMemoryClients(
        {"a": {part: {"tokens": _IDS} for part in ("train", "personalization", "evaluation")}}
    )
    tokens = next_words.make_tokens(["a", "b"], 4)
    population = dict.fromkeys(("train", "valid", "test"), source)
    return next_words.next_word_task("toy", model, tokens, population, {}, **changes)


def _batch(ids=_IDS, mask=_MASK):
    return Batch(tf.constant(ids[:, :-1]), tf.constant(ids[:, 1:]), tf.constant(mask), _KEY)


@pytest.fixture(scope="module")
def task():
    return _task(lambda: stackoverflow_lstm.StackoverflowLstm(8, 3))


def _gradients(task, batch, trained=None, objective=None):
    weights = tuple(map(tf.constant, task.model.initial_weights(1)))
    trained = trained or [True] * len(weights)
    return learning.gradients(
        task, weights, batch, learning.zero_sums(task), trained, objective=objective
    )


def _assert_alike(task, batch, trained=None):
    expected = _gradients(dataclasses.replace(task, is_real=None), batch, trained)
    actual = tf.nest.flatten(_gradients(task, batch, trained))
    for a, b in zip(actual, tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_and_sums_are_the_same(task, frozen):
    batch, trained = _batch(), None
    if frozen:
        weights, cut = task.model.initial_weights(1), task.model.cuts[1]
        batch = batch._replace(x=Features(task.model.features(weights, batch.x, cut, True), cut))
        trained = task.model.is_last_layer
    _assert_alike(task, batch, trained)


@pytest.mark.parametrize(("ids", "mask"), [(_IDS * 0, _MASK), (_IDS, _MASK * 0)])
def test_a_batch_of_padding_alone(task, ids, mask):
    gradients, sums = _gradients(task, _batch(ids, mask))
    assert all(not np.any(gradient) for gradient in gradients)
    assert not sums.weights["loss"] and not sums.totals["loss"]
    _assert_alike(task, _batch(ids, mask))


def test_outputs_are_those_of_real_tokens(task):
    weights, batch = task.model.initial_weights(1), _batch()
    real, outputs = real_tokens.predict(task, weights, batch, True)
    assert real.y.numpy().tolist() == [1, 2, 6, 3, 6] and real.mask.numpy().tolist() == [1] * 5
    whole = task.model.predict(weights, batch.x, True, _KEY).numpy()
    expected = np.concatenate([whole[0, :3], whole[1, :2]])
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


def test_an_objective_sees_the_whole_batch(task):
    shapes = []
    _gradients(task, _batch(), objective=lambda loss, outputs: shapes.append(outputs.shape) or loss)
    assert shapes == [[3, 4, 8]]


def _curves(task):
    work = FineTuning(OptimizerConfig("sgd", 1.0), (0.5,), 2, 2).build(task).work
    weights = task.model.initial_weights(1)
    metrics = toy.evaluate(task, work(("evaluation",), "personalization"), weights)["a"]
    sums = {f"{n} of examples": v for n, v in metrics["example_sums"]["evaluation"].items()}
    return metrics["curves"]["evaluation"] | sums


def test_scores_are_the_same(task):
    """Also each example's, on which the standard error of a difference rests."""
    curves, expected = _curves(task), _curves(dataclasses.replace(task, is_real=None))
    assert np.all(expected["weights of examples"] > 0.0)
    for name, values in expected.items():
        np.testing.assert_allclose(curves[name], values, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("architecture", "is_left_out"),
    [
        (lambda: text_models.TextLstm(8, 8, (3, 4)), True),
        # One vector a text; layers that draw, or see all tokens.
        (lambda: text_models.TextLstm(8, 8, (3, 4), classifies=True), False),
        (lambda: ted_transformer.TedTransformer(8), False),
    ],
)
def test_models_that_take_each_token_by_itself(architecture, is_left_out):
    model = functional_model.from_keras(architecture, np.zeros((1, 4), np.int32))
    assert (model.cut_before_tokens is not None) == is_left_out


def test_a_loss_that_counts_padding_leaves_none_out():
    def counting(labels, logits):
        losses, _ = next_words.token_cross_entropy(labels, logits)
        return losses, tf.ones_like(losses)

    task = _task(lambda: text_models.TextLstm(8, 8, (3, 4)), loss=counting)
    _, sums = _gradients(task, _batch())
    assert sums.weights["loss"] == 8
