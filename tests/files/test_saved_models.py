"""Keras SavedModels of Motley's architectures give our models the same outputs.

The architectures are built here as the published ones are laid out: Sequential and functional
Keras, other orders of layers, softmax in the model. All weights are random, biases and norms, too.
"""

import shutil
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from datasets.models import emnist_cnn, mobilenet_v2, stackoverflow_lstm, ted_transformer
from motley_tff.core import functional_model
from motley_tff.files import model_files
from tests.errors import refused

L = tf.keras.layers
_KEY = tf.zeros([2], tf.int32)


def published_cnn(num_classes):
    """Sequential, with dropout and a softmax."""
    return tf.keras.Sequential(
        [
            L.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            L.Conv2D(64, 3, activation="relu"),
            L.MaxPool2D(),
            L.Dropout(0.25, seed=0),
            L.Flatten(),
            L.Dense(128, activation="relu"),
            L.Dropout(0.5, seed=0),
            L.Dense(num_classes, activation=tf.nn.softmax),
        ]
    )


def published_lstm(num_ids):
    """Functional, padding masked."""
    ids = L.Input([None])
    h = L.Embedding(num_ids, 96, mask_zero=True)(ids)
    h = L.Dense(96)(L.LSTM(670, return_sequences=True)(h))
    return tf.keras.Model(ids, L.Dense(num_ids)(h), name="rnn")


def published_mobilenet(num_classes, side):
    """Functional; strides by padding beforehand."""

    def normed(x, convolution, is_active=True):
        # As TensorFlow Addons has it: groups of neighbouring channels.
        x = L.GroupNormalization(8, epsilon=1e-3)(convolution(x))
        return L.ReLU(6.0)(x) if is_active else x

    def strided(x, layer, size, **options):
        before = 1 - (1 - x.shape[1] % 2)
        padded = L.ZeroPadding2D(((before, 1), (before, 1)))(x)
        return layer(*size, strides=2, padding="valid", use_bias=False, **options), padded

    def block(x, expansion, channels, stride):
        h = x
        if expansion > 1:
            h = normed(h, L.Conv2D(expansion * x.shape[-1], 1, padding="same", use_bias=False))
        depthwise = L.DepthwiseConv2D(3, padding="same", use_bias=False)
        if stride == 2:
            depthwise, h = strided(h, L.DepthwiseConv2D, (3,))
        h = normed(h, depthwise)
        h = normed(h, L.Conv2D(channels, 1, padding="same", use_bias=False), is_active=False)
        return L.add([x, h]) if stride == 1 and x.shape[-1] == channels else h

    images = L.Input([side, side, 3])
    h = normed(*reversed(strided(images, L.Conv2D, (32, 3))))
    for expansion, channels, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        for number in range(count):
            h = block(h, expansion, channels, 1 if number else stride)
    h = L.GlobalAveragePooling2D()(normed(h, L.Conv2D(1280, 1, use_bias=False)))
    return tf.keras.Model(images, L.Dense(num_classes, activation="softmax", name="logits")(h))


class _Attention(L.Layer):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.dense = (L.Dense(512) for _ in range(4))

    def call(self, x):
        def heads(h):
            return tf.transpose(tf.reshape(h, [tf.shape(x)[0], -1, 8, 64]), [0, 2, 1, 3])

        q, k, v = heads(self.wq(x)), heads(self.wk(x)), heads(self.wv(x))
        hidden = 1 - tf.linalg.band_part(tf.ones([tf.shape(x)[1]] * 2), -1, 0)
        shares = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 8.0 - 1e9 * hidden)
        mixed = tf.transpose(tf.matmul(shares, v), [0, 2, 1, 3])
        return self.dense(tf.reshape(mixed, [tf.shape(x)[0], -1, 512]))


class _Encoder(L.Layer):
    """Its norms come after its feed-forward part, which runs between them."""

    def __init__(self):
        super().__init__()
        self.mha = _Attention()
        self.ffn = tf.keras.Sequential([L.Dense(2048, activation="relu"), L.Dense(512)])
        self.layernorm1 = L.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = L.LayerNormalization(epsilon=1e-6)
        self.dropout1, self.dropout2 = L.Dropout(0.1), L.Dropout(0.1)

    def call(self, x, training=None):
        h = self.layernorm1(x + self.dropout1(self.mha(x), training=training))
        return self.layernorm2(h + self.dropout2(self.ffn(h), training=training))


class _Transformer(L.Layer):
    """Positions of width 96 before the projection."""

    def __init__(self, num_ids):
        super().__init__()
        self.embedding = L.Embedding(num_ids, 96, mask_zero=True)
        angles = np.arange(1000)[:, None] / 10_000 ** (2 * (np.arange(96) // 2) / 96)
        angles[:, 0::2], angles[:, 1::2] = np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])
        self.positions = tf.constant(angles, tf.float32)
        self.embedding_proj = L.Dense(512)
        self.enc_layers = [_Encoder()]
        self.embedding_out_proj = L.Dense(96)
        self.dropout = L.Dropout(0.1)

    def call(self, x, training=None):
        h = self.embedding(x) * tf.sqrt(96.0) + self.positions[: tf.shape(x)[1]]
        h = self.dropout(self.embedding_proj(h), training=training)
        return self.embedding_out_proj(self.enc_layers[0](h, training=training))


class _Transposed(L.Layer):
    """Shares the embedding's matrix."""

    def __init__(self, embedding):
        super().__init__()
        self.embeddings = embedding.embeddings

    def call(self, x):
        return tf.matmul(x, self.embeddings, transpose_b=True)


def published_transformer(num_ids):
    """Functional around layers of its own."""
    ids = L.Input([None])
    transformer = _Transformer(num_ids)
    h = transformer(ids)
    return tf.keras.Model(ids, _Transposed(transformer.embedding)(h))


def _ids(num_ids):
    return np.random.default_rng(0).integers(1, num_ids, [3, 20]).astype(np.int32)


def _images(side, channels):
    return np.random.default_rng(0).normal(size=[2, side, side, channels]).astype(np.float32)


class Pair(NamedTuple):
    """A published architecture and ours, each of few classes or words, and inputs of both."""

    publish: Callable[[], tf.keras.Model]
    build: Callable[[], tf.keras.Model]
    x: np.ndarray
    has_softmax: bool = False

    def ours(self):
        """Returns our functional model."""
        return functional_model.from_keras(self.build, self.x)


PAIRS = {
    "cnn": Pair(lambda: published_cnn(5), lambda: emnist_cnn.EmnistCnn(5), _images(28, 1), True),
    "lstm": Pair(
        lambda: published_lstm(12), lambda: stackoverflow_lstm.StackoverflowLstm(12), _ids(12)
    ),
    "mobilenet": Pair(
        lambda: published_mobilenet(7, 32),
        lambda: mobilenet_v2.MobileNetV2(7),
        _images(32, 3),
        True,
    ),
    "transformer": Pair(
        lambda: published_transformer(12), lambda: ted_transformer.TedTransformer(12), _ids(12)
    ),
}


def _saved(name, path):
    """Saves a published model of random weights as Keras does, optimizer and all; returns it."""
    model, rng = PAIRS[name].publish(), np.random.default_rng(1)
    model.set_weights(
        [w + rng.normal(0, 0.3 / np.sqrt(np.prod(w.shape[:-1]) or 1), w.shape)
         for w in model.get_weights()]
    )  # fmt: skip
    model.compile("adam", "mse")  # What an optimizer and metrics leave is not taken.
    model.save(path)
    return model


def _load(models, path):
    ours = models.ours()
    return ours, model_files.load(str(path), ours.shapes, ours.names)


def _assert_same_outputs(name, published, path):
    models = PAIRS[name]
    ours, weights = _load(models, path)
    mine = ours.predict(weights, models.x, False, _KEY)
    mine = tf.nn.softmax(mine) if models.has_softmax else mine
    expected = published(models.x, training=False).numpy()
    assert np.std(expected) > 1e-4
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(mine.numpy() / scale, expected / scale, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def saved_cnn(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "cnn"
    return _saved("cnn", path), path


def test_cnn_as_keras_saves_it(saved_cnn):
    _assert_same_outputs("cnn", *saved_cnn)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "lstm", "mobilenet"])
def test_same_outputs(tmp_path, name):
    _assert_same_outputs(name, _saved(name, tmp_path), tmp_path)


def test_no_code_is_read(saved_cnn, tmp_path):
    path = shutil.copytree(saved_cnn[1], tmp_path / "copy")
    for name in ("saved_model.pb", "keras_metadata.pb"):
        (path / name).write_bytes(b"no protocol buffer")
    _assert_same_outputs("cnn", saved_cnn[0], path)


@pytest.mark.parametrize("name", ["variables.index", "variables.data-00000-of-00001"])
@pytest.mark.parametrize("left", [None, 0, 100])
def test_a_damaged_one_is_one_line(saved_cnn, tmp_path, name, left):
    path = shutil.copytree(saved_cnn[1], tmp_path / "copy")
    file = path / "variables" / name
    if left is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:left])
    with refused(str(path), "a damaged SavedModel"):
        _load(PAIRS["cnn"], path)


def test_another_model_is_named(saved_cnn):
    _, path = saved_cnn
    other = PAIRS["cnn"]._replace(build=lambda: emnist_cnn.EmnistCnn(6))
    with refused(str(path), "bias [5], kernel [128, 5]", "logits with bias [6], kernel [128, 6]"):
        _load(other, path)


def test_more_than_the_model_is_refused(tmp_path):
    dense = [L.Dense(2, input_shape=(3,)), L.Dense(4)]
    tf.keras.Sequential(dense).save(tmp_path)
    names, shapes = ["one/kernel:0", "one/bias:0"], [(3, 2), (2,)]
    with refused(str(tmp_path), "[2, 4]", "1 layers"):
        model_files.load(str(tmp_path), shapes, names)
    with refused(str(tmp_path), "2 layers", "a layer two"):
        model_files.load(str(tmp_path), [*shapes, (2, 9)], [*names, "two/kernel:0"])


def test_layers_of_one_form_keep_their_order(tmp_path):
    first, second = L.Dense(3, input_shape=(3,)), L.Dense(3)
    tf.keras.Sequential([first, second]).save(tmp_path)
    weights = model_files.load(
        str(tmp_path), [(3, 3), (3,), (3, 3), (3,)], ["a/kernel", "a/bias", "b/kernel", "b/bias"]
    )
    np.testing.assert_array_equal(weights[0], first.kernel.numpy())
    np.testing.assert_array_equal(weights[2], second.kernel.numpy())


def test_what_keras_did_not_save(tmp_path):
    module = tf.Module()
    module.weight = tf.Variable([1.0])
    tf.saved_model.save(module, str(tmp_path))
    with refused(str(tmp_path), "without a Keras model's list"):
        model_files.load(str(tmp_path), [(1,)], ["weight"])
