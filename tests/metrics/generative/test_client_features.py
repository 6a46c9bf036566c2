"""Files of clients' examples and of generated sets."""

import numpy as np
import pytest

from motley_tff.metrics.generative import client_features
from tests.errors import refused

A, B = np.arange(6.0).reshape(3, 2), np.ones((1, 2))
_FIVE = {"features": A, **{f"x{i}": A for i in range(4)}}


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "file.npz", **arrays)
        return tmp_path / "file.npz"

    return write


def test_an_array_a_client(save):
    clients = client_features.read_clients(save(b=B, a=A))
    assert clients.ids == ("a", "b") and clients.parts == (slice(0, 3), slice(3, 4))
    np.testing.assert_array_equal(clients.features, np.concatenate([A, B]))
    assert clients.shares.tolist() == [0.75, 0.25]
    largest = client_features.read_clients(save(a=np.array([[1e30], [-1e30]])))
    assert largest.features.tolist() == [[1e30], [-1e30]]


@pytest.mark.parametrize("ids", ["abc", (7, 8, 9)])
def test_a_column_of_three_clients(save, ids):
    a, b, c = ids
    path = save(features=np.arange(8.0).reshape(4, 2), client_id=np.array([c, a, b, a]))
    clients = client_features.read_clients(path)
    assert clients.ids == tuple(map(str, ids))
    assert clients.parts == (slice(0, 2), slice(2, 3), slice(3, 4))
    assert clients.features.tolist() == [[2, 3], [6, 7], [4, 5], [0, 1]]


def test_generated_sets(save, tmp_path):
    for path in (save(anything=A), save(features=A, labels=np.zeros(3))):
        np.testing.assert_array_equal(client_features.read_generated(path, 2), A)
    np.save(tmp_path / "file.npy", A)
    np.testing.assert_array_equal(client_features.read_generated(tmp_path / "file.npy", 2), A)


def test_images_become_features(save):
    images = np.arange(2 * 3 * 3).reshape(2, 3, 3)

    def embed(array):
        return array.reshape(len(array), -1)[:, :2].astype(float)

    clients = client_features.read_clients(save(a=images, b=images), embed)
    assert clients.features.tolist() == [[0, 1], [9, 10]] * 2
    assert client_features.read_generated(save(images=images), 2, embed).shape == (2, 2)
    both = save(features=A, images=images)
    assert client_features.read_generated(both, 2, embed).tolist() == [[0, 1], [9, 10]]
    assert client_features.read_generated(both, 2).tolist() == A.tolist()
    both = save(features=A[:2], images=images, client_id=np.array(["b", "a"]))
    assert client_features.read_clients(both, embed).features.tolist() == [[9, 10], [0, 1]]
    assert client_features.read_clients(both).features.tolist() == A[1::-1].tolist()
    coloured = client_features.read_clients(save(a=images[..., None]), embed)
    assert coloured.features.tolist() == [[0, 1], [9, 10]]
    with refused("[a]", "[3, 2]", "images"):
        client_features.read_clients(save(a=A), embed)


@pytest.mark.parametrize(
    ("arrays", "place", "problem", "expected"),
    [
        ({"a": A, "b": np.ones((2, 3))}, " [b]", "3 features", "2 as client a"),
        ({"a": A, "b": A * np.nan}, " [b]", "nan", "finite"),
        ({"a": A * 1e40}, " [a]", "larger", "1e+30"),
        ({"a": A, "b": A[:0]}, " [b]", "[0, 2]", "examples"),
        ({"a": A[0]}, " [a]", "[2]", "[examples, features]"),
        ({"a": np.ones((2, 4, 4))}, " [a]", "[2, 4, 4]", "[examples, features]"),
        ({"a": np.ones((2, 4, 4, 3))}, " [a]", "[2, 4, 4, 3]", "[examples, features]"),
        ({"a": np.ones((2, 4, 4, 3, 1))}, " [a]", "[2, 4, 4, 3, 1]", "[examples, features]"),
        ({"a": np.repeat([[1.0], [np.nan]], 3000, axis=0)}, " [a]", "nan", "finite"),
        ({"a": np.array([["x"]])}, " [a]", "<U1", "real numbers"),
        ({"a": A + 1j}, " [a]", "complex128", "real numbers"),
        ({}, "", "no array", "examples"),
        ({"features": A}, "", "arrays features", "client_id and features"),
        ({"features": A, "label": np.arange(3)}, "", "arrays features, label", "client_id"),
        ({"features": A, "client_id": np.arange(2)}, "", "[2] and features [3, 2]", "each row"),
        ({"features": A, "client_id": np.zeros(3)}, " client_id", "float64", "text"),
        ({"features": A[:0], "client_id": np.arange(0)}, "", "no rows", "examples"),
        (_FIVE, "", "arrays features, x0, x1, x2, x3", "client_id"),
        ({**_FIVE, "x4": A}, "", "arrays features, x0, x1, x2, x3, ...", "client_id"),
        ({"x": A, "client_id": np.arange(3)}, "", "client_id, x", "client_id and features"),
        ({"features": A, "images": A[:2], "client_id": np.arange(3)}, "", "images [2, 2]", "row"),
        ({"a": np.array([A, None], dtype=object)}, "", "Object arrays", ".npz"),
    ],
)
def test_clients_files_that_are_not_as_they_should_be(save, arrays, place, problem, expected):
    with refused(f"file.npz{place}", problem, expected) as caught:
        client_features.read_clients(save(**arrays))
    is_picture = problem in ("an array [2, 4, 4]", "[2, 4, 4]", "[2, 4, 4, 3]")
    assert ("pca:64" in caught.value.advice) == is_picture


@pytest.mark.parametrize(
    ("arrays", "problem", "expected"),
    [
        ({"a": np.ones((2, 3))}, "3 features", "2 as the clients"),
        ({"a": A, "b": A}, "arrays a, b", "one array, or one named features"),
        ({"a": A - np.inf}, "infinite", "finite"),
    ],
)
def test_generated_files_that_are_not_as_they_should_be(save, arrays, problem, expected):
    with refused("file.npz", problem, expected):
        client_features.read_generated(save(**arrays), 2)


def test_files_that_are_none(tmp_path):
    with refused("nothing.npz cannot be read: No such file"):
        client_features.read_clients(tmp_path / "nothing.npz")
    for content in (b"", b"PK\x03\x04 broken", b"text"):
        (tmp_path / "x.npz").write_bytes(content)
        with refused("x.npz", expected="an .npz file"):
            client_features.read_clients(tmp_path / "x.npz")
    np.save(tmp_path / "x.npy", A)
    with refused("x.npy", "arrays features", "client_id and features"):
        client_features.read_clients(tmp_path / "x.npy")
