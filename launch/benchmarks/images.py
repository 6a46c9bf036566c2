"""Made-up images for the EMNIST CNN: what they show does not matter to a clock."""

import numpy as np

from datasets import emnist
from datasets.models import emnist_cnn
from motley_tff.core import clients, functional_model, random_streams, task


def examples(index: int, size: int) -> dict[str, np.ndarray]:
    """Returns random images uint8 [size, 28, 28] and labels int32 [size]."""
    rng = random_streams.generator(0, "synthetic_data", index)
    return {
        "image": rng.integers(0, 256, (size, 28, 28), dtype=np.uint8),
        "label": rng.integers(0, 62, size).astype(np.int32),
    }


def create_task(
    num_train: int, train_size: int, num_held_out: int = 1, held_out_size: int = 1
) -> task.Task:
    """Returns an EMNIST task with clients of equal size."""
