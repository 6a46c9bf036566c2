"""Many rounds of FedAvg on School: 139 silos, linear regression, an epoch of shuffled batches each.

Batches are shuffled anew every round and an epoch's short last batch is left out, for everybody.
What would take minutes is run for a few rounds and extrapolated, as the table says.
"""

import contextlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from datasets import files, school
from datasets.options import DataOptions
from launch.benchmarks import rounds, stock
from launch.benchmarks.measuring import Contender, Plan, Sizes
from motley_tff.backends import vectorized
from motley_tff.backends.tff.runtime import tff_runtime
from motley_tff.core import clients, task as task_lib

_LEARNING_RATE = 0.01
_NUM_SCHOOLS = 139


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure."""
    task = create_task(sizes, rounds.SEED)
    training = rounds.Training(task, _LEARNING_RATE, sizes.school_batch_size)
    total, measured = sizes.school_rounds, min(sizes.school_measured_rounds, sizes.school_rounds)
    scale = total / measured
    title = (
        f"{total} rounds of FedAvg on School ({task.facts['source']} data), {len(task.train)} "
        f"silos, batch {sizes.school_batch_size}"
    )
    with tff_runtime(intra_op_threads=threads or None) as worker:
        listed = [
            rounds.bare(training)._replace(scale=total),
            rounds.backend("vectorized", vectorized.VectorizedBackend(), training, total),
            rounds.backend(*rounds.sequential_backend(threads), training, measured)._replace(
                scale=scale
            ),
            _stock(training, measured)._replace(scale=scale, worker_pids=(worker.pid,)),
        ]
        yield Plan(title, listed)


def create_task(sizes: Sizes, seed: int) -> task_lib.Task:
    """Returns School, real where `data_dir` has it, with silos split by a seed."""
    options = DataOptions("school", data_dir=sizes.data_dir, base_random_seed=seed)
    if sizes.data_dir and files.find(options, school.FILE.paths):
        return school.create_task(options)
    made = school.synthesize(rounds.SEED, _NUM_SCHOOLS)
    facts = {"source": "synthetic"}
    return school.create_task_from_data(made.features, made.targets, seed, facts)


def _stock(training: rounds.Training, measured: int) -> Contender:
    train = training.task.train
    width = training.task.model.shapes[0][0]
    batches = [_batches(train.fetch(i)["train"], training.batch_size) for i in train.ids]
    rate = training.learning_rate
    return stock.fed_avg("defaults", lambda: stock.linear(width), batches, rate, measured)


def _batches(examples: clients.Examples, batch_size: int) -> tf.data.Dataset:
    targets = np.reshape(examples["target"], [-1, 1])
    size = len(targets)
    data = tf.data.Dataset.from_tensor_slices((examples["features"], targets)).shuffle(size)
    # A silo smaller than a batch has one batch of all it has.
    return data.batch(min(batch_size, size), drop_remainder=True)
