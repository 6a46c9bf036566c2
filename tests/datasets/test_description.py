import dataclasses

import numpy as np
import pandas as pd
import pytest

from datasets import description, emnist, text
from datasets.kinds import next_words
from datasets.options import DataOptions
from motley_tff.core import clients
from tests import toy


def _with_field(task, field, value, **changes):
    """Puts a raw field that the model does not read beside the first client's."""
    data = {i: dict(task.train.fetch(i)["train"]) for i in task.train.ids}
    for examples in data.values():
        examples[field] = value(len(next(iter(examples.values()))))
    train = clients.InMemoryClients({i: {"train": e} for i, e in data.items()})
    return dataclasses.replace(task, train=train, **changes)


def test_sample_says_words_and_sizes():
    task = toy.classifier_task()
    names = next_words.make_tokens(["the", "cat"], 3).names
    assert names == ("", "the", "cat", "", "<oov>", "<bos>", "<eos>")
    tokens = np.array([5, 1, 2, 4, 6, 0, 0, 0, 0, 0], np.int32)
    with_text = _with_field(
        task, "t", lambda n: np.tile(tokens, (n, 1)), label_names=names, label_field=None
    )
    assert description.sample(with_text)["t"].endswith("(<bos> the cat <oov> <eos>)")
    image = np.array([b"x" * 1234], object)
    assert description.sample(_with_field(task, "i", image.repeat))["i"] == "1,234 bytes"
    wide = _with_field(task, "w", lambda n: np.zeros((n, 3, 4), np.float32))
    assert description.sample(wide)["w"] == "float32 (3, 4)"


def test_only_labels_have_the_names_of_classes():
    """Numbers beside them, as tokens of texts are, do not; nor has a class of no training part."""
    frame = pd.DataFrame({"who": [f"c{i // 4}" for i in range(40)], "what": ["a b"] * 40,
                          "kind": ["x", "y"] * 20})  # fmt: skip
    columns = {"client_column": "who", "text_column": "what", "label_column": "kind"}
    task = text.create_task_from_data(frame, DataOptions("text", **columns))
    said = description.sample(task)
    assert said["tokens"] == "int32 (64,)" and said["label"] in (
        "[0] (x)",
        "[1] (y)",
        "0 (x)",
        "1 (y)",
    )
    unknown = _with_field(task, "label", lambda n: np.full(n, -1, np.int32))
    assert description.sample(unknown)["label"] == "-1 (of no training part)"


def test_columns_carry_the_labels_names():
    writing = emnist.synthesize(0, num_writers=8)
    task = emnist.create_task_from_data(writing.images, writing.labels, writing.writer_ids)
    shares = description.label_shares(task, num_labels=62)
    assert shares.labels[:11] == tuple("0123456789A")
    assert 0 < shares.distance < 1


def test_the_distance_counts_labels_that_have_no_column():
    """Of n clients with a label of their own each, each is 1 - 1 / n from their average."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 28, 28), np.uint8)
    owners = np.repeat(np.arange(6), 2)
    task = emnist.create_task_from_data(images, owners * 10, owners)
    few, all_labels = (description.label_shares(task, num_labels=n) for n in (2, 62))
    assert few.shares.shape[1] == 2 and few.distance == all_labels.distance
    number = len(few.client_ids)
    assert few.distance == pytest.approx(1 - 1 / number)


def test_pixels_around_zero_are_drawn_from_0_to_1():
    writing = emnist.synthesize(0, num_writers=8)
    task = emnist.create_task_from_data(writing.images, writing.labels, writing.writer_ids)
    plain = description.images(task)

    def around_zero(examples, training, key):
        x, y = task.preprocess(examples, training, key)
        return 2 * x - 1, y

    shifted = description.images(dataclasses.replace(task, preprocess=around_zero))
    for client_id, images in plain.items():
        np.testing.assert_allclose(shifted[client_id], images, atol=1e-6)
    assert description.images(toy.classifier_task()) is None


def test_sizes_count_all_parts_and_their_skew_is_said():
    sizes = description.client_sizes(toy.scalar_task({"a": [1.0] * 3}, {"v": ([1.0], [2.0, 3.0])}))
    assert sizes == {"train": {"a": 3}, "valid": {"v": 3}, "test": {"v": 3}}
    assert description.size_skew([1] * 18 + [6, 16]) == (
        "1 to 16 examples, median 1; the largest 2 of 20 clients have 55%"
    )
