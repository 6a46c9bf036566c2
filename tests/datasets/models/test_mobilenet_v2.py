import numpy as np
import pytest
import tensorflow as tf

from datasets.models import mobilenet_v2
from motley_tff.core import functional_model


@pytest.fixture(scope="module")
def model():
    return functional_model.from_keras(
        mobilenet_v2.MobileNetV2, np.zeros((1, 32, 32, 3), np.float32)
    )


def test_number_of_weights(model):
    assert model.num_weights == 4_821_740
    last = [s for s, is_last in zip(model.shapes, model.is_last_layer, strict=True) if is_last]
    assert last == [(1280, 2028), (2028,)]
    norms = [name for name, is_norm in zip(model.names, model.is_norm, strict=True) if is_norm]
    assert norms == [name for name in model.names if "_norm/" in name] and len(norms) == 104


def test_an_example_does_not_depend_on_its_batch_and_the_embedding_feeds_the_last_layer(model):
    weights = model.initial_weights(0)
    x = tf.random.stateless_normal([3, 32, 32, 3], [1, 2])
    together = model.predict(weights, x, True, None)
    assert together.shape == (3, 2028)
    wide = tf.concat([x[1:2], x[1:2]], 2)  # Of any size.
    assert model.embed(weights, wide).shape == (1, 1280)
    h = model.embed(weights, x[1:2])
    np.testing.assert_allclose(together[1:2], h @ weights[-2] + weights[-1], atol=1e-5)


def test_both_forms_of_a_convolution_and_its_norm_agree():
    x = tf.random.stateless_normal([2, 8, 8, 16], [1, 2]) + 1.0
    layer, kernel = mobilenet_v2.GroupNorm(32, 8, "norm"), mobilenet_v2.Kernel(32, "kernel")
    together = layer(x, kernel=kernel(x))
    assert x.shape[1] * x.shape[2] >= mobilenet_v2._POSITIONS_PER_CHANNEL * x.shape[3]
    apart = layer(tf.nn.conv2d(x, kernel(x), 1, "SAME"))
    np.testing.assert_allclose(together, apart, atol=1e-5)
