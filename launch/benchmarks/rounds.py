"""Contenders that train rounds: the backends, for any task, and the product of two matrices."""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from launch.benchmarks import ALL_THREADS, ONE_CLIENT, SGEMM
from launch.benchmarks.measuring import Contender
from motley_tff.algorithms import FedAvg, optimizers
from motley_tff.backends import base, sequential
from motley_tff.core import algorithm as algorithm_lib, cores, random_streams, task as task_lib

SEED = 0
_SGEMM_SIZE, _SGEMM_TIMES = 2048, 10


class Setup(NamedTuple):
    """FedAvg on a task, with clients' SGD; every training client takes part in every round."""

    task: task_lib.Task
    learning_rate: float
    batch_size: int

    @property
    def algorithm(self) -> algorithm_lib.Algorithm:
        """FedAvg with server SGD at rate 1, one epoch a round."""
        params = FedAvg(
            optimizers.OptimizerConfig("sgd", self.learning_rate),
            optimizers.OptimizerConfig("sgd", 1.0),
            train_batch_size=self.batch_size,
        )
        return params.build(self.task, self.task.model.initial_weights(SEED))


def backend(name: str, implementation: Any, setup: Setup, rounds: int = 1) -> Contender:
    """Returns a backend that trains so many rounds a run from the initial weights."""
    process = implementation.training(setup.task, setup.algorithm)
    state, ids = process.initialize(), setup.task.train.ids
    keys = (random_streams.key(SEED, "local_training", r) for r in range(1, rounds + 1))
    plan = [base.Round(r, ids, key) for r, key in enumerate(keys, 1)]

    def run(number: int) -> dict[str, float]:
        end = state
        for call_rounds in base.by_call(plan[:number], process.rounds_per_call):
            end, results = process.next(end, call_rounds)
        process.weights(end)
        return {"loss": float(results[-1].means["loss"])}  # The vectorized backend's is NumPy's.

    return Contender(name, run, rounds)


def sequential_backend(threads: int) -> tuple[str, sequential.SequentialBackend]:
    """Returns (name, backend) as the trainers set it up with `--threads_per_client`."""
    if threads == ALL_THREADS:
        return ONE_CLIENT, sequential.SequentialBackend(1)
    at_once = max(1, cores.usable() // threads)
    return f"sequential, {at_once} clients at once", sequential.SequentialBackend(at_once)


def sequential_only(setup: Setup, threads: int) -> list[Contender]:
    """Returns the sequential backend, of one thread on one core too, and the matrix product."""
    contenders = [backend(*sequential_backend(threads), setup)]
    if threads != ALL_THREADS:
        contenders.append(backend(ONE_CLIENT, sequential.SequentialBackend(1), setup))
    gflop = _gflop(setup.task)
    return [*(dataclasses.replace(c, gflop=gflop) for c in contenders), _matrix_product()]


def _gflop(task: task_lib.Task) -> float:
    """Returns the arithmetic of a round: three times that of predictions, as TensorFlow counts.

    What is counted is what runs: of MobileNetV2 10% more than its layers taken one by one. 0.0,
    not counted, of a model that loops: TensorFlow does not know how often.
    """
    examples = task.train.fetch(task.train.ids[0])["train"]
    raw = {name: tf.constant(values[:1]) for name, values in examples.items()}
    x, _ = task.preprocess(raw, False, tf.zeros([2], tf.int32))

    def predict(x, *weights):
        return task.model.predict(weights, x, False, None)

    weights = [tf.TensorSpec(shape, tf.float32) for shape in task.model.shapes]
    graph = tf.function(predict, autograph=False).get_concrete_function(x, *weights).graph
    if any("While" in op.type for op in graph.get_operations()):
        return 0.0
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    count = tf.compat.v1.profiler.profile(graph, options=options).total_float_ops
    # All clients have as many examples.
    return 3e-9 * count * len(next(iter(examples.values()))) * len(task.train)


def _matrix_product() -> Contender:
    """Returns the product of two large matrices: what the machine's float32 can do at best."""
    matrix = tf.random.stateless_uniform([_SGEMM_SIZE, _SGEMM_SIZE], [0, 0])

    def run(number: int) -> None:
        for _ in range(number):
            product = tf.matmul(matrix, matrix)
        product.numpy()

    return Contender(SGEMM, run, _SGEMM_TIMES, gflop=2e-9 * _SGEMM_SIZE**3 * _SGEMM_TIMES)
