"""Rounds of StackOverflow's LSTM on random tokens: 4,050,748 weights by default."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from datasets import next_words
from datasets.models import stackoverflow_lstm
from launch.benchmarks import ALL_THREADS, rounds, torch_process
from launch.benchmarks.measuring import Plan, Sizes
from motley_tff.core import clients, random_streams, task as task_lib

_LEARNING_RATE = 0.3


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure."""
    shape = (sizes.lstm_clients, sizes.lstm_sentences, sizes.lstm_tokens)
    model = functools.partial(stackoverflow_lstm.StackoverflowLstm, units=sizes.lstm_units)
    task = create_task("stackoverflow", model, shape, sizes.lstm_vocabulary)
    training = rounds.Training(task, _LEARNING_RATE, sizes.lstm_batch_size)
    title = (
        f"one FedAvg round of an LSTM of {task.model.num_weights:,} weights, {sizes.lstm_clients} "
        f"clients x {sizes.lstm_sentences} sentences of {sizes.lstm_tokens} tokens, "
        f"batch {sizes.lstm_batch_size}"
    )
    torch_python = sizes.torch_python if threads == ALL_THREADS else None
    with torch_process.contenders(training, "StackoverflowLstm", torch_python) as torch:
        yield Plan(title, [*rounds.sequential_only(training, threads), *torch])


def create_task(
    dataset: str, model: Callable[[int], tf.keras.Model], shape: Sequence[int], num_ids: int
) -> task_lib.Task:
    """Returns a task of next words on random tokens, of (clients, sentences each, tokens each)."""
    num_clients, num_sentences, num_tokens = shape

    def sentences(client: int) -> dict[str, np.ndarray]:
        rng = random_streams.generator(rounds.SEED, "synthetic_data", client)
        # One more token than is read: the last one's successor.
        shape = (num_sentences, num_tokens + 1)
        return {"tokens": rng.integers(0, num_ids, shape, dtype=np.int32)}

    train = {str(i): {"train": sentences(i)} for i in range(num_clients)}
    held_out = clients.InMemoryClients(
        {"0": {"personalization": sentences(0), "evaluation": sentences(0)}}
    )
    # Unknown words, beginnings and ends have the last three ids.
    words = next_words.WordTable(np.zeros(1, np.int64), np.zeros(1, np.int32), num_ids - 3)
    tokens = next_words.Tokens(words, ())
    return next_words.next_word_task(
        dataset,
        next_words.model_of(model, tokens),
        tokens,
        {"train": clients.InMemoryClients(train), "valid": held_out, "test": held_out},
        {},
    )
