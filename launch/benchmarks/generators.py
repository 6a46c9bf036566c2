"""What the workloads of generators share: made-up digits, and a round of clients that train."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import datasets
from datasets import generators as generator_tasks
from datasets.options import GeneratorOptions
from launch.benchmarks import BARE, rounds
from launch.benchmarks.measuring import Contender, Plan, Sizes
from motley_tff import generative
from motley_tff.core import task as task_lib

SHAPE = (28, 28, 1)
BATCH_SIZE = 32

# One step on pictures float32 [batch, height, width, channels] in -1 to 1; its loss.
Step = Callable[[tf.Tensor], tf.Tensor]


def plan(kind: str, sizes: Sizes, threads: int, make_step: Callable[[], Step]) -> Plan:
    """Returns a round of FedAvg of a generator beside as many steps of a plain loop."""
    task = create_task(kind, sizes.generator_clients)
    build: Any = generative.KINDS[kind]
    params = build(train_batch_size=BATCH_SIZE, train_steps=sizes.generator_steps)
    training = rounds.Training(task, params=params)
    num_clients, num_steps = sizes.generator_clients, sizes.generator_steps
    title = (
        f"one FedAvg round of {params.card.title}, {task.model.num_weights:,} weights, "
        f"{num_clients} clients x {num_steps} batches of {BATCH_SIZE} digits"
    )
    made = [
        _plain(make_step(), num_clients * num_steps, task),
        rounds.backend(*rounds.sequential_backend(threads), training),
    ]
    return Plan(title, made)


def create_task(kind: Any, num_clients: int) -> task_lib.Task:
    """Returns the task of making digits, dealt to so many clients."""
    digits = datasets.create(
        "mnist", use_synthetic_data=True, setting="cross_silo", partition="iid",
        num_clients=num_clients,
    )  # fmt: skip
    return generator_tasks.as_generative(digits, GeneratorOptions(kind))


def _plain(step: Step, num_steps: int, task: task_lib.Task) -> Contender:
    parts = [task.train.fetch(i)["train"]["pixels"] for i in task.train.ids]
    pixels = np.concatenate(parts).reshape(-1, *SHAPE)
    data = tf.data.Dataset.from_tensor_slices(pixels).shuffle(len(pixels)).repeat()
    batches = iter(data.batch(BATCH_SIZE).map(generator_tasks.pixels_in_range).prefetch(2))

    def run(_: int) -> dict[str, float]:
        for _ in range(num_steps):
            loss = step(next(batches))
        return {"loss": float(loss)}

    return Contender(BARE, run)
