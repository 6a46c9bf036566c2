"""FedAvg rounds of the four published models, on noise, and of School's linear regression.

What pictures show, and which words come, does not matter to a clock.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datasets import emnist, landmark, school
from datasets.kinds import classification, next_words
from datasets.models import mobilenet_v2, stackoverflow_lstm as lstm, ted_transformer as ted
from datasets.options import DataOptions
from datasets.readers import files
from launch.benchmarks import rounds
from launch.benchmarks.measuring import Contender, Plan, Sizes
from motley_tff.backends import vectorized
from motley_tff.backends.tff import backend as tff_backend
from motley_tff.backends.tff.runtime import tff_runtime
from motley_tff.core import clients, random_streams, task as task_lib

_NUM_SCHOOLS = 139
_PICTURE = (landmark.IMAGE_SIZE, landmark.IMAGE_SIZE, 3)
# Of a photograph's file, which is cut and scaled to the model's size.
_HEIGHT, _WIDTH = 480, 640
_TED_TOKENS = 20


@contextlib.contextmanager
def emnist_cnn(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields rounds of EMNIST's CNN, by the TFF backend, too."""
    number = sizes.emnist_images

    def examples(rng: np.random.Generator) -> clients.Examples:
        pixels = rng.integers(0, 256, (number, 28, 28), dtype=np.uint8)
        return {"pixels": pixels, "label": _labels(rng, emnist.NUM_CLASSES, number)}

    task = emnist.make_task(_made_up(examples, sizes.emnist_clients), emnist.NUM_CLASSES, {})
    setup = rounds.Setup(task, 0.1, sizes.emnist_batch_size)
    with tff_runtime(intra_op_threads=threads or None) as worker:
        on_worker = rounds.backend("tff", tff_backend.TffBackend(), setup)
        on_worker.pids = (os.getpid(), worker.pid)
        work = f"the EMNIST CNN, {sizes.emnist_clients} clients x {number} images"
        yield from _plan(work, setup, "EmnistCnn", sizes, threads, on_worker)


@contextlib.contextmanager
def landmark_mobilenet(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields rounds of Landmarks' MobileNetV2; the last contender decodes and augments files."""
    number, classes = sizes.landmark_images, sizes.landmark_classes

    def pixels(rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(-1, 1, (number, *_PICTURE)).astype(np.float32)

    def jpegs(rng: np.random.Generator) -> np.ndarray:
        blocks = rng.integers(0, 256, (number, _HEIGHT // 40, _WIDTH // 40, 3), dtype=np.uint8)
        large = blocks.repeat(40, 1).repeat(40, 2)
        return np.array([tf.io.encode_jpeg(image).numpy() for image in large], object)

    def setup(
        draw: Callable[[np.random.Generator], np.ndarray], preprocess: Callable[..., Any]
    ) -> rounds.Setup:
        def examples(rng: np.random.Generator) -> clients.Examples:
            return {"image": draw(rng), "label": _labels(rng, classes, number)}

        model = classification.image_model(mobilenet_v2.MobileNetV2, classes, _PICTURE)
        sets = _made_up(examples, sizes.landmark_clients)
        task = classification.image_task(
            model, classes, sets, {}, dataset="landmark", preprocess=preprocess
        )
        return rounds.Setup(task, 0.05, sizes.landmark_batch_size)

    decoded = setup(pixels, lambda raw, training, key: (raw["image"], raw["label"]))
    name, backend = rounds.sequential_backend(threads)
    last = rounds.backend(f"{name}, augmented", backend, setup(jpegs, landmark.preprocess))
    work = (
        f"MobileNetV2 of {decoded.task.model.num_weights:,} weights, {sizes.landmark_clients} "
        f"clients x {number} images of {landmark.IMAGE_SIZE} pixels"
    )
    yield from _plan(work, decoded, "MobileNetV2", sizes, threads, last)


@contextlib.contextmanager
def stackoverflow_lstm(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields rounds of StackOverflow's LSTM: 4,050,748 weights by default."""
    shape = (sizes.lstm_clients, sizes.lstm_sentences, sizes.lstm_tokens)
    model = functools.partial(lstm.StackoverflowLstm, units=sizes.lstm_units)
    task, work = _next_words("stackoverflow", "an LSTM", model, shape, sizes.lstm_vocabulary)
    setup = rounds.Setup(task, 0.3, sizes.lstm_batch_size)
    yield from _plan(work, setup, "StackoverflowLstm", sizes, threads)


@contextlib.contextmanager
def ted_transformer(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields rounds of TED's Transformer: 4,769,824 weights by default."""
    shape, model = (sizes.ted_clients, sizes.ted_sentences, _TED_TOKENS), ted.TedTransformer
    task, work = _next_words("ted_multi", "a Transformer", model, shape, sizes.ted_vocabulary)
    setup = rounds.Setup(task, 0.03, sizes.ted_batch_size)
    yield from _plan(work, setup, "TedTransformer", sizes, threads)


@contextlib.contextmanager
def school_fedavg(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields many rounds on School; what would take minutes is run for a few, and extrapolated."""
    options = DataOptions("school", data_dir=sizes.data_dir, base_random_seed=rounds.SEED)
    if sizes.data_dir and files.find(options, school.FILE.paths):
        task = school.create_task(options)
    else:
        drawn, facts = school.synthesize(rounds.SEED, _NUM_SCHOOLS), {"source": "synthetic"}
        task = school.create_task_from_data(drawn.features, drawn.targets, rounds.SEED, facts)
    setup = rounds.Setup(task, 0.01, sizes.school_batch_size)
    total, measured = sizes.school_rounds, min(sizes.school_measured_rounds, sizes.school_rounds)
    title = (
        f"{total} rounds of FedAvg on School ({task.facts['source']} data), {len(task.train)} "
        f"silos, batch {sizes.school_batch_size}"
    )
    # Compiled from the first round on, which warms up.
    compiled = vectorized.VectorizedBackend(lambda times, numbers: True)
    vectorized_runs = rounds.backend("vectorized", compiled, setup, total)
    sequential_runs = rounds.backend(*rounds.sequential_backend(threads), setup, measured)
    sequential_runs.scale = total / measured
    yield title, [vectorized_runs, sequential_runs]


def _plan(
    work: str, setup: rounds.Setup, model: str, sizes: Sizes, threads: int, *others: Contender
) -> Iterator[Plan]:
    title = f"one FedAvg round of {work}, batch {setup.batch_size}"
    with rounds.torch_contenders(setup, model, sizes, threads) as torch:
        yield title, [*rounds.sequential_only(setup, threads), *torch, *others]


def _next_words(
    dataset: str, called: str, model: Callable[..., Any], shape: Sequence[int], num_ids: int
) -> tuple[task_lib.Task, str]:
    """Returns a task on random tokens of (clients, sentences each, tokens each), and its work."""
    num_clients, num_sentences, num_tokens = shape

    def sentences(rng: np.random.Generator) -> clients.Examples:
        # One more token than is read: the last one's successor.
        size = (num_sentences, num_tokens + 1)
        return {"tokens": rng.integers(0, num_ids, size, dtype=np.int32)}

    # Unknown words, beginnings and ends have the last three ids.
    words = next_words.WordTable(np.zeros(1, np.int64), np.zeros(1, np.int32), num_ids - 3)
    tokens, sets = next_words.Tokens(words, ()), _made_up(sentences, num_clients)
    task = next_words.next_word_task(dataset, next_words.model_of(model, tokens), tokens, sets, {})
    return task, (
        f"{called} of {task.model.num_weights:,} weights, {num_clients} clients x "
        f"{num_sentences} sentences of {num_tokens} tokens"
    )


def _made_up(
    examples: Callable[[np.random.Generator], clients.Examples], number: int
) -> dict[str, clients.Clients]:
    """Returns a task's sets of clients, each client's examples drawn from its own generator."""
    streams = (random_streams.generator(rounds.SEED, "synthetic_data", i) for i in range(number))
    drawn = [examples(stream) for stream in streams]
    train = clients.InMemoryClients({str(i): {"train": own} for i, own in enumerate(drawn)})
    parts = {"personalization": drawn[0], "evaluation": drawn[0]}
    held_out = clients.InMemoryClients({"0": parts})
    return {"train": train, "valid": held_out, "test": held_out}


def _labels(rng: np.random.Generator, classes: int, number: int) -> np.ndarray:
    return rng.integers(0, classes, number).astype(np.int32)
