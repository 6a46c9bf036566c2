"""Rounds of Landmarks' MobileNetV2 on noise: as decoded pictures, then as files to be augmented."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from datasets import classification, landmark
from datasets.models import mobilenet_v2
from launch.benchmarks import ALL_THREADS, rounds, torch_process
from launch.benchmarks.measuring import Plan, Sizes
from motley_tff.core import clients, random_streams, task as task_lib

_LEARNING_RATE = 0.05
# Of a photograph's file, which is cut and scaled to the model's size.
_HEIGHT, _WIDTH = 480, 640


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure; the last contender decodes and augments, the others do not."""
    task = _task(sizes, _pixels, lambda raw, training, key: (raw["image"], raw["label"]))
    decoded = rounds.Training(task, _LEARNING_RATE, sizes.landmark_batch_size)
    augmented = decoded._replace(task=_task(sizes, _jpegs, landmark.preprocess))
    title = (
        f"one FedAvg round of MobileNetV2 of {task.model.num_weights:,} weights, "
        f"{sizes.landmark_clients} clients x {sizes.landmark_images} images of "
        f"{landmark.IMAGE_SIZE} pixels, batch {sizes.landmark_batch_size}"
    )
    torch_python = sizes.torch_python if threads == ALL_THREADS else None
    with torch_process.contenders(decoded, "MobileNetV2", torch_python) as torch:
        name, backend = rounds.sequential_backend(threads)
        last = rounds.backend(f"{name}, augmented", backend, augmented)
        yield Plan(title, [*rounds.sequential_only(decoded, threads), *torch, last])


def _task(
    sizes: Sizes,
    images: Callable[[np.random.Generator, int], np.ndarray],
    preprocess: Callable[..., Any],
) -> task_lib.Task:
    def examples(client: int, n: int) -> dict[str, np.ndarray]:
        rng = random_streams.generator(rounds.SEED, "synthetic_data", client)
        labels = rng.integers(0, sizes.landmark_classes, n).astype(np.int32)
        return {"image": images(rng, n), "label": labels}

    train = {
        str(i): {"train": examples(i, sizes.landmark_images)} for i in range(sizes.landmark_clients)
    }
    held_out = clients.InMemoryClients(
        {"0": {"personalization": examples(0, 1), "evaluation": examples(0, 1)}}
    )
    return classification.image_task(
        classification.image_model(
            mobilenet_v2.MobileNetV2,
            sizes.landmark_classes,
            (landmark.IMAGE_SIZE, landmark.IMAGE_SIZE, 3),
        ),
        sizes.landmark_classes,
        {"train": clients.InMemoryClients(train), "valid": held_out, "test": held_out},
        {},
        dataset="landmark",
        preprocess=preprocess,
    )


def _pixels(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(-1, 1, (n, landmark.IMAGE_SIZE, landmark.IMAGE_SIZE, 3)).astype(np.float32)


def _jpegs(rng: np.random.Generator, n: int) -> np.ndarray:
    pixels = rng.integers(0, 256, (n, _HEIGHT // 40, _WIDTH // 40, 3), dtype=np.uint8)
    large = pixels.repeat(40, 1).repeat(40, 2)
    return np.array([tf.io.encode_jpeg(image).numpy() for image in large], object)
