import numpy as np
import pytest
import tensorflow as tf

from datasets.kinds import next_words

WORDS = ["the", "a", "c++", "naïve", "<URL>"]
SENTENCES = [
    "the a the",
    "a unknown c++ naïve <URL>",
    "",
    "the  a",
    " ".join(["a"] * 6),
    " ".join(["the"] * 7),
    " ".join(["nothing"] * 30),
]


@pytest.fixture(scope="module")
def table():
    return next_words.word_table(WORDS, oov=6)


@pytest.mark.parametrize("words", [[], ["a", "b", "a"]])
def test_words_that_make_no_table(words):
    with pytest.raises(ValueError, match="Expected"):
        next_words.word_table(words, oov=6)


def test_encoding_is_that_of_tff_baselines(table):
    from tensorflow_federated.python.simulation.baselines.stackoverflow import (
        word_prediction_preprocessing as published,
    )

    to_ids = published.build_to_ids_fn(WORDS, max_sequence_length=7)
    expected = np.zeros((len(SENTENCES), 8), np.int32)
    for row, sentence in zip(expected, SENTENCES, strict=True):
        ids = to_ids({"tokens": tf.constant(sentence)}).numpy()
        row[: len(ids)] = ids
    actual = next_words.encode(tf.constant(SENTENCES), table, 7, bos=7, eos=8)
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == tf.int32


def test_encoding_in_a_plain_graph_that_captures_nothing(table):
    with tf.Graph().as_default() as graph:
        sentences = tf.compat.v1.placeholder(tf.string, [None])
        ids = next_words.encode(sentences, table, 3, bos=7, eos=8)
        assert ids.shape.as_list() == [None, 4]
        with tf.compat.v1.Session(graph=graph) as session:
            actual = session.run(ids, {sentences: SENTENCES[:1]})
            nothing = session.run(ids, {sentences: []})
    np.testing.assert_array_equal(actual, [[7, 1, 2, 1]])
    assert nothing.shape == (0, 4)
