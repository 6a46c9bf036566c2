"""TedMulti's Transformer: its size, its mathematics, what it may see."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from datasets.models import ted_transformer
from motley_tff.core import functional_model

_SIZE, _TIME = 40, 20
_KEY = np.array([3, 4], np.int32)


def build(size):
    return functional_model.from_keras(
        functools.partial(ted_transformer.TedTransformer, size), np.zeros((1, _TIME), np.int32)
    )


@pytest.fixture(scope="module")
def model():
    return build(_SIZE)


@pytest.fixture(scope="module")
def weights(model):
    """Drawn anew, so that biases, gammas and betas are no zeros and ones."""
    rng = np.random.default_rng(0)
    return tuple(
        (w + rng.normal(0, 0.05, w.shape)).astype(np.float32) for w in model.initial_weights(1)
    )


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(1).integers(1, _SIZE, (3, _TIME)).astype(np.int32)


def predict(model, weights, ids, training=False, key=_KEY):
    return model.predict(weights, tf.constant(ids), training, tf.constant(key)).numpy()


def test_same_outputs_as_the_formulas_in_numpy(model, weights, ids):
    """Vaswani et al. 2017, equation 1 and sections 3.1 to 3.5, one head at a time.

    As published, positions are added to the words' embeddings, before they are projected.
    """
    w = {n.split("/", 1)[1].removesuffix(":0"): v.astype(np.float64)
         for n, v in zip(model.names, weights, strict=True)}  # fmt: skip

    def dense(name, h):
        return h @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    def norm(name, h):
        centred = h - h.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(h.var(-1, keepdims=True) + 1e-6)
        return scaled * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def attend(h):
        q, k, v = (dense(name, h) for name in ("query", "key", "value"))
        heads = []
        for i in range(8):
            mine = slice(64 * i, 64 * (i + 1))
            rows = []
            for t in range(_TIME):
                scores = k[: t + 1, mine] @ q[t, mine] / 8
                shares = np.exp(scores - scores.max())
                rows.append(shares / shares.sum() @ v[: t + 1, mine])
            heads.append(rows)
        return dense("attended", np.concatenate(heads, axis=-1))

    places = np.zeros((_TIME, 96))
    for i in range(48):
        angle = np.arange(_TIME) / 10_000 ** (2 * i / 96)
        places[:, 2 * i], places[:, 2 * i + 1] = np.sin(angle), np.cos(angle)
    for sentence, embedded, logits in zip(
        ids, model.embed(weights, tf.constant(ids)), predict(model, weights, ids), strict=True
    ):
        h = dense("project_in", w["embedding/embeddings"][sentence] * np.sqrt(96) + places)
        h = norm("attention_norm", h + attend(h))
        feed = dense("output_of_hidden", np.maximum(dense("hidden", h), 0))
        out = dense("project_out", norm("hidden_norm", h + feed))
        np.testing.assert_allclose(embedded, out, atol=2e-4)
        np.testing.assert_allclose(logits, out @ w["embedding/embeddings"].T, atol=2e-4)


def test_the_names_and_the_order_of_the_weights(model):
    """Files of weights hang on them; the last layer is the shared embedding."""
    assert model.is_last_layer == (True, *[False] * (len(model.names) - 1))
    layers = [n.split("/")[1] for n in model.names]
    assert list(dict.fromkeys(layers)) == [
        "embedding", "project_in", "query", "key", "value", "attended", "attention_norm", "hidden",
        "output_of_hidden", "hidden_norm", "project_out",
    ]  # fmt: skip


def test_attention_has_no_dropout(model, weights, ids, monkeypatch):
    """Of a step's three masks none is drawn over the shares [batch, 8, time, time]."""
    shapes = []

    def dropout(x, rate, key):
        shapes.append(tuple(x.shape))
        return x

    monkeypatch.setattr(ted_transformer.tensor_random, "dropout", dropout)
    predict(model, weights, ids, training=True)
    assert shapes == [(3, _TIME, 512)] * 3


def test_dropout_hangs_on_the_key_alone(model, weights, ids):
    trained = predict(model, weights, ids, training=True)
    np.testing.assert_array_equal(predict(model, weights, ids, training=True), trained)
    other = predict(model, weights, ids, training=True, key=_KEY + 1)
    assert not np.allclose(other, trained)
    assert not np.allclose(predict(model, weights, ids), trained)
