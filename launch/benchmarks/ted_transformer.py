"""Rounds of TED's Transformer on random tokens: 4,769,824 weights by default."""

import contextlib
from collections.abc import Iterator

from datasets.models import ted_transformer
from launch.benchmarks import ALL_THREADS, rounds, stackoverflow_lstm, torch_process
from launch.benchmarks.measuring import Plan, Sizes

_LEARNING_RATE, _TOKENS = 0.03, 20


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure."""
    shape = (sizes.ted_clients, sizes.ted_sentences, _TOKENS)
    task = stackoverflow_lstm.create_task(
        "ted_multi", ted_transformer.TedTransformer, shape, sizes.ted_vocabulary
    )
    training = rounds.Training(task, _LEARNING_RATE, sizes.ted_batch_size)
    title = (
        f"one FedAvg round of a Transformer of {task.model.num_weights:,} weights, "
        f"{sizes.ted_clients} clients x {sizes.ted_sentences} sentences of {_TOKENS} tokens, "
        f"batch {sizes.ted_batch_size}"
    )
    torch_python = sizes.torch_python if threads == ALL_THREADS else None
    with torch_process.contenders(training, "TedTransformer", torch_python) as torch:
        yield Plan(title, [*rounds.sequential_only(training, threads), *torch])
