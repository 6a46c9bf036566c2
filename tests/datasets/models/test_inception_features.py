"""InceptionV3's features, with random weights in Keras's file format."""

import csv
import subprocess
import sys

import h5py
import numpy as np
import pytest
import tensorflow as tf

from datasets.models import inception_features
from motley_tff.metrics.generative import client_features, scores
from tests.errors import refused
from tests.trainers import programs

slow = pytest.mark.slow  # The network takes seconds to build.


@pytest.fixture(scope="module")
def network():
    """Returns the network with a classifier that tests never reach."""
    tf.keras.utils.set_random_seed(0)
    return tf.keras.applications.InceptionV3(weights=None, classes=1000)


@pytest.fixture(scope="module")
def files(network, tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    network.save_weights(folder / "with_top.h5")
    headless = tf.keras.Model(network.input, network.layers[-3].output)
    headless.save_weights(folder / "notop.h5")
    return folder


@pytest.fixture(scope="module")
def model(files):
    return inception_features.load(files / "notop.h5")


IMAGES = np.random.default_rng(0).integers(0, 256, (2, 9, 9, 3), np.uint8)


@slow
def test_features_are_what_the_classifier_takes(network, files, model):
    actual = inception_features.embed(model, IMAGES)
    assert actual.shape == (2, inception_features.NUM_FEATURES) and actual.dtype == np.float32
    pixels = tf.image.resize(IMAGES, [299, 299]).numpy()
    pooled = tf.keras.Model(network.input, network.get_layer("avg_pool").output)
    expected = pooled(tf.keras.applications.inception_v3.preprocess_input(pixels), training=False)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-8)
    # Random weights let little through: the images' features are small, and differ.
    assert (np.ptp(actual, axis=0) > 0.1 * actual.mean(axis=0)).mean() > 0.1
    same = inception_features.embed(inception_features.load(files / "with_top.h5"), IMAGES)
    np.testing.assert_allclose(same, actual, rtol=1e-3, atol=1e-8)
    # Fractions and grey images.
    grey = IMAGES[..., 0]
    actual = inception_features.embed(model, grey)
    repeated = np.repeat(grey[..., None], 3, axis=-1)
    for same in (repeated, grey[..., None], grey / 255.0, np.float32(repeated / 255)):
        again = inception_features.embed(model, same)
        np.testing.assert_allclose(again, actual, rtol=1e-2, atol=1e-7)


@pytest.mark.parametrize(
    ("images", "problem", "expected"),
    [
        (np.zeros((2, 9, 9, 4)), "[2, 9, 9, 4]", "1 or 3 channels"),
        (np.zeros((0, 9, 9)), "[0, 9, 9, 1]", "some"),
        (np.full((2, 9, 9), np.nan), "nan to nan of type float64", "0..1"),
        (np.full((2, 9, 9), 2.5), "2.5 to 2.5 of type float64", "0..1"),
        (np.full((2, 9, 9), -1), "-1 to -1", "0..255"),
        (np.full((2, 9, 9), 256), "256 to 256", "0..255"),
    ],
)
def test_images_that_are_none(images, problem, expected):
    with refused(finding=problem, expected=expected):
        inception_features.embed(None, images)


@slow
def test_motley_generative_takes_images(files, model, tmp_path):
    clients = {"a": IMAGES, "b": IMAGES[:, ::-1]}
    np.savez(tmp_path / "clients.npz", **clients)
    np.savez(tmp_path / "drawn.npz", images=IMAGES[..., ::-1])
    flags = [f"--clients={tmp_path / 'clients.npz'}", f"--generated={tmp_path / 'drawn.npz'}"]
    flags += [f"--output={tmp_path / 'table.csv'}"]
    flags += [f"--inception_weights={files / 'notop.h5'}", "--num_neighbors=1"]
    command = [sys.executable, "-m", "launch.generative.command", *flags]
    subprocess.run(command, env=programs.environment(), check=True, capture_output=True)
    with open(tmp_path / "table.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    features = {name: inception_features.embed(model, array) for name, array in clients.items()}
    drawn = {"drawn": inception_features.embed(model, IMAGES[..., ::-1])}
    real = client_features.from_arrays(features)
    for column, value in scores.table(real, drawn, 1).rows[0].items():
        if column.startswith(("fid", "recall", "coverage")):
            assert float(row[column]) == pytest.approx(value, rel=0.01), column


@slow
def test_weights_that_are_others(files, tmp_path):
    load = inception_features.load
    with refused("none.h5", "no such file", "InceptionV3"):
        load(tmp_path / "none.h5")
    with refused("weights.pt", expected=".h5"):
        load(tmp_path / "weights.pt")
    (tmp_path / "text.h5").write_text("text")
    with refused("text.h5", "signature not found", "HDF5"):
        load(tmp_path / "text.h5")
    small = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    small.save_weights(tmp_path / "small.h5")
    with refused("small.h5", "another network", "InceptionV3"):
        load(tmp_path / "small.h5")
    broken = tmp_path / "broken.h5"
    broken.write_bytes((files / "notop.h5").read_bytes())
    with h5py.File(broken, "r+") as file:
        first = []
        file.visititems(lambda _, it: first.append(it) if isinstance(it, h5py.Dataset) else None)
        first[0][...] = np.nan
    with refused("broken.h5", "not finite"):
        load(broken)
