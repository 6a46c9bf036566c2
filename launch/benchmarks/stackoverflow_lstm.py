"""Steps of a language model of StackOverflow's size: 4,050,748 weights by default."""

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from launch.benchmarks import rounds
from launch.benchmarks.measuring import Plan
from launch.benchmarks.sizes import Sizes
from motley_tff.core import clients, functional_model, random_streams
from motley_tff.core import task as task_lib

_EMBEDDING = 96
_LEARNING_RATE = 0.3


class NextWord(tf.keras.Model):
    """Logits [batch, time, vocabulary] from token ids int32 [batch, time]."""

    def __init__(self, vocabulary: int, units: int):
        super().__init__()
        layers = tf.keras.layers
        self.embedding = layers.Embedding(vocabulary, _EMBEDDING, name="embedding")
        # Keras draws a "unit forget bias" by a closure, which a functional model cannot seed.
        self.lstm = layers.LSTM(units, return_sequences=True, unit_forget_bias=False, name="lstm")
        self.projection = layers.Dense(_EMBEDDING, name="projection")
        self.logits = layers.Dense(vocabulary, name="logits")

    @property
    def last_layer(self):
        """What "fine-tune the last layer" trains."""
        return (self.logits,)

    def call(self, x, training=False, key=None):
        """Returns logits."""
        return self.logits(self.projection(self.lstm(self.embedding(x))))


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure."""
    task = create_task(sizes)
    training = rounds.Training(task, _LEARNING_RATE, sizes.lstm_batch_size)
    title = (
        f"one FedAvg round of an LSTM of {task.model.num_weights:,} weights, {sizes.lstm_clients} "
        f"clients x {sizes.lstm_sentences} sentences of {sizes.lstm_tokens} tokens, "
        f"batch {sizes.lstm_batch_size}"
    )
    yield Plan(title, list(rounds.sequential_only(training, threads)))


def create_task(sizes: Sizes) -> task_lib.Task:
    """Returns a next-word task on random tokens."""
    train = clients.InMemoryClients(
        {str(i): {"train": _sentences(sizes, i)} for i in range(sizes.lstm_clients)}
    )
    sentence = _sentences(sizes, 0)
    held_out = clients.InMemoryClients({"0": {"personalization": sentence, "evaluation": sentence}})
    return task_lib.Task(
        dataset="stackoverflow",
        setting="cross_device",
        model=functional_model.from_keras(
            lambda: NextWord(sizes.lstm_vocabulary, sizes.lstm_units),
            np.zeros((1, sizes.lstm_tokens), np.int32),
        ),
        loss=_cross_entropy,
        metrics=(task_lib.Metric("accuracy", _accuracy, higher_is_better=True),),
        preprocess=_preprocess,
        train=train,
        valid=held_out,
        test=held_out,
    )


def _sentences(sizes: Sizes, client: int) -> dict[str, np.ndarray]:
    rng = random_streams.generator(rounds.SEED, "synthetic_data", client)
    # One more token than is read: the last one's successor.
    shape = (sizes.lstm_sentences, sizes.lstm_tokens + 1)
    return {"tokens": rng.integers(0, sizes.lstm_vocabulary, shape, dtype=np.int32)}


def _preprocess(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    del training, key
    return examples["tokens"][:, :-1], examples["tokens"][:, 1:]


def _cross_entropy(targets: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    return losses, tf.ones_like(losses)


def _accuracy(targets: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    hits = tf.cast(tf.equal(tf.argmax(logits, -1, tf.int32), targets), tf.float32)
    return hits, tf.ones_like(hits)
