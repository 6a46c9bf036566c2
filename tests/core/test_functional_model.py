"""Functional models: the same outputs as Keras, weights from a seed."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from datasets.models.emnist_cnn import EmnistCnn
from motley_tff.core import functional_model
from tests import toy


def _cnn():
    return functional_model.from_keras(EmnistCnn, np.zeros([1, 28, 28, 1], np.float32))


def test_same_outputs_as_keras():
    model = _cnn()
    x = np.random.default_rng(0).random((3, 28, 28, 1), np.float32)
    keras = EmnistCnn()
    keras(x)
    weights = model.initial_weights(1)
    keras.set_weights(weights)
    ours = tf.function(lambda w: model.predict(w, x, False, tf.zeros([2], tf.int32)))(weights)
    np.testing.assert_allclose(ours, keras(x), atol=1e-6)
    np.testing.assert_allclose(model.embed(weights, x), keras.embed(x), atol=1e-6)


def test_weights_and_last_layer():
    model = _cnn()
    assert model.num_weights == 1_206_590
    tuned = [n for n, last in zip(model.names, model.is_last_layer, strict=True) if last]
    assert [name.split("/")[-2] for name in tuned] == ["logits", "logits"]


def test_initial_weights_depend_on_seed_and_index_only():
    model = functional_model.from_keras(toy.TwoLayers, np.zeros([1, 4], np.float32))
    first = model.initial_weights(5)
    tf.random.set_seed(99)
    for a, b in zip(first, model.initial_weights(5), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], model.initial_weights(5, index=1)[0])
    assert not np.array_equal(first[0], model.initial_weights(6)[0])
    # Glorot: uniform within sqrt(6 / (fan_in + fan_out)); biases are zero.
    assert 0 < np.abs(first[0]).max() <= np.sqrt(6 / 12)
    np.testing.assert_array_equal(first[1], np.zeros(8))


def test_batch_statistics_are_refused():
    class Normalized(toy.TwoLayers):
        def __init__(self):
            super().__init__()
            self.norm = tf.keras.layers.BatchNormalization()

        def call(self, x, training=False, key=None):
            return self.norm(super().call(x, training, key))

    with pytest.raises(ValueError, match="trainable"):
        functional_model.from_keras(Normalized, np.zeros([1, 4], np.float32))


class _Preprocess(list):  # Has no hash, as what a package hands in may have none.
    def __call__(self, raw, *_):
        self.append("called")
        return raw["x"], raw["y"]


def test_a_task_that_is_changed_traces_its_model_once_for_each_preprocessing():
    changed = dataclasses.replace(toy.classifier_task(2, (3,)), preprocess=(own := _Preprocess()))
    dataclasses.replace(changed, facts={"more": 1})
    assert len(own) == 1
    with pytest.raises(ValueError, match="cannot read its data"):
        dataclasses.replace(changed, preprocess=lambda raw, *_: (raw["x"][:, :2], raw["y"]))
