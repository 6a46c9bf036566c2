"""Rounds of StackOverflow's LSTM on random tokens: 4,050,748 weights by default."""

import contextlib
import functools
from collections.abc import Iterator

import numpy as np

from datasets import text
from datasets.models import stackoverflow_lstm
from launch.benchmarks import rounds
from launch.benchmarks.measuring import Plan, Sizes
from motley_tff.core import clients, random_streams
from motley_tff.core import task as task_lib

_LEARNING_RATE = 0.3


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
    yield Plan(title, rounds.sequential_only(training, threads))


def create_task(sizes: Sizes) -> task_lib.Task:
    """Returns StackOverflow's task on random tokens."""
    train = {str(i): {"train": _sentences(sizes, i)} for i in range(sizes.lstm_clients)}
    sentences = _sentences(sizes, 0)
    held_out = clients.InMemoryClients(
        {"0": {"personalization": sentences, "evaluation": sentences}}
    )
    # Unknown words, beginnings and ends have the last three ids.
    words = text.WordTable(np.zeros(1, np.int64), np.zeros(1, np.int32), sizes.lstm_vocabulary - 3)
    return text.next_word_task(
        "stackoverflow",
        functools.partial(stackoverflow_lstm.StackoverflowLstm, units=sizes.lstm_units),
        text.Tokens(words, ()),
        {"train": clients.InMemoryClients(train), "valid": held_out, "test": held_out},
        {},
    )


def _sentences(sizes: Sizes, client: int) -> dict[str, np.ndarray]:
    rng = random_streams.generator(rounds.SEED, "synthetic_data", client)
    # One more token than is read: the last one's successor.
    shape = (sizes.lstm_sentences, sizes.lstm_tokens + 1)
    return {"tokens": rng.integers(0, sizes.lstm_vocabulary, shape, dtype=np.int32)}
