"""The EMNIST CNN on made-up images: what they show does not matter to a clock."""

from collections.abc import Sequence

import numpy as np

from datasets import classification, emnist
from datasets.models import emnist_cnn
from motley_tff.core import clients, functional_model, random_streams
from motley_tff.core import task as task_lib

_NUM_CLASSES = 62


def create_task(train_sizes: Sequence[int], held_out_sizes: Sequence[int] = (1,)) -> task_lib.Task:
    """Returns an EMNIST task.

    Args:
      train_sizes: Images of each training client.
      held_out_sizes: Images of each other client to personalize on, and as many to evaluate on.
    """
    train = {f"train_{i}": {"train": _examples(0, i, n)} for i, n in enumerate(train_sizes)}
    held_out = {
        f"test_{i}": {"personalization": _examples(1, i, n), "evaluation": _examples(2, i, n)}
        for i, n in enumerate(held_out_sizes)
    }
    evaluated = clients.InMemoryClients(held_out)
    return task_lib.Task(
        dataset="emnist",
        setting="cross_device",
        model=functional_model.from_keras(
            emnist_cnn.EmnistCnn, np.zeros((1, 28, 28, 1), np.float32)
        ),
        loss=classification.cross_entropy,
        metrics=(task_lib.Metric("accuracy", classification.accuracy, higher_is_better=True),),
        preprocess=emnist.preprocess,
        train=clients.InMemoryClients(train),
        valid=evaluated,
        test=evaluated,
    )


def _examples(part: int, client: int, size: int) -> dict[str, np.ndarray]:
    rng = random_streams.generator(0, "synthetic_data", part, client)
    return {
        "pixels": rng.integers(0, 256, (size, 28, 28), dtype=np.uint8),
        "label": rng.integers(0, _NUM_CLASSES, size).astype(np.int32),
    }
